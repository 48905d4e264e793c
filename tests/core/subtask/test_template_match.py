import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy.core.subtask.subtask_request import SubtaskRequest
from deputy.core.subtask.template import ATOMIC, Template, TemplateInput, check_inputs, filled
from deputy.core.subtask.template_match import TemplateIndex

WORDS = ("verify", "code", "test", "security", "write", "docs", "log", "parse", "config", "review", "plan", "cache")


def template(
    name: str, kind: str = "verification", description: str = "Verify generated code.", **more: object
) -> Template:
    return Template(name=name, type=kind, description=description, **more)  # pyright: ignore


def ask(kind: str, description: str = "", hints: tuple[str, ...] = ()) -> SubtaskRequest:
    return SubtaskRequest(type=kind, description=description, template_hints=hints)


@pytest.mark.rule("subtask.template")
def test_a_template_is_found_by_type_by_hints_and_by_description() -> None:
    index = TemplateIndex(
        [
            template("checker"),
            template("writer", "writing", "Write documentation pages.", hints=("docs",)),
            template("auditor", "audit", "Look for security holes in network code."),
        ]
    )
    assert _found(index, ask("audit", "whatever")) == "auditor"
    assert _found(index, ask("unheard", "something else", ("docs",))) == "writer"
    assert _found(index, ask("unheard", "look for security holes")) == "auditor"
    assert _found(index, ask("unheard", "bake a cake")) is None


@pytest.mark.rule("subtask.template")
def test_ties_go_to_the_first_name_whatever_the_order_of_registering() -> None:
    both = [template("b"), template("a"), template("c")]
    for seed in range(5):
        random.Random(seed).shuffle(both)
        assert _found(TemplateIndex(both), ask("verification", "Verify generated code.")) == "a"


@pytest.mark.rule("subtask.template")
def test_only_atomic_templates_take_part() -> None:
    index = TemplateIndex([template("flow", "sequential"), template("one", ATOMIC)])
    assert len(index) == 1
    assert _found(index, ask("sequential", "Verify generated code.")) == "one"


@st.composite
def _collections(random_string: st.DrawFn) -> tuple[list[Template], SubtaskRequest]:
    text = st.lists(st.sampled_from(WORDS), min_size=0, max_size=6).map(" ".join)
    kinds = st.sampled_from(["a", "b", ATOMIC])
    hints = st.lists(st.sampled_from(WORDS), max_size=2).map(tuple)
    count = random_string(st.integers(0, 40))
    templates = [
        template(f"t{index:02}", random_string(kinds), random_string(text), hints=random_string(hints))
        for index in range(count)
    ]
    return templates, SubtaskRequest(
        type=random_string(kinds), description=random_string(text), template_hints=random_string(hints)
    )


@pytest.mark.rule("subtask.template")
@given(_collections())
def test_the_index_finds_what_looking_at_every_template_finds(case: tuple[list[Template], SubtaskRequest]) -> None:
    templates, request = case
    index = TemplateIndex(templates)
    everyone = index.best(request, max(1, len(templates)))
    first = index.best(request, 1)
    if first:
        assert (first[0].total, first[0].template.name) == (everyone[0].total, everyone[0].template.name)
    assert [score.total for score in everyone] == sorted((score.total for score in everyone), reverse=True)


def test_missing_and_mistyped_inputs_are_reported_together() -> None:
    wanting = template(
        "t",
        inputs=(
            TemplateInput(name="code", type="string"),
            TemplateInput(name="n", type="integer"),
            TemplateInput(name="x", is_required=False),
        ),
    )
    problems = check_inputs(wanting, {"n": True, "other": 1})
    assert [problem.field for problem in problems] == ["inputs.code", "inputs.n"]
    assert not check_inputs(wanting, {"code": "", "n": 3.0})


def test_inputs_fill_their_places_once_and_the_rest_are_named() -> None:
    text, left = filled(
        "Check {{code}} with {{ style }} and {{unknown}}", {"code": "{{style}}", "style": "care", "n": [1]}
    )
    assert text == "Check {{style}} with care and {{unknown}}"
    assert left == ("n",)


def _found(index: TemplateIndex, request: SubtaskRequest) -> str | None:
    score = index.match(request)
    return None if score is None else score.template.name
