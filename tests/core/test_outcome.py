import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.every_case import every_case

from deputy.core.errors import Error
from deputy.core.outcome import (
    SUMMARY_LENGTH,
    Artifact,
    Blocked,
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Partial,
    Rejected,
    Usage,
    first_sentence,
    shortened,
    used_text,
)
from deputy.core.request import Hop, Lineage

LINEAGE = Lineage.root("sess_1_root").child("sess_1_child", Hop("scout", "agent"), "sig", now=0.0, seconds=600.0)
ERROR = Error(type="execution", code="BOOM", message="It broke.", recoverable=True, recommendation="Try again.")


@pytest.mark.rule("outcome.total")
@pytest.mark.parametrize("kind", [Partial, Failed, Blocked, Rejected])
def test_an_ending_short_of_done_says_what_went_wrong(kind):
    assert kind(lineage=LINEAGE, summary="s", errors=(ERROR,)).status == kind.__name__.lower()
    with pytest.raises(ValueError, match="at least one error"):
        kind(lineage=LINEAGE, summary="s")


@pytest.mark.rule("outcome.total")
@pytest.mark.parametrize("summary", ["", "x" * (SUMMARY_LENGTH + 1)])
def test_a_summary_has_one_to_five_hundred_characters(summary):
    with pytest.raises(ValueError, match="summary"):
        Completed(lineage=LINEAGE, summary=summary)


def test_an_outcome_has_the_label_of_its_task():
    lineage = Lineage.root("sess_1_root").child("sess_1_child", Hop("task:auth", "task"), "sig", now=0.0, seconds=600.0)
    assert Completed(lineage=lineage, summary="s").label == "auth"
    assert Completed(lineage=LINEAGE, summary="s").label == "scout"


@pytest.mark.rule("outcome.total")
@every_case("kind", [Completed, Partial, Failed, Blocked, Cancelled, Rejected])
def test_every_kind_keeps_usage_notes_and_text_through_json(kind):
    outcome = kind(
        lineage=LINEAGE,
        summary="s",
        report="text so far",
        notes=("n",),
        errors=(ERROR,),
        usage=Usage(input=3, output=2, cached=1, requests=1, cost=None),
        artifacts=(Artifact(type="report", path="a.md"),),
    )
    assert msgspec.json.decode(msgspec.json.encode(outcome), type=Outcome) == outcome


@pytest.mark.rule("outcome.total")
def test_an_outcome_of_no_known_kind_is_not_an_outcome():
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"status":"finished","summary":"s"}', type=Outcome)


def test_a_refusal_shows_its_code_and_advice():
    rejected = Rejected(lineage=LINEAGE, summary="s", errors=(ERROR,))
    assert (rejected.code, rejected.remedy, rejected.session_id) == ("BOOM", "Try again.", "sess_1_child")


USAGES = st.builds(
    Usage,
    input=st.integers(0, 10**9),
    output=st.integers(0, 10**9),
    cached=st.integers(0, 10**9),
    requests=st.integers(0, 99),
    cost=st.none() | st.integers(0, 10**14).map(lambda nanos: nanos / 10**9),
)


@given(USAGES, USAGES, USAGES)
@pytest.mark.rule("cost.unit")
def test_usage_sums_exactly_and_an_unknown_price_stays_unknown(a, b, c):
    assert (a + b) + c == a + (b + c)
    assert a + Usage() == a
    assert ((a + b).cost is None) is (a.cost is None or b.cost is None)


def test_a_text_is_cut_to_a_summary_with_a_sign_that_it_was():
    assert shortened("short") == "short"
    assert shortened("x" * 501) == "x" * 499 + "…"
    assert len(shortened("word " * 200)) <= SUMMARY_LENGTH


@pytest.mark.rule("honest.summary")
@every_case(
    ("report", "summary"),
    [
        ("# Report\n\n## Summary\n\nThe limit is three (a.py:3). It is used twice.", "The limit is three (a.py:3)."),
        ("Findings\n========\n\n- `a.py:3` is wrong. The rest is fine.", "`a.py:3` is wrong."),
        (
            "**Summary**\n\nHere is what I found:\n\n1. The key, e.g. Foo, is missing. So",
            "The key, e.g. Foo, is missing.",
        ),
        ("**Answer:** 42 is right.", "Answer: 42 is right."),
        ("```python\nx = 1\n```\n---\n| a |\n|---|\nA line\nand its end. More.", "A line and its end."),
        ("**Fixed the bug.** More follows.", "Fixed the bug."),
        ("Version 1.2 works", "Version 1.2 works"),
        ("# Only a heading", "Only a heading"),
        ("```\nonly code\n```", "only code"),
        ('{"text": "It is. Then"}', '{"text": "It is. Then"}'),
        (" \n", ""),
    ],
)
def test_a_summary_is_the_first_sentence_of_substance(report: str, summary: str):
    assert first_sentence(report) == summary
    assert len(first_sentence(report * 50_000)) <= SUMMARY_LENGTH


def test_a_summary_is_found_in_linear_time():
    def seconds(times: int) -> float:
        began = time.process_time()
        first_sentence("no. A " * times)
        return time.process_time() - began

    small = min(seconds(400) for _ in range(3))
    assert min(seconds(3_200) for _ in range(3)) < 8 * 4 * small + 0.05


@pytest.mark.rule("cost.unit")
@pytest.mark.parametrize(
    ("usage", "text"),
    [
        (Usage(requests=1, cost=0.14), "$0.14"),
        (Usage(requests=1, cost=None), "unknown"),
        (Usage(requests=1, cost=0), "free"),
        (Usage(), ""),
    ],
)
def test_an_unknown_cost_is_shown_as_unknown_and_none_as_free(usage, text):
    assert usage.cost_text == text
    assert used_text(usage) == f"in=0 out=0{' cost=' * bool(text)}{text}"
