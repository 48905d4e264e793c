"""The prompt of a request."""

from __future__ import annotations

import pytest

from deputy.core.detect import detect
from deputy.core.detect.found_request import ESCALATION, normalize

pytestmark = pytest.mark.rule("text.normal")


def headings(prompt: str) -> list[str]:
    return [line.removeprefix("## ") for line in prompt.split("\n") if line.startswith("## ")]


def test_the_sections_stand_in_their_order() -> None:
    prompt = normalize(system="Be kind.", task="Do it.", context=["a", "b\nc"], output="A list")
    assert headings(prompt) == ["System Instructions", "Escalation Protocol", "Task", "Context", "Expected Output"]
    assert prompt.index("Be kind.") < prompt.index(ESCALATION) < prompt.index("Do it.") < prompt.index("- a\n- b\n  c")
    assert prompt.endswith("A list")


def test_empty_sections_are_left_out_and_the_escalation_protocol_never_is() -> None:
    assert headings(normalize(system=None, task="Do it.", context=[], output=None)) == ["Escalation Protocol", "Task"]


def test_the_escalation_protocol_tells_the_words_to_end_with() -> None:
    assert "\n[AWAITING_HUMAN_INPUT]\n" in ESCALATION


@pytest.mark.parametrize(
    "text",
    [
        "<delegate><system-instructions>Be kind.</system-instructions><prompt>Do it.</prompt></delegate>",
        'Try to use Task tool with sub-agent:\n\n"Do it."',
        "Please use a subagent to do the washing.",
    ],
)
def test_every_pattern_ends_in_such_a_prompt(text: str) -> None:
    (request,) = detect(text)
    assert request.normalized == normalize(
        system=request.system, task=request.prompt, context=request.context, output=request.output
    )
