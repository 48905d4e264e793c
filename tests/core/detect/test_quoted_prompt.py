"""Requests in prose, beyond what the corpus shows."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.every_case import every_case

from deputy.core.detect import SHIPPED, detect

QUOTED = '\n\n"Do it well."\n'

pytestmark = pytest.mark.rule("text.prose")


@every_case(
    "trigger",
    [
        "**Try to use Task tool to spawn a subprocess:**",
        "Try to use Task tool to spawn a subprocess:",
        "try to use the task tool to spawn a subagent:",
        "**Try to use Task tool** to spawn a subprocess:",
        "1. Try to use Task tool to spawn a subprocess using Advanced Elicitation:",
        "> Try to use Task tool\n> to spawn a subprocess:",
        "First load the file. Then try to use `Task` tool with a sub-agent for it :",
        "### Try to use Task tool with sub-agent:",
        "Essaie d'utiliser l'outil Task avec un sous-agent :",
        "**Tentez d’utiliser l’outil Task\npour créer un sous-processus :**",
    ],
)
def test_a_line_is_a_trigger(trigger: str) -> None:
    assert [request.prompt for request in detect(trigger + QUOTED)] == ["Do it well."]


@every_case(
    "trigger",
    [
        "Try to use Task tool to spawn a subprocess.",
        "Try to use Task tool\n\nto spawn a subprocess:",
        "Never try to use Task tool to spawn a subprocess:",
        "You must not\ntry to use Task tool to spawn a subprocess:",
        "Try to use Task tool " + "x" * 500 + " to spawn a subprocess:",
        "Try to use Task tools to spawn a subprocess:",
    ],
)
def test_a_line_is_no_trigger(trigger: str) -> None:
    assert detect(trigger + QUOTED) == ()


TRIGGER = "Try to use Task tool to spawn a subprocess"


@every_case(
    ("text", "prompt"),
    [
        (f"{TRIGGER}:\n\n> Review the code\n> and the tests.\n\nThen go on.", "Review the code\nand the tests."),
        (f"{TRIGGER}:\n'Review the code\nand don't stop.'\n\nOther 'text'.", "Review the code\nand don't stop."),
        (f'{TRIGGER}: "Review the code:\nall of it."\n\nMore "text".', "Review the code:\nall of it."),
        (f"{TRIGGER}: 'Review the code.'\n", "Review the code."),
        (f"**{TRIGGER}:** Review the code.\n\nMore.", "Review the code."),
        (f"{TRIGGER} [model: opus]: Review the code.", "Review the code."),
    ],
)
def test_a_prompt_may_be_a_blockquote_in_single_quotes_or_on_the_trigger_line(text: str, prompt: str) -> None:
    (request,) = detect(text)
    assert (request.pattern, request.prompt) == ("prose", prompt)
    assert request.model == ("opus" if "opus" in text else None)


def test_an_apostrophe_at_the_start_of_a_line_opens_no_prompt() -> None:
    assert detect(f"{TRIGGER}:\n\n'Tis a long way\n\nto go") == ()


def test_the_quote_opens_before_the_next_heading_and_not_too_far_away() -> None:
    trigger = "Try to use Task tool with sub-agent:\n\n"
    assert detect(trigger + "Like this:" + QUOTED) != ()
    assert detect(trigger + "# Next" + QUOTED) == ()
    assert detect(trigger + "word " * 200 + QUOTED) == ()


def test_a_prompt_on_lines_of_its_own_may_have_its_quotes_apart() -> None:
    (request,) = detect('Try to use Task tool with sub-agent:\n"\nDo it well.\n"\n"More"\n')
    assert request.prompt == "Do it well."


def test_an_unclosed_prompt_ends_before_the_next_heading() -> None:
    (request,) = detect('Try to use Task tool with sub-agent:\n\n"Do it well.\n\n# Next\n\nSomething.')
    assert request.prompt == "Do it well."


def test_the_indentation_inside_of_a_prompt_stays() -> None:
    (request,) = detect('  Try to use Task tool with sub-agent:\n\n  "Do:\n    - a\n      - b\n  End."\n')
    assert request.prompt == "Do:\n  - a\n    - b\nEnd."


@pytest.mark.rule("text.degradation")
@every_case(
    ("after", "expected"),
    [
        ("**Graceful degradation (if no Task tool):**\n- a\n- b\n\nNo more.", "- a\n- b"),
        ("**Graceful degradation:** do it here.\n\nNo more.", "do it here."),
        ("**Graceful degradation**: do it here.", "do it here."),
        ("Graceful degradation:\n\n1. a\n\n2. b\n\n**Next:**", "1. a\n\n2. b"),
        ("## Graceful degradation\n\na\n\n### sub\n\nb\n\n## Next\n\nc", "a\n\n### sub\n\nb"),
        ("### 2. Graceful Degradation (if Task tool unavailable)\na\n# Next", "a"),
        ("If no Task tool, do it here.\n\nNo more.", "do it here."),
        ("Show it. If the Task tool is not available, do it here.", "do it here."),
        ("**If no Task tool is available:**\n- a\n\n**Also:**\n- b\n\n# Next", "- a"),
        ("Si l'outil Task n'est pas disponible, fais-le ici.", "fais-le ici."),
        ("### Dégradation élégante (si pas d'outil Task)\n\nIci.", "Ici."),
        ("- Graceful degradation was used", None),
        ("We like graceful degradation: it helps.", None),
        ("Nothing of that kind.", None),
    ],
)
def test_degradation_instructions_are_found(after: str, expected: str | None) -> None:
    (request,) = detect(f"Try to use Task tool with sub-agent:{QUOTED}\n{after}\n")
    assert request.degradation == expected


@pytest.mark.rule("text.degradation")
def test_degradation_instructions_stay_out_of_the_prompt_for_a_subagent() -> None:
    (request,) = detect(f"Try to use Task tool with sub-agent:{QUOTED}\nIf no Task tool, sing a song.\n")
    assert request.degradation == "sing a song."
    assert "song" not in request.normalized


def test_further_phrases_are_a_matter_of_data() -> None:
    text = f"Versuche das Task-Werkzeug mit einem Helfer:{QUOTED}\n**Notfalls:**\n- hier\n"
    tables = msgspec.structs.replace(
        SHIPPED,
        triggers=(*SHIPPED.triggers, "versuche das task-werkzeug"),
        purposes=(*SHIPPED.purposes, "mit [einem] helfer"),
        degradations=(*SHIPPED.degradations, "notfalls"),
    )
    assert detect(text) == ()
    (request,) = detect(text, tables)
    assert (request.prompt, request.degradation) == ("Do it well.", "- hier")
