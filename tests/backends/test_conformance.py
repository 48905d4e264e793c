import asyncio

import pytest
from tests.backends.conftest import ACP_MODELS, MODELS, FakeAcpStage, FakeStage

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
