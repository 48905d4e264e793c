"""The real programs against our own provider on loopback: opt-in, by `make test-real-clis`, which installs them.

usage: DEPUTY_PROGRAMS=FOLDER pytest tests/real_clis/real_programs.py
"""

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest
from tests.real_clis.stage import (
    FOLDER,
    MODELS,
    START_SECONDS,
    RealStage,
    adapted,
    go_on_with_what_is_gone,
    look_for,
)

from deputy.backends.cli import cli_backend
from deputy.core.model_script import ScriptedTurn
from deputy.engine.ports.backend import BackendRequest
from deputy.testing import ProviderServer
from deputy.testing.backend_suite import CASES, leave_in_the_middle, play

PATIENT = {("the provider is overloaded", "gemini"), ("the provider is overloaded", "opencode")}
"""They try again for minutes, which is theirs to decide."""


@pytest.mark.parametrize("name", MODELS)
def test_it_is_found_with_its_version(name, home):
    ready = asyncio.run(look_for(RealStage(name, home)))
    print(f"{name} {ready.version}")
    assert ready.version
    assert ready.path.startswith(str(FOLDER))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_script_comes_to_the_same_end(case, name, home, workspace):
    case = adapted(case, name, PATIENT)
    ends = asyncio.run(play(case, RealStage(name, home), workspace))
    # opencode tells its session only with its first words.
    assert all(end.own_session is not None or end.kind == "failed" or name == "opencode" for end in ends)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_is_cancelled_leaves_nothing(name, home, workspace):
    asyncio.run(leave_in_the_middle(RealStage(name, home), workspace))


@pytest.mark.parametrize("name", MODELS)
def test_a_session_that_is_gone_says_so(name, home, workspace):
    end = asyncio.run(go_on_with_what_is_gone(RealStage(name, home), workspace))
    assert (end.kind, end.error.code, end.is_resumable) == ("failed", "SESSION_GONE", False)


@pytest.mark.parametrize("name", MODELS)
def test_a_program_without_a_login_says_so(name, home, workspace):
    async def try_it():
        async with ProviderServer(strict=False) as provider:
            environ = RealStage(name, home).environ(provider)
            kept = {key: value for key, value in environ.items() if not key.endswith("_API_KEY")}
            kept["OPENCODE_CONFIG_CONTENT"] = "{}"
            (home / ".gemini/settings.json").unlink()
            model = "anthropic:claude-sonnet-5-5" if name == "opencode" else MODELS[name]
            assignment = BackendRequest(
                session_id="sess_1_out", prompt="x", model=model, workspace=str(workspace), seconds=START_SECONDS
            )
            return await cli_backend(name, kept).run(assignment, lambda _: None)

    end = asyncio.run(try_it())
    # opencode has no models of a provider that it has no key for.
    wanted = "MODEL_NOT_FOUND" if name == "opencode" else "PROGRAM_NOT_LOGGED_IN"
    assert (end.kind, end.error.code) == ("failed", wanted)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_another_process_ends_has_crashed(name, number, home, workspace):
    case = msgspec.structs.replace(CASES[0], turns=(ScriptedTurn(text="Late.", delay_seconds=60),), name="it is ended")

    async def end_it():
        async with RealStage(name, home).open(case, workspace) as backend:
            assignment = BackendRequest(
                session_id="sess_3_ended", prompt=case.name, model=MODELS[name], workspace=str(workspace), seconds=25
            )
            running = asyncio.ensure_future(backend.run(assignment, lambda _: None))
            await asyncio.wait({running}, timeout=8)
            for pid in of_session("sess_3_ended"):
                os.kill(pid, number)
            return await running

    end = asyncio.run(end_it())
    print(f"{name} {number.name}: {end.kind} {end.error.code} {end.error.message[:150]}")
    assert end.kind in ("failed", "limited")
    # gemini ends well while it starts, and not at all later on.
    assert end.error.code in ("PROGRAM_CRASHED", "TIMEOUT", *(("EMPTY_REPLY",) if name == "gemini" else ()))


def of_session(session):
    """The processes of a run, the one that watches over them left aside."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                environ, command = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
            except OSError:
                continue
            if f"DEPUTY_CALL={session}".encode() in environ and b"reaper.py" not in command:
                yield int(process.name)
