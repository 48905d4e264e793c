"""Which model a request goes to."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.every_case import every_case

from deputy.core.detect import SHIPPED, Route, detect
from deputy.core.detect.model_routing import named_value, resolve, route

pytestmark = pytest.mark.rule("text.model")


@every_case(
    ("alias", "model"),
    [
        ("fast", "composer-1"),
        ("review", "gemini-3-pro"),
        ("analysis", "gpt-5.2"),
        ("reasoning", "opus-4.6-thinking"),
        ("planning", "opus-4.6-thinking"),
        ("sonnet", "sonnet-5.5"),
        ("sonnet-thinking", "sonnet-5.5-thinking"),
        ("opus", "opus-5.5"),
        ("haiku", "haiku-5.5"),
        ("gemini-3.0-pro", "gemini-3-pro"),
        ("gemini-3-pro", "gemini-3-pro"),
        ("Fast", "composer-1"),
        ("Who-Knows-7", "Who-Knows-7"),
    ],
)
def test_an_alias_stands_for_a_model_and_an_unknown_name_for_itself(alias: str, model: str) -> None:
    assert resolve(alias, SHIPPED) == model


@every_case(
    ("task", "model", "source"),
    [
        ("a code review", "gemini-3-pro", "heuristic"),
        ("a code\naudit", "gemini-3-pro", "heuristic"),
        ("assess the security", "gemini-3-pro", "heuristic"),
        ("implement and evaluate", "gpt-5.2", "heuristic"),
        ("Troubleshoot!", "opus-4.6-thinking", "heuristic"),
        ("review the code", "composer-1", "default"),
        ("redesigned", "composer-1", "default"),
        ("", "composer-1", "default"),
    ],
)
def test_words_of_the_task_decide_when_no_model_is_named(task: str, model: str, source: str) -> None:
    assert route(None, task, SHIPPED) == (model, source)


@every_case("said", ["{model}", "{{models.fix}}", "${M}", "$M", "<model>", "…", "...", "", "  ", None, "%s", "x" * 300])
def test_a_placeholder_names_no_model(said: str | None) -> None:
    assert named_value(said) is None


@pytest.mark.parametrize("said", ["opus", " opus ", '"opus"', "`opus`", "**opus**"])
def test_a_name_is_read_without_what_surrounds_it(said: str) -> None:
    assert named_value(said) == "opus"


def test_the_tables_are_data() -> None:
    tables = msgspec.structs.replace(
        SHIPPED,
        aliases={**SHIPPED.aliases, "cheap": "acme-1"},
        routes=(Route(words=("security",), model="cheap"), *SHIPPED.routes),
        default_model="fast",
    )
    assert route("Cheap", "", tables) == ("acme-1", "explicit")
    assert route(None, "security first", tables) == ("acme-1", "heuristic")
    assert route(None, "nothing special", tables) == ("composer-1", "default")


@every_case(
    ("text", "model", "prompt"),
    [
        ("Use a subagent using opus to paint.", "opus", "paint."),
        ("Delegate this to claude-sonnet-4-5: paint the fence.", "claude-sonnet-4-5", "paint the fence."),
        ("Please delegate to haiku: paint the fence.", "haiku", "paint the fence."),
        ("Please use a subagent (opus) to paint the fence.", "opus", "paint the fence."),
        ("Please use a subagent to paint the fence via openai:gpt-5.2.", "openai:gpt-5.2", "paint the fence."),
        ("Use a subagent to paint the fence (model: reasoning).", "reasoning", "paint the fence."),
        ("Use a subagent with model sonnet-thinking to paint the fence.", "sonnet-thinking", "paint the fence."),
        ("Use a subagent on the review model to paint the fence.", "review", "paint the fence."),
        ("Use a subagent (model: {{m}}) to paint the fence.", None, "(model: {{m}}) to paint the fence."),
        ("Use a subagent to read it all with review marks.", None, "read it all with review marks."),
        ("Use a subagent with care to paint the fence fast.", None, "with care to paint the fence fast."),
    ],
)
def test_a_person_names_a_model_in_passing(text: str, model: str | None, prompt: str) -> None:
    (request,) = detect(text)
    assert (request.model, request.prompt) == (model, prompt)
