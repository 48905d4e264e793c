import asyncio

import pytest
from msgspec import structs
from tests.backends.conftest import ACP_MODELS, MODELS, FakeAcpStage, FakeStage
from tests.backends.native import NativeStage

from deputy.testing.backend_suite import CASES, leave_in_the_middle, play

STAGES = [f"cli:{name}" for name in MODELS] + [f"acp:{name}" for name in ACP_MODELS]


@pytest.fixture
def stage(request, programs, environ):
    kind, _, name = request.param.partition(":")
    return {"cli": FakeStage, "acp": FakeAcpStage}[kind](name, programs, environ)


@pytest.mark.rule("cli")
@pytest.mark.parametrize("stage", STAGES, indirect=True)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
