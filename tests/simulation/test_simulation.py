"""The whole engine under random faults: every seed is a delegation to which everything may happen."""

import pytest
from tests.simulation.stage import LocalStage

from deputy.testing.simulation import simulate

SEEDS = 600
GROUPS = 12


@pytest.mark.rule("outcome.total")
@pytest.mark.rule("delegate.order")
@pytest.mark.rule("delegate.cancel")
@pytest.mark.rule("spawn.once")
@pytest.mark.rule("recover")
@pytest.mark.rule("budget")
@pytest.mark.parametrize("group", range(GROUPS))
def test_everything_holds_whatever_happens(group: int):
    for seed in range(group, SEEDS, GROUPS):
        simulate(seed, LocalStage())
