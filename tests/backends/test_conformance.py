import asyncio

import pytest
from tests.backends.conftest import MODELS, FakeStage

from deputy.testing.backend_suite import CASES, leave_in_the_middle, play


@pytest.mark.rule("cli")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_script_comes_to_the_same_end(case, name, programs, environ, workspace):
    ends = asyncio.run(play(case, FakeStage(name, programs, environ), workspace))
    assert len(ends) == len(case.ends)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_is_cancelled_leaves_nothing(name, programs, environ, workspace):
    asyncio.run(leave_in_the_middle(FakeStage(name, programs, environ), workspace))
