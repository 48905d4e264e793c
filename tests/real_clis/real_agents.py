"""The real agents that speak the Agent Client Protocol, against our provider: opt-in, by `make test-real-clis`.

usage: DEPUTY_PROGRAMS=FOLDER pytest tests/real_clis/real_agents.py
"""

import asyncio
import time
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.real_clis.stage import FOLDER, RealStage, adapted, go_on_with_what_is_gone, look_for
from tests.real_clis.stage import MODELS as PROGRAM_MODELS

from deputy.backends.acp import acp_backend
from deputy.core.model_script import ModelScript, ScriptedConversation, ScriptedTurn
from deputy.testing import ProviderServer
from deputy.testing.backend_suite import CASES, ExpectedResult, leave_in_the_middle, play
from deputy.tools.workspace_text_files import WorkspaceTextFiles

MODELS = {**PROGRAM_MODELS, "copilot": "copilot:gpt-5.2", "qwen": "qwen:m1"}
PATIENT = {("the provider is overloaded", name) for name in ("gemini", "opencode", "qwen")}
"""They try again for minutes, which is theirs to decide."""
FORGETFUL = {("it goes on twice", "gemini")}
"""It loses the file of a session that it has loaded once, and says so: the next turn starts afresh."""
TITLES = ('single "title" field', "title generator")
"""How they ask for a title of the conversation, which repeats the task."""


def as_told(case, name):
    """A case with no more usage than an agent tells: gemini nothing of its cache, opencode its last request alone."""
    turns = []
    for turn in case.turns:
        usage = turn.usage
        if name == "gemini":
            usage = msgspec.structs.replace(usage, cached_tokens=0)
        if name == "opencode" and turn.calls:
            usage = msgspec.structs.replace(usage, input_tokens=0, output_tokens=0)
        turns.append(msgspec.structs.replace(turn, usage=usage))
    ends = case.ends
    if (case.name, name) in FORGETFUL:
        ends = (*ends[:-1], ExpectedResult(kind="failed", code="SESSION_GONE"))
    return msgspec.structs.replace(case, turns=tuple(turns), ends=ends)


class LaterMinute:
    """gemini names the file of a session by the minute, and loses what is in it when it loads it in the same one."""

    def __init__(self, backend):
        self._backend = backend

    async def run(self, assignment, emit):
        if assignment.resume is not None:
            await asyncio.sleep(61 - time.time() % 60)
        return await self._backend.run(assignment, emit)


class RealAcpStage(RealStage):
    """Plays cases with a real agent whose provider plays the script."""

    @property
    def model(self):
        return MODELS[self.name]

    @asynccontextmanager
    async def open(self, case, workspace):
        turns = tuple(self._turn(turn, workspace) for turn in case.turns)
        aside = (ScriptedTurn(text="…"),) * 9
        script = ModelScript(
            conversations=(
                *(ScriptedConversation(turns=aside, when=words, times=99) for words in TITLES),
                # A conversation that goes on may be asked again, for something beside the turn.
                ScriptedConversation(turns=turns, when=case.name, times=4),
                ScriptedConversation(turns=aside, times=99),
            )
        )
        async with ProviderServer(script, strict=False) as provider:
            backend = self.backend(provider)
            yield LaterMinute(backend) if self.name == "gemini" else backend

    def backend(self, provider):
        return acp_backend(self.name, self.environ(provider), WorkspaceTextFiles)


@pytest.mark.parametrize("name", MODELS)
def test_it_is_found_with_its_version(name, home):
    ready = asyncio.run(look_for(RealAcpStage(name, home)))
    print(f"acp:{name} {ready.version}")
    assert ready.version
    assert ready.path.startswith(str(FOLDER))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_script_comes_to_the_same_end(case, name, home, workspace):
    case = adapted(as_told(case, name), name, PATIENT)
    ends = asyncio.run(play(case, RealAcpStage(name, home), workspace))
    print(f"acp:{name} {case.name}: {[(end.kind, end.usage, end.context) for end in ends]}")
    assert all(end.own_session is not None or end.kind == "failed" for end in ends)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_is_cancelled_leaves_nothing(name, home, workspace):
    asyncio.run(leave_in_the_middle(RealAcpStage(name, home), workspace))


@pytest.mark.parametrize("name", MODELS)
def test_a_session_that_is_gone_says_so(name, home, workspace):
    end = asyncio.run(go_on_with_what_is_gone(RealAcpStage(name, home), workspace))
    assert (end.kind, end.error.code, end.is_resumable) == ("failed", "SESSION_GONE", False)
