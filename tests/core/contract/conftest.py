"""Tools for the tests of the contract."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from deputy.core.contract import ExpectedReturn

if TYPE_CHECKING:
    from collections.abc import Callable

SESSION = "sess_1767225600_k3x9q2"


@pytest.fixture
def expected() -> ExpectedReturn:
    return ExpectedReturn(
        session_id=SESSION,
        agent_type="researcher",
        depth=1,
        path=("orchestrator", "research", "researcher"),
        workspace="/work",
    )


@pytest.fixture
def made() -> Callable[..., dict[str, Any]]:
    """A good return, with some fields changed, and those set to `...` left out."""

    def make(**changes: Any) -> dict[str, Any]:
        whole = {
            "status": "completed",
            "summary": "Compared three candidates. The second is recommended.",
            "artifacts": [{"type": "report", "path": "docs/report.md"}],
            "metadata": {"session_id": SESSION, "agent_type": "researcher"},
            **changes,
        }
        return {name: value for name, value in whole.items() if value is not ...}

    return make


@pytest.fixture
def growth() -> Callable[[Callable[[int], object], int], float]:
    """How many times the work grows when the size grows eightfold: about 8 if it is linear, 64 if it is quadratic."""

    def measure(run: Callable[[int], object], size: int) -> float:
        return min(_cpu(run, size * 8) for _ in range(2)) / max(min(_cpu(run, size) for _ in range(3)), 1e-4)

    def _cpu(run: Callable[[int], object], size: int) -> float:
        start = time.process_time()
        run(size)
        return time.process_time() - start

    return measure
