"""Hostile input costs what its size is: work is counted in calls, at one size and at twice that size."""

from __future__ import annotations

from cProfile import Profile

import pytest
import yaml

from deputy.agents.definition import AgentDefinition, DefinitionOrigin, DefinitionProblem
from deputy.agents.read_definition import read_content

ORIGIN = DefinitionOrigin(path="agent.md", file_name="from-file")

UNITS = {
    "brackets": b"[",
    "braces": b"{",
    "dashes": b"- ",
    "questions": b"? ",
    "colons": b"a: ",
    "quotes": b'"',
    "anchors": b"&a ",
    "aliases": b"*a ",
    "tags": b"!a ",
    "blank lines": b"\n",
    "rules": b"---\n",
    "fences and rules": b"```\n---\n",
    "names": b"name: x\n",
    "names and rules": b"name: x\n---\n",
    "unknown keys": b"key: value\n",
    "indented then unknown": b" \nkey: a\n",
    "speakers": b"user: x\n",
    "headings": b"\n# x\n",
    "carriage returns": b"\r",
    "line separators": "\u2028".encode(),
    "parentheses": b"(",
    "tools": b"a, ",
    "words": b"a b ",
    "escapes": b"\\n",
    "merge keys": b"<<: x\n",
    "tabs": b"\t",
    "not text": b"\xff",
}
STARTS = [b"", b"---\n", b"---\nname: x\ndescription: ", b"---\nname: x\ntools: ", b"---\nname: x\ntools:\n", b"text\n"]
ENDS = [b"", b"\n---\nbody"]


def calls(content: bytes) -> int:
    """How many calls and returns it takes to read this."""
    with Profile() as profile:
        found = read_content(content, ORIGIN)
    assert isinstance(found, (AgentDefinition, DefinitionProblem))
    return 2 * sum(entry.callcount for entry in profile.getstats())


@pytest.mark.rule("agents")
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_twice_the_input_is_at_most_about_twice_the_work(unit: bytes) -> None:
    for start in STARTS:
        for end in ENDS:
            small, large = (calls(start + unit * (size // len(unit)) + end) for size in (4_000, 8_000))
            assert large <= small * 2.5 + 2_000, (start, end)


@pytest.mark.rule("agents")
@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
def test_the_largest_input_stays_within_a_fixed_amount_of_work(unit: bytes) -> None:
    content = b"---\nname: x\ndescription: " + unit * (250_000 // len(unit)) + b"\n---\nbody"
    assert calls(content) < 6_000_000


@pytest.mark.rule("agents")
@pytest.mark.parametrize("value", ["[" * 60_000, "{" * 60_000, "[{" * 30_000, "[a, " * 15_000, "{a: " * 15_000])
def test_deep_nesting_is_left_at_the_depth_that_is_allowed(value: str) -> None:
    assert calls(f"---\nname: x\ndescription: y\nextra: {value}\n---\nbody".encode()) < 500_000


@pytest.mark.rule("agents")
def test_a_bomb_of_aliases_and_one_of_merge_keys_cost_no_more_than_their_text() -> None:
    aliases = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 40))
    merges = "a0: &a0 {k: v}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 200))
    for bomb in (aliases, merges):
        content = f"---\nname: bomb\ndescription: Grows.\n{bomb}tools: Read\n---\nbody".encode()
        found = read_content(content, ORIGIN)
        assert isinstance(found, AgentDefinition)
        assert (found.name, found.description, found.tools) == ("bomb", "Grows.", ("Read",))
        assert any("anchor" in warning.message for warning in found.warnings)
        assert calls(content) < 200_000


def test_without_libyaml_many_keys_cost_little_more_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "CBaseLoader")
    few, many = (calls(b"---\nname: x\ndescription: a: b\n" + b"key:\n" * count + b"---\n") for count in (400, 4_000))
    assert many < few * 5
