"""Faults of workers and of their store, in one process with the real tables."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.cluster import ClusterHost

from deputy.core.events import RunOpened
from deputy.core.outcome import Failed
from deputy.core.request import Lineage
from deputy.testing.runtime_suite.case_helpers import RUN, opened

if TYPE_CHECKING:
    from pathlib import Path

    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext


async def unused(run: RunContext, start: Any) -> Outcome:
    raise AssertionError("a process that only submits carried out a run")


@pytest.mark.rule("cluster.bug")
def test_a_run_that_meets_a_bug_ends_as_failed_and_is_not_placed_again(tmp_path: Path) -> None:
    async def broken(run: RunContext, start: Any) -> Outcome:
        raise ZeroDivisionError("by a bug")

    async def go(in_records: bool) -> tuple[Outcome, int]:
        host = ClusterHost(tmp_path)
        async with host.start(unused, claims=False) as submitter, host.start(broken) as worker:
            if in_records:
                journal: Any = host.journal(worker)
                journal.records = unreadable
            await submitter.submit(RUN, opened())
            outcome = await submitter.result(RUN)
            assert await host.sweep(worker) == (0, 0)
            return outcome, len(host.claims)

    async def unreadable(run: str, after: int = 0) -> Any:
        raise ZeroDivisionError("by a bug")

    for in_records in (False, True):
        outcome, claims = asyncio.run(go(in_records))
        assert isinstance(outcome, Failed)
        assert (outcome.errors[0].code, claims) == ("INTERNAL_ERROR", 1)
        assert "ZeroDivisionError: by a bug" in outcome.errors[0].message


@pytest.mark.rule("cluster.look")
def test_a_process_that_looks_for_late_runs_reads_only_states_that_changed(tmp_path: Path) -> None:
    async def go() -> None:
        host = ClusterHost(tmp_path)
        async with host.start(unused, claims=False) as submitter:
            runs = [f"sess_{number}_waits0" for number in range(5)]
            for run in runs:
                await submitter.submit(run, RunOpened(lineage=Lineage.root(run)))
            with host.read() as queries:
                asked: list[str] = []
                rows = queries._rows  # pyright: ignore[reportPrivateUsage]

                def noted(query: str, *values: Any) -> list[Any]:
                    asked.extend(values[0] if values and isinstance(values[0], list) else ())
                    return rows(query, *values)

                queries._rows = noted  # type: ignore[method-assign]
                first = queries.unsettled_besides((), "")
                again = queries.unsettled_besides((), "")
                assert [state.run for state in first] == [state.run for state in again] == runs
                assert sorted(asked) == runs
                await submitter.cancel(runs[2])
                await submitter.result(runs[2])
                asked.clear()
                states = {state.run: state.status for state in queries.unsettled_besides((), "")}
                assert (states[runs[2]], asked) == ("cancelled", [runs[2]])

    asyncio.run(go())
