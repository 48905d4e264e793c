import asyncio
import os
from contextlib import asynccontextmanager

import pytest
from msgspec import json, structs
from tests.backends.conftest import ACP_MODELS, MODELS, FakeAcpStage, FakeStage
from tests.backends.native import NativeStage

from deputy.backends.function_backend import FunctionBackend
from deputy.core.model_errors import ModelError
from deputy.engine.ports.backend import ToolUse
from deputy.testing.backend_suite import CASES, leave_in_the_middle, play

STAGES = [f"cli:{name}" for name in MODELS] + [f"acp:{name}" for name in ACP_MODELS]
PLAYED = [
    (case, stage)
    for row, case in enumerate(CASES)
    for column, stage in enumerate(STAGES)
    if (row + column) % 2 == 0 or os.environ.get("DEPUTY_SUITE") == "all"
]
"""Every case on every second program; `make test-backends` plays all pairs."""


@pytest.fixture
def stage(request, programs, environ):
    kind, _, name = request.param.partition(":")
    return {"cli": FakeStage, "acp": FakeAcpStage}[kind](name, programs, environ)


@pytest.mark.rule("cli")
@pytest.mark.parametrize(
    ("case", "stage"), PLAYED, indirect=["stage"], ids=[f"{case.name}-{stage}" for case, stage in PLAYED]
)
def test_the_same_script_comes_to_the_same_end(case, stage, workspace):
    ends = asyncio.run(play(case, stage, workspace))
    assert len(ends) == len(case.ends)


@pytest.mark.parametrize("stage", STAGES, indirect=True)
def test_a_run_that_is_cancelled_leaves_nothing(stage, workspace):
    asyncio.run(leave_in_the_middle(stage, workspace))


def natively(case):
    """A case as our own loop has it: a refused key is no missing login, and a first request that is too long fails."""
    codes = {"PROGRAM_NOT_LOGGED_IN": "BAD_API_KEY", "CONTEXT_EXHAUSTED": "PROMPT_TOO_LONG"}
    kinds = {"CONTEXT_EXHAUSTED": "failed"}
    ends = tuple(
        structs.replace(end, code=codes.get(end.code, end.code), kind=kinds.get(end.code, end.kind))
        for end in case.ends
    )
    return structs.replace(case, ends=ends)


class FunctionStage:
    """Plays cases with an async generator function that does what the script says."""

    model = "python:player"

    @asynccontextmanager
    async def open(self, case, workspace):
        turns = list(case.turns)

        async def player(request):
            while True:
                turn = turns.pop(0)
                if turn.delay_seconds:
                    await asyncio.Event().wait()
                for fault in turn.faults:
                    raise {kind.code.lower(): kind for kind in ModelError.__subclasses__()}[fault]("scripted")
                yield turn.text
                yield turn.usage
                for call in turn.calls:
                    is_denied = call.name not in request.grant.tools
                    if call.name == "Write" and not is_denied:
                        workspace.joinpath(call.arguments["path"]).write_text(call.arguments["content"])
                    yield ToolUse(
                        name=call.name,
                        arguments=json.encode(call.arguments).decode(),
                        may_write=call.name == "Write",
                        is_denied=is_denied,
                        is_error=is_denied,
                    )
                if not turn.calls:
                    return

        yield FunctionBackend(self.model, player)


def as_function(case):
    """A case as a function has it: its errors are those of models."""
    codes = {"PROGRAM_NOT_LOGGED_IN": "BAD_API_KEY"}
    return structs.replace(
        case, ends=tuple(structs.replace(end, code=codes.get(end.code, end.code)) for end in case.ends)
    )


@pytest.mark.parametrize("case", [as_function(case) for case in CASES], ids=lambda case: case.name)
def test_a_function_comes_to_the_same_end(case, workspace):
    ends = asyncio.run(play(case, FunctionStage(), workspace))
    assert len(ends) == len(case.ends)


def test_a_function_that_is_cancelled_leaves_nothing(workspace):
    asyncio.run(leave_in_the_middle(FunctionStage(), workspace))


# One that is overloaded is asked again by us, for as long as its retries last: tests/models has that.
@pytest.mark.rule("ladder")
@pytest.mark.parametrize(
    "case", [natively(case) for case in CASES if case.name != "the provider is overloaded"], ids=lambda case: case.name
)
def test_our_own_loop_comes_to_the_same_end(case, tmp_path, monkeypatch, workspace):
    ends = asyncio.run(play(case, NativeStage(tmp_path, monkeypatch), workspace))
    assert len(ends) == len(case.ends)


def test_our_own_loop_that_is_cancelled_leaves_nothing(tmp_path, monkeypatch, workspace):
    asyncio.run(leave_in_the_middle(NativeStage(tmp_path, monkeypatch), workspace))
