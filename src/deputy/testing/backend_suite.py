"""Conformance suite of backends: one table of cases for fake programs, real programs and our own loop.

A case is a script of turns, with our tool names, and the expected results. A `BackendStage` opens a backend whose agent
plays the script: a fake program, or a program that talks to a provider on a socket.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec
from msgspec import Struct

from deputy.core.conversation import TextDelta, TokenUsage, ToolCall
from deputy.core.model_script import ScriptedCall, ScriptedTurn
from deputy.core.request import READ_ONLY_TOOLS, Grant
from deputy.engine.ports.backend import Backend, BackendEvent, BackendRequest, BackendResult
from deputy.processes.orphans import TAG, environment_tag

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTES: Final = "notes.txt"
"""A file of the workspace that scripts read; it holds `remember the milk`."""
MADE: Final = "made.txt"
"""A file that scripts write."""
WRITING: Final = READ_ONLY_TOOLS | {"Edit", "Write", "Run"}
MODEL_SECONDS: Final = 60.0


class ExpectedResult(Struct, frozen=True, kw_only=True):
    """The expected result of one run."""

    kind: Literal["answered", "asked", "limited", "failed"]
    text: str | None = None
    code: str = ""
    """The error's code."""
    calls: int | None = 0
    """The number of tool calls; None if not certain."""
    turns: int = 1
    """The number of scripted turns; their usage is the usage of the run."""


class Case(Struct, frozen=True, kw_only=True):
    """A script and the expected results: one for the task, and one for each resume."""

    name: str
    turns: tuple[ScriptedTurn, ...]
    ends: tuple[ExpectedResult, ...]
    tools: frozenset[str] = READ_ONLY_TOOLS
    seconds: float = MODEL_SECONDS
    made: str | None = None
    """The content of the written file; None if there must be none."""
    is_provider_fault: bool = False
    """Whether the provider fails."""


class BackendStage(Protocol):
    """Opens backends whose agent plays a script."""

    @property
    def model(self) -> str:
        """The model to ask for, as `provider:model`."""
        ...

    def open(self, case: Case, workspace: Path) -> AbstractAsyncContextManager[Backend]:
        """A backend that plays a case during the block."""
        ...


class BackendSuiteFailure(AssertionError):
    """A check that failed."""


async def play(case: Case, stage: BackendStage, workspace: Path) -> list[BackendResult]:
    """Play a case and check everything; returns the results for further checks."""
    (workspace / NOTES).write_text("remember the milk")
    ends: list[BackendResult] = []
    session = f"sess_1_{os.getpid()}"
    async with stage.open(case, workspace) as backend:
        for number, expected in enumerate(case.ends):
            request = BackendRequest(
                session_id=session,
                prompt=f"Do what is to be done: {case.name}.",
                system="You are a careful worker.",
                message="And now?" if number else "",
                model=stage.model,
                grant=Grant(tools=case.tools),
                workspace=str(workspace),
                seconds=case.seconds,
                resume=ends[-1].own_session if ends else None,
            )
            events: list[BackendEvent] = []
            end = await backend.run(request, events.append)
            _check_end(end, expected)
            used = case.turns[sum(e.turns for e in case.ends[:number]) :][: expected.turns]
            _check_usage(end, used if expected.kind in ("answered", "asked") else ())
            _check_events(end, events)
            _check_processes(session)
            ends.append(end)
    _check_sessions(ends)
    made = workspace / MADE
    found = made.read_text() if made.exists() else None
    _expect(found == case.made, f"{MADE} holds {found!r} and not {case.made!r}")
    if case.made is None:
        _expect(not any(end.may_have_written for end in ends), "nothing could be written, and yet it may have been")
    return ends


async def leave_in_the_middle(stage: BackendStage, workspace: Path) -> None:
    """Check that a run cancelled during a model call leaves no process."""
    turn = ScriptedTurn(text="Late.", delay_seconds=30)
    case = Case(name="it is cancelled", turns=(turn,), ends=())
    session = f"sess_2_{os.getpid()}"
    async with stage.open(case, workspace) as backend:
        request = BackendRequest(session_id=session, prompt=case.name, model=stage.model, workspace=str(workspace))
        running = asyncio.ensure_future(backend.run(request, lambda _: None))
        await asyncio.wait({running}, timeout=1)
        _expect(not running.done(), "it ended before it was cancelled")
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        _expect(running.cancelled(), "a cancel is never swallowed")
        _check_processes(session)


# --- checks -----------------------------------------------------------------------------------------------------------


def _expect(claim: bool, message: str) -> None:
    if not claim:
        raise BackendSuiteFailure(message)


def _check_end(end: BackendResult, expected: ExpectedResult) -> None:
    _expect(end.kind == expected.kind, f"it came to {end.kind} and not {expected.kind}: {end}")
    code = "" if end.error is None else end.error.code
    _expect(code == expected.code, f"its error is {end.error} and not {expected.code}")
    if end.error is not None:
        _expect(bool(end.error.recommendation), f"nothing is said of what to do: {end.error}")
    _expect(expected.text is None or end.text == expected.text, f"it said {end.text!r} and not {expected.text!r}")
    _expect(expected.calls in (len(end.tools_used), None), f"{expected.calls} tools were used, not {end.tools_used}")
    again = msgspec.json.decode(msgspec.json.encode(end), type=BackendResult)
    _expect(again == end, "an end must come back from a journal as it was")


def _check_usage(end: BackendResult, turns: Sequence[ScriptedTurn]) -> None:
    wanted = [sum(t.usage.input_tokens for t in turns), sum(t.usage.output_tokens for t in turns)]
    if turns:
        if end.usage.estimated:
            _expect(end.usage.input > sum(wanted), f"it used more than {wanted}, and not {end.usage}")
            return
        _expect([end.usage.input, end.usage.output] == wanted, f"it used {wanted}, and not {end.usage}")
        _expect(end.usage.cached == sum(t.usage.cached_tokens for t in turns), f"not what was cached: {end.usage}")


def _check_events(end: BackendResult, events: Sequence[BackendEvent]) -> None:
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    _expect(end.kind != "answered" or said.rstrip().endswith(end.text), f"{end.text!r} was not reported, but {said!r}")
    called = [event.name for event in events if isinstance(event, ToolCall)]
    _expect(called == [use.name for use in end.tools_used], f"not the tools that were reported: {called}")
    text = [event for event in events if isinstance(event, TokenUsage)]
    sums = sum(event.input_tokens for event in text), sum(event.output_tokens for event in text)
    _expect(sums == (end.usage.input, end.usage.output), f"the reported tokens are {sums} and not {end.usage}")


def _check_sessions(ends: Sequence[BackendResult]) -> None:
    ids = {end.own_session.id for end in ends if end.own_session is not None}
    _expect(len(ids) <= 1, f"it went on in another session: {ids}")


def _check_processes(session: str) -> None:
    mark = f"\0{TAG}={environment_tag(session)}".encode()
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdecimal() and mark in b"\0" + (process / "environ").read_bytes():
                raise BackendSuiteFailure(f"process {process.name} is left")


# --- the table --------------------------------------------------------------------------------------------------------

_READ = ScriptedCall(name="Read", arguments={"path": NOTES})
_WRITE = ScriptedCall(name="Write", arguments={"path": MADE, "content": "made\n"})

CASES: Final[tuple[Case, ...]] = (
    Case(
        name="it answers",
        turns=(
            ScriptedTurn(
                text="Hello there.", usage=TokenUsage(input_tokens=1200, output_tokens=340, cached_tokens=1000)
            ),
        ),
        ends=(ExpectedResult(kind="answered", text="Hello there."),),
    ),
    Case(
        name="it reads",
        turns=(ScriptedTurn(text="I look.", calls=(_READ,)), ScriptedTurn(text="It says milk.")),
        ends=(ExpectedResult(kind="answered", text="It says milk.", calls=1, turns=2),),
    ),
    Case(
        name="it wants to write and may not",
        turns=(ScriptedTurn(text="I write.", calls=(_WRITE,)), ScriptedTurn(text="I could not.")),
        ends=(ExpectedResult(kind="answered", text="I could not.", calls=1, turns=2),),
    ),
    Case(
        name="it writes",
        turns=(ScriptedTurn(text="I write.", calls=(_WRITE,)), ScriptedTurn(text="Written.")),
        ends=(ExpectedResult(kind="answered", text="Written.", calls=1, turns=2),),
        tools=WRITING,
        made="made\n",
    ),
    Case(
        name="it asks",
        turns=(ScriptedTurn(text="Which one?\n\n[AWAITING_HUMAN_INPUT]"), ScriptedTurn(text="That one, then.")),
        ends=(ExpectedResult(kind="asked", text="Which one?"), ExpectedResult(kind="answered", text="That one, then.")),
    ),
    Case(
        name="it goes on twice",
        turns=(
            ScriptedTurn(text="One."),
            ScriptedTurn(text="Two.", calls=(_READ,)),
            ScriptedTurn(text="Three."),
            ScriptedTurn(text="Four."),
        ),
        ends=(
            ExpectedResult(kind="answered", text="One."),
            ExpectedResult(kind="answered", text="Three.", calls=1, turns=2),
            ExpectedResult(kind="answered", text="Four."),
        ),
    ),
    Case(
        name="time is up",
        turns=(ScriptedTurn(text="Late.", delay_seconds=30),),
        ends=(ExpectedResult(kind="limited", code="TIMEOUT"),),
        seconds=0.5,
    ),
    Case(
        name="the key is not accepted",
        turns=(ScriptedTurn(faults=("bad_api_key",)),),
        ends=(ExpectedResult(kind="failed", code="PROGRAM_NOT_LOGGED_IN"),),
        is_provider_fault=True,
    ),
    Case(
        name="the context is full",
        turns=(ScriptedTurn(faults=("context_exhausted",)),),
        ends=(ExpectedResult(kind="limited", code="CONTEXT_EXHAUSTED"),),
        is_provider_fault=True,
    ),
    Case(
        name="the model is not there",
        turns=(ScriptedTurn(faults=("model_not_found",)),),
        ends=(ExpectedResult(kind="failed", code="MODEL_NOT_FOUND"),),
        is_provider_fault=True,
    ),
    Case(
        name="the provider is overloaded",
        turns=(ScriptedTurn(faults=("overloaded",)),),
        ends=(ExpectedResult(kind="failed", code="OVERLOADED"),),
        is_provider_fault=True,
    ),
)
"""The cases that every backend must pass."""
