from typing import Any

import pytest
from msgspec import structs
from tests.support.every_case import every_case

from deputy.core.conversation import AssistantMessage, Message, Text, ToolCall, ToolMessage, ToolResult, UserMessage
from deputy.core.subtask.context_passing import (
    EarlierResult,
    PassedFile,
    brief,
    compose,
    message_text,
    query_of,
    wants_ranking,
)
from deputy.core.subtask.context_settings import (
    ContextSettings,
    PartialContextSettings,
    PassedContext,
    resolve_settings,
)
from deputy.core.subtask.relevance import rank
from deputy.core.subtask.subtask_request import SubtaskRequest
from deputy.core.subtask.template import DEFAULT, Template

REQUEST = SubtaskRequest(type="verification", description="Verify the retry limit.", inputs={"limit": 3})
TASK = '## Task\n\nVerify the retry limit.\n\n## Inputs\n\n```json\n{\n  "limit": 3\n}\n```'
CONVERSATION = (
    UserMessage(text="Make the client."),
    AssistantMessage(
        parts=(Text(text="I set the retry limit."), ToolCall(id="1", name="Read", arguments={"path": "a.py"}))
    ),
    ToolMessage(results=(ToolResult(call_id="1", name="Read", content="colours = 7"),)),
)
EARLIER = (EarlierResult(type="research", notes=("Three is usual.",), output="A long report."),)
MATCHING = (PassedFile(path="retry.py", text="limit = 3"),)
FULL = (
    "## Conversation of the parent task\n\n[user]\nMake the client.\n\n"
    '[assistant]\nI set the retry limit.\n(calls Read {"path":"a.py"})\n\n[result of Read]\ncolours = 7'
)
SUBSET = '## Conversation of the parent task\n\n[assistant]\nI set the retry limit.\n(calls Read {"path":"a.py"})'
RESULTS = "## Results of earlier subtasks\n\n### 1. research\n\n- Three is usual."
FRESH = "## Files\n\n### retry.py\n\nlimit = 3"

SEEN: dict[tuple[Any, ...], tuple[str, ...]] = {
    ("full", False, "disabled"): (FULL, TASK),
    ("full", True, "disabled"): (FULL, RESULTS, TASK),
    ("subset", False, "disabled"): (SUBSET, TASK),
    ("subset", True, "disabled"): (SUBSET, RESULTS, TASK),
    ("none", False, "disabled"): (TASK,),
    ("none", True, "disabled"): (RESULTS, TASK),
    ("none", False, "enabled"): (FRESH, TASK),
    ("none", True, "enabled"): (RESULTS, FRESH, TASK),
}


def settled(inherit: Any, accumulate: bool, fresh: Any, form: Any = None) -> ContextSettings:
    named = PartialContextSettings(
        inherit_context=inherit, accumulate_data=accumulate, fresh_context=fresh, accumulation_format=form
    )
    settings = resolve_settings("subtask", [named])
    assert isinstance(settings, ContextSettings)
    return settings


def composed(
    settings: ContextSettings,
    *,
    conversation: tuple[Message, ...] = CONVERSATION,
    named: tuple[PassedFile, ...] = (),
    bound: int = 10_000,
    **more: Any,
) -> tuple[str, PassedContext]:
    """What a subtask is told, from its parent's side to its own."""
    paths = tuple(file.path for file in named)
    request = structs.replace(REQUEST, file_paths=paths)
    template = more.pop("template", DEFAULT)
    texts = [message_text(message) for message in conversation]
    scores = rank(query_of(request), texts) if wants_ranking(request, template, settings) else []
    is_passed = scores or settings.inherit_context == "full"
    briefing = brief(
        request,
        template,
        settings,
        bound=bound,
        conversation=texts if is_passed else (),
        scores=scores,
        earlier=EARLIER,
    )
    matching = MATCHING if settings.fresh_context == "enabled" else ()
    return compose(briefing, named=named, matching=matching, **more)


@pytest.mark.rule("subtask.context")
@every_case("choice", SEEN)
def test_a_subtask_sees_exactly_what_its_settings_pass(choice: tuple[Any, ...]) -> None:
    prompt, passed = composed(settled(*choice))
    assert prompt == "\n\n".join(SEEN[choice])
    assert passed.messages == {"full": 3, "subset": 1, "none": 0}[choice[0]]
    assert passed.results == choice[1]
    assert passed.files == (("retry.py",) if choice[2] == "enabled" else ())
    assert passed.tokens == len(prompt) // 4


@pytest.mark.rule("subtask.context")
def test_results_are_passed_in_the_format_that_was_chosen() -> None:
    prompt, _ = composed(settled("none", True, "disabled", "full_output"))
    assert "A long report." in prompt
    assert "Three is usual." not in prompt


@pytest.mark.rule("subtask.files")
def test_named_files_are_always_there_and_are_the_subset() -> None:
    named = (PassedFile(path="a.py", text="a"), PassedFile(path="b.py", problem="there is no such file"))
    for choice in SEEN:
        prompt, passed = composed(settled(*choice), named=named)
        assert "### a.py\n\na\n\n### b.py\n\n(there is no such file)" in prompt
        assert passed.files[:1] == ("a.py",)
        assert "b.py: there is no such file" in passed.warnings
        assert ("I set the retry limit." in prompt) == (choice[0] == "full")


@pytest.mark.rule("subtask.size")
def test_what_does_not_fit_is_left_out_and_told_and_the_parents_task_stays() -> None:
    talk = (UserMessage(text="The parent's own task."), *(UserMessage(text=f"{n:04} " + "x" * 400) for n in range(100)))
    prompt, passed = composed(settled("full", False, "disabled"), conversation=talk, bound=1500)
    assert "The parent's own task." in prompt
    assert "0099" in prompt
    assert "0000" not in prompt
    assert passed.tokens <= 1600
    assert passed.messages + passed.messages_left_out == 101
    assert any("omitted" in warning for warning in passed.warnings)
    assert any("of 1,500 tokens" in warning for warning in passed.warnings)


def test_a_template_gives_the_task_its_words_and_inputs_their_places() -> None:
    template = Template(
        name="t", type="x", description="d", prompt="Allow {{limit}}.", return_expectations="A verdict."
    )
    prompt, _ = composed(settled("none", False, "disabled"), template=template)
    assert prompt == "## Task\n\nAllow 3.\n\nVerify the retry limit.\n\n## Expected return\n\nA verdict."


@pytest.mark.rule("untrusted")
def test_what_others_wrote_is_marked_as_data() -> None:
    prompt, _ = composed(
        settled("none", True, "enabled"),
        named=(PassedFile(path="a.py", text="a"),),
        fence=lambda text, source: f"<{source}|{text}>",
    )
    assert "<subtask research|- Three is usual.>" in prompt
    assert "<a.py|a>" in prompt
    assert "<retry.py|limit = 3>" in prompt
