"""The report names where a peer does better, whose runs differ, and shows the numbers of a miss."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from gauntlet.report import better_peers, cells_of, page, picture, short, unstable
from gauntlet.scenario import load
from gauntlet.verdict import Verdict

SCENARIOS = load()
SUBJECTS = ["deputy_library", "deputy_cli", "openai_agents_sdk", "claude_code"]


def verdict(subject, scenario="hang", word="held", **fields):
    return Verdict(subject=subject, scenario=scenario, verdict=word, **fields)


def all_held(*others, times=1):
    changed = {(one.subject, one.scenario): one for one in others}
    return [
        changed.get((subject, scenario), verdict(subject, scenario))
        for _ in range(times)
        for subject in SUBJECTS
        for scenario in SCENARIOS
    ]


@pytest.mark.parametrize(
    ("ours", "theirs", "behind"),
    [
        (verdict("deputy_cli", word="missed"), verdict("openai_agents_sdk"), ["deputy_cli"]),
        (verdict("deputy_library", word="not offered"), verdict("openai_agents_sdk"), ["deputy_library"]),
        (verdict("deputy_cli"), verdict("openai_agents_sdk"), []),
    ],
)
def test_a_peer_does_better_where_it_holds_and_deputy_does_not(ours, theirs, behind):
    found, peers = better_peers(cells_of(all_held(ours, theirs)), SUBJECTS, "hang")
    assert found == behind
    assert ("openai_agents_sdk" in peers) == bool(behind)


def test_a_program_is_not_behind_what_only_libraries_offer():
    cells = cells_of(all_held(verdict("deputy_cli", word="not offered"), verdict("claude_code", word="not offered")))
    assert better_peers(cells, SUBJECTS, "hang") == ([], [])


def test_the_page_is_not_written_while_a_weakness_has_no_remedy():
    cells = cells_of(all_held(verdict("deputy_cli", word="missed", over=["lost"], counters={"lost": 2})))
    with pytest.raises(KeyError, match="hang"):
        page(cells, SCENARIOS, SUBJECTS, 1)


def test_a_miss_in_one_of_three_runs_is_a_miss_and_is_said():
    once = verdict("claude_code", word="missed", over=["lost"], counters={"lost": 2})
    cells = cells_of([*all_held(times=2), *all_held(once)])
    assert unstable(cells) == ["hang of claude_code"]
    text = page(cells, SCENARIOS, SUBJECTS, 3)
    assert "3 runs differ in 1: hang of claude_code" in text
    assert "✗ 2 lost" in text


def test_a_miss_shows_its_numbers():
    late = verdict(
        "claude_code", word="missed", over=["lost", "late_seconds"], counters={"lost": 0, "late_seconds": 31}
    )
    assert short(late) == "✗ 31 s late"
    assert short(verdict("claude_code", word="missed", over=["hung"], counters={"lost": 2})) == "✗ did not end"


def test_the_picture_is_xml_with_a_cell_for_each_verdict():
    root = ElementTree.fromstring(picture(cells_of(all_held()), SCENARIOS, SUBJECTS))
    marks = [one for one in root.iter("{http://www.w3.org/2000/svg}text") if one.text == "✓"]
    assert len(marks) == len(SCENARIOS) * len(SUBJECTS)


def test_a_page_with_a_note_claims_no_clean_run():
    text = page(cells_of(all_held(times=3)), SCENARIOS, SUBJECTS, 3, "### How\n\nPut together.\n")
    assert "3 verdicts each, put together as below" in text
    assert "gave the same verdicts" not in text
    assert "Put together." in text
