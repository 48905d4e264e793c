"""Requests as `<delegate>` blocks, beyond what the corpus shows."""

from __future__ import annotations

import pytest
from tests.support.every_case import every_case

from deputy.core.detect import detect

pytestmark = pytest.mark.rule("text.xml")


def prompts(text: str) -> list[str]:
    return [request.prompt for request in detect(text)]


def test_the_span_is_the_block_from_its_first_to_its_last_character() -> None:
    text = "Before.\n\n<delegate>Do it well.</delegate>\n\nAfter."
    (request,) = detect(text)
    assert text[slice(*request.span)] == "<delegate>Do it well.</delegate>"


def test_an_unclosed_block_ends_where_the_next_one_starts() -> None:
    assert prompts("<delegate>\nOne thing.\n\n<delegate>\nAnother thing.\n") == ["One thing.", "Another thing."]


def test_an_unclosed_block_counts_only_at_the_start_of_a_line() -> None:
    assert prompts("- <delegate>Do it well") == ["Do it well"]
    assert prompts("> <delegate>Do it well") == ["Do it well"]
    assert prompts("see <delegate>Do it well") == []


def test_a_closing_tag_closes_the_block_in_its_column_past_mentions() -> None:
    text = "<delegate>\nSay <delegate> once,\nand <delegate> twice.\n</delegate>"
    assert prompts(text) == ["Say <delegate> once,\nand <delegate> twice."]


def test_a_documented_block_hides_what_is_nested_in_it_but_not_what_follows() -> None:
    text = "<delegate [x]>\n<delegate>inner task</delegate>\n</delegate>\n\n<delegate>real task</delegate>"
    assert prompts(text) == ["real task"]


def test_a_stray_closing_tag_means_nothing() -> None:
    assert prompts("</delegate>\n<delegate>Do it well.</delegate></delegate>") == ["Do it well."]


@pytest.mark.parametrize("name", ["system-instructions", "system_instructions", "SYSTEM-INSTRUCTIONS"])
def test_the_name_of_a_part_may_be_spelt_loosely(name: str) -> None:
    (request,) = detect(f"<delegate><{name}>Be kind.</{name}>Do it well.</delegate>")
    assert (request.system, request.prompt) == ("Be kind.", "Do it well.")


def test_parts_named_in_code_are_not_parts() -> None:
    (request,) = detect("<delegate>Explain `<output>` and `<context>` to me.</delegate>")
    assert request.prompt == "Explain `<output>` and `<context>` to me."


def test_only_context_is_still_a_task() -> None:
    (request,) = detect("<delegate><context>Look at src/a.py</context></delegate>")
    assert "Look at src/a.py" in request.prompt


def test_an_attribute_may_hold_angle_brackets() -> None:
    (request,) = detect('<delegate model="opus" note="a > b <c>">Do it well.</delegate>')
    assert (request.model, request.prompt) == ("opus", "Do it well.")


def test_a_model_attribute_counts_more_than_a_model_child() -> None:
    (request,) = detect('<delegate model="opus"><model>haiku</model>Do it well.</delegate>')
    assert request.model == "opus"


def test_a_very_long_list_as_context_is_kept_whole() -> None:
    items = "\n".join(f"- item {number}" for number in range(500))
    (request,) = detect(f"<delegate><context>\n{items}\n</context><prompt>Count them.</prompt></delegate>")
    assert request.context[0] == "item 0"
    assert "item 499" in request.context[-1]


def test_many_parts_lose_nothing() -> None:
    parts = "".join(f"<prompt>part {number}.</prompt>" for number in range(2000))
    (request,) = detect(f"<delegate>{parts}</delegate>")
    assert all(f"part {number}." in request.normalized for number in range(2000))


def test_blank_lines_of_a_quotation_stay_blank() -> None:
    assert prompts("> <delegate>\n> One.\n>\n>\n>\n> Two.\n> </delegate>") == ["One.\n\n\n\nTwo."]


@pytest.mark.rule("exec.grant")
def test_the_attributes_of_a_block_are_read_and_unknown_ones_are_warned_of() -> None:
    (request,) = detect("<delegate model='opus' agent=\"reviewer\" tools='Read, Edit' timeout=90s>Do it.</delegate>")
    assert (request.model, request.agent, request.tools, request.timeout) == (
        "opus",
        "reviewer",
        ("Read", "Edit"),
        90.0,
    )
    assert request.warnings == ()
    (request,) = detect(
        '<delegate agent="{agent}" tools="{{tools}}" timeout="soon" color="red" Color="blue">Do it.</delegate>'
    )
    assert (request.agent, request.tools, request.timeout) == (None, None, None)
    assert request.warnings == (
        "the attribute 'color' is unknown; known: model, agent, tools, timeout",
        "timeout='soon' is not a number of seconds, so it is not used",
    )


@every_case("timeout", ["0", "-1", "1e9", "9999999", "nan", "", "1.2.3", "٣"])
def test_a_timeout_that_is_no_number_of_seconds_is_not_used(timeout: str) -> None:
    (request,) = detect(f'<delegate timeout="{timeout}">Do it.</delegate>')
    assert request.timeout is None
