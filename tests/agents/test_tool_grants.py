from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.every_case import every_case

from deputy.agents.tool_grants import ToolGrants, read_grants, read_permission

WORDS = st.text(max_size=20) | st.sampled_from(["*", "deny", "allow", "ask", "true", "false", "all", "Read, Grep", ""])
RAW = st.recursive(
    WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.rule("agents")
@every_case(
    ("value", "tools"),
    [
        ("Read, Grep", ("Read", "Grep")),
        ("Read,Grep ,  Glob,", ("Read", "Grep", "Glob")),
        ("Agent(a, b), Bash(git log:*, git diff:*)", ("Agent(a, b)", "Bash(git log:*, git diff:*)")),
        ("mcp__docs__*, *", ("mcp__docs__*", "*")),
        ("[Read, 'Grep', `Glob`", ("Read", "Grep", "Glob")),
        (["Read", "Grep, Glob"], ("Read", "Grep", "Glob")),
        ([], ()),
        ("", ()),
        ("none", ()),
        ("ALL", ("*",)),
        ("inherit", None),
        ({"read": "true", "write": "false"}, ("read",)),
        ({"write": "false"}, None),
        ({"*": "false"}, ()),
        ({}, ()),
    ],
)
def test_tools_are_read_from_every_shape(value, tools) -> None:
    assert read_grants(value).tools == tools


def test_a_map_of_falses_withholds_them_and_inherits_the_rest() -> None:
    assert read_grants({"write": "false", "edit": "no"}) == ToolGrants(tools=None, withheld=("write", "edit"))


def test_a_verdict_that_is_neither_true_nor_false_grants_nothing() -> None:
    assert read_grants({"bash": "maybe"}).withheld == ("bash",)
    assert read_grants({"bash": ["true"]}).withheld == ("bash",)


@every_case(
    ("value", "tools", "withheld"),
    [
        ({"edit": "deny", "bash": "ask"}, None, ("edit",)),
        ({"bash": {"*": "deny", "ls": "allow"}}, None, ()),
        ({"*": "deny", "read": "allow"}, ("read",), ()),
        ({"read": "allow", "*": "deny"}, (), ()),
        ({"*": "deny", "read": "allow", "edit": "deny"}, ("read",), ("edit",)),
        ({"*": "allow", "edit": "deny"}, None, ("edit",)),
        ("deny", (), ()),
        ("allow", None, ()),
        ({"bash": {"*": "deny", "rm": "deny"}}, None, ("bash",)),
        ({"edit": "perhaps"}, None, ("edit",)),
        ({"*": "perhaps"}, (), ()),
        ({"*": {"git *": "deny"}}, (), ()),
    ],
)
def test_a_permission_withholds_what_it_denies_outright(value, tools, withheld) -> None:
    assert (read_permission(value).tools, read_permission(value).withheld) == (tools, withheld)


@pytest.mark.parametrize("value", [["deny"], "edit: deny", ""])
def test_a_permission_that_is_not_understood_grants_nothing_and_says_so(value) -> None:
    assert read_permission(value).tools == ()
    assert read_permission(value).forgiven


@given(RAW)
def test_no_value_raises_and_no_name_is_blank(value) -> None:
    for grants in (read_grants(value), read_permission(value)):
        assert all(name for name in (*(grants.tools or ()), *grants.withheld))
