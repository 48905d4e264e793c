from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy.agents.definition import AgentDefinition, DefinitionLimits, DefinitionOrigin, DefinitionProblem
from deputy.agents.read_definition import LIMIT_BYTES, read_content, read_definition

ORIGIN = DefinitionOrigin(path="agent.md", file_name="from-file", family="claude")

LINES = [
    "---",
    "--- ",
    "name: x",
    "name:",
    "description: ",
    "description: a: b",
    "tools: ",
    "tools:",
    "  - Read",
    "...",
]
LABELS = [
    "user: ",
    "assistant: ",
    "<example>",
    "# Title",
    "key: value",
    "Name: X",
    "model: inherit",
    "permission:",
    "```",
]
VALUES = [
    "  '*': deny",
    "timeout: 5m",
    "recursive: yes",
    "mcp__a__*",
    "~",
    "null",
    "C:\\new",
    "é",
    "\\n",
    "|\n",
    ">-\n",
]
SIGNS = [
    "- ",
    "? ",
    ": ",
    "#",
    " # ",
    '"',
    "'",
    "`",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "!x ",
    "<<: ",
    "%",
    "@",
    ",",
    "(",
    ")",
]
ODD = ["\r\n", "\r", "\t", " ", "\\", "\x00", "\x1b", "\x85", "\u2028", "\ufeff", "\ud800"]
PIECES = st.sampled_from([*LINES, *LABELS, *VALUES, *SIGNS, *ODD, *["\n"] * 12])


@pytest.mark.rule("agents")
@given(st.lists(PIECES, max_size=60).map("".join))
def test_no_text_raises(text: str) -> None:
    found = read_definition(text, ORIGIN)
    assert isinstance(found, (AgentDefinition, DefinitionProblem))
    if isinstance(found, AgentDefinition):
        assert found.name
        assert "\r" not in found.name + found.description + found.prompt


@given(
    st.binary(max_size=400),
    st.sampled_from([b"", b"---\n", b"---\nname: x\ndescription: ", b"\xef\xbb\xbf---\n", b"\xff\xfe"]),
)
def test_no_bytes_raise(content: bytes, start: bytes) -> None:
    assert isinstance(read_content(start + content + b"\n---\nbody", ORIGIN), (AgentDefinition, DefinitionProblem))


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True)
PROSE = st.from_regex(r"[A-Za-z][A-Za-z0-9 ,.:;()'#&*!?-]{0,80}[a-z.]", fullmatch=True).map(
    lambda text: " ".join(text.split())
)


@pytest.mark.rule("agents")
@given(NAMES, PROSE)
def test_an_unquoted_description_comes_out_as_it_stands(name: str, prose: str) -> None:
    found = read_definition(f"---\nname: {name}\ndescription: {prose}\ntools: Read, Grep\n---\nGo.", ORIGIN)
    assert isinstance(found, AgentDefinition)
    assert (found.name, found.description, found.tools, found.prompt) == (name, prose, ("Read", "Grep"), "Go.")


@pytest.mark.rule("agents")
@given(NAMES, PROSE, st.lists(st.tuples(st.sampled_from(["user", "assistant"]), PROSE), min_size=1, max_size=6))
def test_a_dialogue_at_column_0_belongs_to_the_description(name: str, prose: str, turns: list[tuple[str, str]]) -> None:
    dialogue = "\n".join(f"{who}: {says}" for who, says in turns)
    found = read_definition(f"---\nname: {name}\ndescription: {prose}\n{dialogue}\nmodel: opus\n---\nGo.", ORIGIN)
    assert isinstance(found, AgentDefinition)
    assert (found.name, found.description, found.model) == (name, f"{prose}\n{dialogue}", "opus")
    assert found.warnings


@pytest.mark.rule("agents")
@given(NAMES, PROSE)
def test_line_ends_and_marks_of_an_editor_change_nothing(name: str, prose: str) -> None:
    text = f"---\nname: {name}\ndescription: {prose}\n---\nFirst.\nSecond."
    plain = read_definition(text, ORIGIN)
    edited = read_definition("\ufeff" + text.replace("\n", "\r\n"), ORIGIN)
    assert isinstance(plain, AgentDefinition)
    assert isinstance(edited, AgentDefinition)
    assert (edited.name, edited.description, edited.prompt) == (plain.name, plain.description, plain.prompt)
    assert len(edited.warnings) == len(plain.warnings) + 2


@pytest.mark.rule("agents")
def test_a_clean_definition_has_no_warnings(read) -> None:
    agent = read("---\nname: a\ndescription: Does b.\ntools: Read\nmodel: sonnet\ncolor: red\n---\nDo b.\n")
    assert agent == AgentDefinition(
        name="a",
        description="Does b.",
        prompt="Do b.",
        tools=("Read",),
        model="sonnet",
        limits=DefinitionLimits(),
        extra={"color": "red"},
        path="agent.md",
        source="claude project",
    )


@pytest.mark.rule("agents")
def test_a_name_that_is_missing_comes_from_the_file_with_a_warning(read) -> None:
    agent = read("---\ndescription: Does it.\n---\n", file_name="porter")
    assert agent.name == "porter"
    assert "porter" in agent.warnings[0].message


def test_opencode_takes_the_name_of_the_file_without_a_warning(read) -> None:
    agent = read("---\ndescription: Does it.\n---\n", family="opencode", file_name="team/porter")
    assert (agent.name, agent.warnings) == ("team/porter", ())


def test_a_warning_names_the_line_of_the_file_and_not_of_the_front_matter(read) -> None:
    agent = read("Some text.\n\n---\nname: a\ndescription: when: now\n---\n")
    assert [warning.line for warning in agent.warnings] == [1, 5]


def test_a_body_that_repeats_keys_changes_nothing(read) -> None:
    agent = read("---\nname: a\ndescription: b\n---\n---\nname: other\n---\ntools: Bash\n")
    assert (agent.name, agent.tools) == ("a", None)


def test_a_definition_that_is_too_large_is_a_problem_and_not_read() -> None:
    found = read_content(b"---\nname: a\n" + b"x" * LIMIT_BYTES, ORIGIN)
    assert isinstance(found, DefinitionProblem)
    assert "256 KiB" in found.message


@pytest.mark.rule("agents")
def test_ten_megabytes_of_front_matter_are_a_problem_with_the_file() -> None:
    found = read_definition("---\nname: a\ndescription: b\nnotes: " + "word " * 2_000_000 + "\n---\n", ORIGIN)
    assert isinstance(found, DefinitionProblem)
    assert found.path == "agent.md"


@pytest.mark.rule("agents")
def test_front_matter_above_the_bound_never_reaches_yaml() -> None:
    script = """
import sys
from deputy.agents.definition import DefinitionOrigin
from deputy.agents.read_definition import read_definition
text = "---\\nname: a\\ndescription: b: c\\nnotes: " + "word " * 20_000 + "\\ntools: Read\\n---\\nGo."
problem = read_definition(text, DefinitionOrigin(path="a.md", file_name="a"))
assert (problem.path, problem.line) == ("a.md", 2), problem
assert "64 KiB" in problem.message, problem
assert "yaml" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_lone_surrogates_do_not_reach_the_definition(read) -> None:
    agent = read("---\nname: a\ud800\ndescription: b\n---\n")
    assert agent.name.encode()


def test_many_warnings_are_cut_short(read) -> None:
    agent = read("---\nname: a\ndescription: b: c\ntools: Read\n" + "stray\n" * 500 + "---\n")
    assert len(agent.warnings) == 21
    assert "more warnings" in agent.warnings[-1].message


@pytest.mark.parametrize(
    ("front", "tools"),
    [
        ("tools: '*'\npermission: {'*': deny, read: allow}", ("read",)),
        ("tools: read, edit\npermission: {'*': deny, read: allow}", ("read",)),
        ("tools: Read, Write\ndisallowedTools: '*'", ()),
        ("disallowedTools: all", ()),
        ("disallowedTools: []", None),
        ("permission: deny", ()),
    ],
)
def test_what_one_key_withholds_no_other_key_grants(read, front: str, tools: tuple[str, ...] | None) -> None:
    assert read(f"---\nname: a\ndescription: b\n{front}\n---\n").tools == tools


def test_a_rule_in_the_body_does_not_close_front_matter_that_was_never_opened(read) -> None:
    agent = read("name: a\ndescription: b\n\nYou are a.\n\n---\n\nThe end.\n")
    assert (agent.description, agent.prompt) == ("b", "You are a.\n\n---\n\nThe end.")


@pytest.mark.parametrize("text", ["Description: what lies in this folder.\n", "title: x\n", "Some text\nname: x\n"])
def test_a_page_that_only_resembles_a_definition_is_a_problem(text: str) -> None:
    assert isinstance(read_definition(text, ORIGIN), DefinitionProblem)


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_a_line_end_that_only_yaml_knows_moves_nothing(read, separator: str) -> None:
    agent = read(f"---\nname: a{separator}b\ndescription: c # d\n---\n")
    assert (agent.name, agent.description) == ("a b", "c # d")
    assert [warning.line for warning in agent.warnings] == [3]


def test_a_list_without_end_is_left_to_the_forgiving_reader(read) -> None:
    agent = read(f"---\nname: a\ndescription: b\nskills: [{'x, ' * 10_000}]\ntools: Read\n---\n")
    assert (agent.name, agent.description, agent.tools) == ("a", "b", ("Read",))
    assert "too many values" in agent.warnings[0].message
