"""The same script on every backend, through the whole flow: the same outcomes, the same events, the same checks."""

import asyncio
import os
from contextlib import contextmanager

import pytest
from msgspec import Struct, structs
from tests.support.programs import install_fake_programs

from deputy.backends.acp.known_agents import AGENTS
from deputy.client import Deputy
from deputy.core.conversation import TokenUsage
from deputy.core.events import Validated
from deputy.core.fallback import SHIPPED_FALLBACK
from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedConversation, ScriptedTurn
from deputy.core.outcome import Blocked, Completed, Failed, Partial
from deputy.core.task import Task
from deputy.testing import ProviderServer

MODELS = {
    "native": "anthropic:claude-sonnet-4-5",
    "cli:claude": "anthropic:claude-sonnet-4-5",
    "cli:codex": "openai:gpt-5.2",
    "cli:gemini": "google:gemini-3.1-pro-preview",
    "cli:opencode": "opencode:anthropic/claude-sonnet-4-5",
    "cli:cursor-agent": "cursor:composer-1",
    "acp:claude": "anthropic:claude-sonnet-4-5",
    "acp:codex": "openai:gpt-5.2",
    "acp:gemini": "google:gemini-3.1-pro-preview",
    "acp:opencode": "opencode:anthropic/claude-sonnet-4-5",
    "acp:copilot": "copilot:gpt-5.2",
    "acp:qwen": "qwen:qwen3-coder-plus",
}
"""Every backend, by a model that it has."""
STRICT = (
    '{"status": "completed", "summary": "So.", "artifacts": [], '
    '"metadata": {"session_id": "{session_id}", "agent_type": "task:case"}}'
)
INVALID = ("Return is not valid JSON",)
WRITING = ("Read", "Grep", "Glob", "Edit", "Write", "Run")


class Case(Struct, frozen=True, kw_only=True):
    """A script, and what comes of it on whatever backend."""

    name: str
    turns: tuple[ScriptedTurn, ...]
    kind: type = Completed
    report: str = ""
    code: str = ""
    events: tuple[str, ...] = ("started", "text", "tokens", "completed")
    """What is told of it, in order, each thing once however often in a row."""
    checks: tuple[tuple[str, ...], ...] = ()
    """What was found wrong with each return."""
    return_format: str = "text"
    tools: tuple[str, ...] = ("Read", "Grep", "Glob")
    answer: str = ""
    """What a question is answered, for a second round."""

    @property
    def reported(self) -> tuple[ScriptedTurn, ...]:
        """The turns with usage that is plausible for what they are sent."""
        return tuple(
            structs.replace(turn, usage=TokenUsage(input_tokens=1500, output_tokens=20)) for turn in self.turns
        )


READS = ScriptedCall(name="Read", arguments={"path": "notes.txt"})
WRITES = ScriptedCall(name="Write", arguments={"path": "made.txt", "content": "made\n"})
CASES = (
    Case(name="it answers", turns=(ScriptedTurn(text="Hello."),), report="Hello."),
    Case(
        name="it reads",
        turns=(ScriptedTurn(text="I look.", calls=(READS,)), ScriptedTurn(text="Milk.")),
        report="Milk.",
        events=("started", "text", "tool_call", "text", "completed"),
    ),
    Case(
        name="it writes",
        turns=(ScriptedTurn(text="I write.", calls=(WRITES,)), ScriptedTurn(text="Written.")),
        report="Written.",
        events=("started", "text", "tool_call", "text", "completed"),
        tools=WRITING,
    ),
    Case(
        name="it asks and is answered",
        turns=(ScriptedTurn(text="Which?\n[AWAITING_HUMAN_INPUT]"), ScriptedTurn(text="That one.")),
        report="That one.",
        answer="the blue one",
        events=("started", "text", "completed", "started", "text", "completed"),
    ),
    Case(
        name="its return holds",
        turns=(ScriptedTurn(text=STRICT),),
        return_format="json",
        checks=((),),
    ),
    Case(
        name="its return is put right",
        turns=(ScriptedTurn(text="It is so."), ScriptedTurn(text=STRICT)),
        return_format="json",
        checks=(INVALID, ()),
    ),
    Case(
        name="its return stays wrong",
        turns=(ScriptedTurn(text="It is so."), ScriptedTurn(text="It is so.")),
        kind=Failed,
        code="INVALID_RETURN",
        return_format="json",
        checks=(INVALID, INVALID),
    ),
    Case(
        name="the context is full",
        turns=(ScriptedTurn(faults=("context_exhausted",) * 9),),
        kind=Partial,
        code="CONTEXT_EXHAUSTED",
        events=("started", "completed"),
    ),
    Case(
        name="the model is not there",
        turns=(ScriptedTurn(faults=("model_not_found",) * 9),),
        kind=Failed,
        code="MODEL_NOT_FOUND",
        events=("started", "completed"),
    ),
)
PLAYED = [
    (case, backend)
    for row, case in enumerate(CASES)
    for column, backend in enumerate(MODELS)
    if backend == "native" or (row + column) % 3 == 0 or os.environ.get("DEPUTY_SUITE") == "all"
]
"""Every case on our own loop and on at least three other backends; `make test-backends` plays all pairs.

What a backend makes of scripts is also proved beneath the flow, by `test_backend_suite.py`.
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home without keys, and a workspace with a file in it."""
    for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("remember the milk\n")
    return tmp_path


@contextmanager
def playing(backend, case, place, monkeypatch, misbehaviour=""):
    """Only this backend is there, and plays this case."""
    kind, _, name = backend.partition(":")
    if kind == "native":
        conversation = ScriptedConversation(turns=case.reported)
        with ProviderServer(ModelScript(conversations=(conversation,)), strict=False) as server:
            for variable, value in server.environ.items():
                monkeypatch.setenv(variable, value)
            yield
        return
    program = AGENTS[name].program.name if kind == "acp" else name
    install_fake_programs(place / "bin", [program]).play(program, case.reported, misbehaviour=misbehaviour)
    alone = {
        provider: [one for one in order if one == backend] for provider, order in SHIPPED_FALLBACK.programs.items()
    }
    settings = "\n".join(f"{provider} = {order}" for provider, order in alone.items())
    (place / ".config" / "deputy").mkdir(parents=True)
    (place / ".config" / "deputy" / "config.toml").write_text(
        f"[fallback]\nany_provider = []\n[fallback.programs]\n{settings}\n"
    )
    yield


async def carried_out(case, backend, place):
    """The outcomes of a case, what was told, and what was found wrong with its returns."""
    seen = []
    task = Task(
        label="case",
        prompt="Do what is to be done.",
        return_format=case.return_format,
        tools=case.tools,
        isolation="none",
    )
    async with Deputy(
        MODELS[backend], workspace=place / "work", home=place / "state", inline=False, watch=seen.append
    ) as deputy:
        [outcome] = await deputy.delegate([task])
        if case.answer:
            assert (type(outcome), outcome.question, outcome.backend) == (Blocked, "Which?", backend)
            outcome = await deputy.resume(outcome.session_id, case.answer)
        records = await deputy._runtime.journal.records(outcome.session_id)
        checks = tuple(record.event.problems for record in records if isinstance(record.event, Validated))
    return outcome, [one.event for one in seen if one.label == "case" and one.event != "fallback"], checks


@pytest.mark.rule("cli")
@pytest.mark.rule("ladder")
@pytest.mark.parametrize(("case", "backend"), PLAYED, ids=lambda value: value if isinstance(value, str) else value.name)
def test_the_same_script_comes_to_the_same_outcome(case, backend, place, monkeypatch):
    with playing(backend, case, place, monkeypatch):
        outcome, events, checks = asyncio.run(carried_out(case, backend, place))
    if case.name == "the context is full" and backend == "native":
        # Our own loop knows that it was the first request: there is nothing to report, and a person can help.
        case = structs.replace(case, kind=Failed, code="PROMPT_TOO_LONG")
    assert (type(outcome), outcome.backend) == (case.kind, backend), outcome
    assert case.report in ("", outcome.report)
    assert (outcome.errors[0].code if outcome.errors else "") == case.code, outcome.errors
    assert checks == case.checks
    assert told(events, case) == case.events
    if case.name == "it writes":
        assert (place / "work" / "made.txt").read_text() == "made\n"
        assert [one.path for one in outcome.artifacts] == ["made.txt"]
    if case.kind is Completed:
        assert (outcome.usage.input, outcome.usage.output) == (1500 * len(case.turns), 20 * len(case.turns))
        assert outcome.usage.requests >= 1


@pytest.mark.rule("usage.estimate")
@pytest.mark.parametrize("backend", [backend for backend in MODELS if backend.startswith("cli:")])
def test_a_program_that_reports_no_usage_is_charged_our_estimate(backend, place, monkeypatch):
    case = CASES[0]
    with playing(backend, case, place, monkeypatch, "reports no usage"):
        outcome, _, _ = asyncio.run(carried_out(case, backend, place))
    assert (type(outcome), outcome.backend, outcome.report) == (Completed, backend, "Hello.")
    assert outcome.usage.estimated
    assert (outcome.usage.input > 0, outcome.usage.requests) == (True, 1)
    assert 0 < outcome.usage.output < 10


def told(events, case):
    """The kinds of events in order, each once in a row; turns that follow at once share their text and their tokens.

    When tokens are counted is each backend's own way, and so are the words in which it tells a provider's failure.
    """
    kept = [event for event in events if event in case.events]
    kinds = " ".join(event for event, before in zip(kept, [None, *kept], strict=False) if event != before)
    return tuple(kinds.replace("text tokens text tokens", "text tokens").split())
