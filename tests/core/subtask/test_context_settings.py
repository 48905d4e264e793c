from itertools import product

import pytest
from tests.support.every_case import every_case

from deputy.core.field_readers import FieldProblem
from deputy.core.subtask.context_settings import (
    STANDARD,
    SUBTASK,
    ContextSettings,
    PartialContextSettings,
    defaults_of,
    read_settings,
    resolve_settings,
)

COMBINATIONS = list(product(("full", "subset", "none"), (True, False), ("enabled", "disabled")))


def named(inherit: str, accumulate: bool, fresh: str) -> PartialContextSettings:
    return PartialContextSettings(inherit_context=inherit, accumulate_data=accumulate, fresh_context=fresh)  # pyright: ignore


@pytest.mark.rule("subtask.context")
@every_case(("inherit", "accumulate", "fresh"), COMBINATIONS)
def test_fresh_context_is_never_given_beside_the_parents(inherit: str, accumulate: bool, fresh: str) -> None:
    settled = resolve_settings("subtask", [named(inherit, accumulate, fresh)])
    if fresh == "enabled" and inherit != "none":
        assert isinstance(settled, FieldProblem)
        assert "subtask.context" in settled.message
    else:
        assert isinstance(settled, ContextSettings)
        assert (settled.inherit_context, settled.accumulate_data, settled.fresh_context) == (inherit, accumulate, fresh)


@pytest.mark.rule("subtask.context")
def test_defaults_follow_the_subtype() -> None:
    assert defaults_of("standard") == STANDARD
    assert defaults_of("subtask") == defaults_of("anything") == SUBTASK
    assert resolve_settings("subtask", []) == SUBTASK


@pytest.mark.rule("subtask.context")
def test_the_request_wins_over_the_template_and_the_template_over_the_default() -> None:
    template = PartialContextSettings(accumulate_data=True, accumulation_format="full_output")
    request = PartialContextSettings(accumulate_data=False)
    settled = resolve_settings("subtask", [template, request])
    assert isinstance(settled, ContextSettings)
    assert (settled.accumulate_data, settled.accumulation_format) == (False, "full_output")


@pytest.mark.rule("subtask.context")
@pytest.mark.parametrize("inherit", ["full", "subset"])
def test_asking_for_the_parents_context_alone_turns_fresh_context_off(inherit: str) -> None:
    wanted = PartialContextSettings(inherit_context=inherit)  # pyright: ignore
    settled = resolve_settings("subtask", [PartialContextSettings(fresh_context="enabled"), wanted])
    assert isinstance(settled, ContextSettings)
    assert settled.fresh_context == "disabled"


@pytest.mark.rule("subtask.context")
def test_asking_for_fresh_context_does_not_drop_what_a_template_inherits() -> None:
    settled = resolve_settings(
        "subtask", [PartialContextSettings(inherit_context="full"), PartialContextSettings(fresh_context="enabled")]
    )
    assert isinstance(settled, FieldProblem)


@pytest.mark.rule("subtask.context")
def test_passing_nothing_is_legal_and_warned_of() -> None:
    for inherit, accumulate, fresh in COMBINATIONS:
        settled = resolve_settings("subtask", [named(inherit, accumulate, fresh)])
        if isinstance(settled, ContextSettings):
            is_bare = (inherit, accumulate, fresh) == ("none", False, "disabled")
            assert bool(settled.warning(has_files=False)) == is_bare
            assert settled.warning(has_files=True) == ""


def test_settings_are_read_as_files_spell_them() -> None:
    problems: list[FieldProblem] = []
    read = read_settings({"accumulate_data": "TRUE", "inherit_context": "none"}, "at", problems)
    assert (read, problems) == (PartialContextSettings(accumulate_data=True, inherit_context="none"), [])


def test_every_wrong_setting_is_named() -> None:
    problems: list[FieldProblem] = []
    read_settings(
        {"inherit_context": "some", "accumulate_data": 1, "accumulation_format": [], "fresh_context": True, "x": 0},
        "context_management",
        problems,
    )
    assert [problem.field.removeprefix("context_management.") for problem in problems] == [
        "x",
        "inherit_context",
        "accumulate_data",
        "accumulation_format",
        "fresh_context",
    ]
