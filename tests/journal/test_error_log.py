"""The errors log: every error of every run, each kind once."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from deputy.core.errors import Error
from deputy.core.events import AdmissionRefused, ModelCallEnded, Resumed, Returned, RunOpened, StepEnded, ToolCallEnded
from deputy.core.outcome import Failed, Rejected
from deputy.core.request import Lineage
from deputy.engine.ports.queries import ErrorContext, LoggedErrorRow
from deputy.journal.clock import Clock
from deputy.journal.error_log import alike, form, grouped
from deputy.journal.sqlite.sqlite_journal import SqliteJournal

RUN = "sess_1_aaaaaa"
ERROR = Error(type="provider", code="OVERLOADED", message="No room.", recoverable=True, recommendation="Wait a little.")
FINAL = replace(ERROR, code="BAD_KEY", message="No.", recoverable=False)


@pytest.mark.rule("errors.log")
def test_a_repeated_error_raises_its_count(tmp_path: Path) -> None:
    clock = iter(range(1, 1000))

    async def main() -> list[LoggedErrorRow]:
        async with SqliteJournal(tmp_path / "home", clock=Clock(wall=lambda: float(next(clock)))) as journal:
            opened = RunOpened(lineage=Lineage.root(RUN), command="research", seconds=60.0)
            lease = await journal.begin(RUN, opened)
            assert lease is not None
            for number in range(3):
                await journal.append(lease, f"m{number}", ModelCallEnded(model="m", error=ERROR))
            # The same record again is the same error, not another one.
            await journal.append(lease, "m0", ModelCallEnded(model="m", error=ERROR))
            raised = replace(ERROR, code="TOOL_FAILED")
            await journal.append(lease, "t0", ToolCallEnded(tool="t", error=raised, trace="Traceback: here"))
            passed_up = replace(FINAL, session_id="sess_1_child0")
            outcome = Failed(lineage=opened.lineage, summary="no", errors=(FINAL, passed_up))
            await journal.finish(lease, "returned:0", Returned(outcome=outcome))
            return await journal.read(lambda reader: reader.errors(10))

    logged = asyncio.run(main())
    assert [(error.code, error.count) for error in logged] == [
        ("BAD_KEY", 1),
        ("TOOL_FAILED", 1),
        ("OVERLOADED", 3),
    ]
    first = logged[-1]
    assert (first.type, first.severity, first.message) == ("provider", "warning", "No room.")
    assert (first.context.command, first.context.session_id, first.context.timeout) == ("research", RUN, 60.0)
    assert first.first_at < first.last_at
    assert logged[1].trace == "Traceback: here"
    assert logged[0].severity == "error"
    assert len({error.id for error in logged}) == 3
    assert form(first)["first_at"] == "1970-01-01T00:00:02Z"


@pytest.mark.rule("errors.log")
def test_an_error_that_a_run_meets_and_ends_with_counts_once_in_each_of_its_rounds(tmp_path: Path) -> None:
    async def main() -> list[LoggedErrorRow]:
        async with SqliteJournal(tmp_path / "home") as journal:
            opened = RunOpened(lineage=Lineage.root(RUN))
            lease = await journal.begin(RUN, opened)
            assert lease is not None
            outcome = Failed(lineage=opened.lineage, summary="no", errors=(ERROR, FINAL))
            await journal.append(lease, "m0", ModelCallEnded(model="m", error=ERROR))
            await journal.finish(lease, "returned:0", Returned(outcome=outcome))
            lease = await journal.acquire(RUN)
            await journal.append(lease, "resumed:1", Resumed(round=1))
            await journal.append(lease, "m1", ModelCallEnded(model="m", error=FINAL))
            await journal.finish(lease, "returned:1", Returned(outcome=outcome))
            return await journal.read(lambda reader: reader.errors(10))

    assert {error.code: error.count for error in asyncio.run(main())} == {"OVERLOADED": 2, "BAD_KEY": 2}


@pytest.mark.rule("errors.once")
def test_one_failure_is_logged_once_with_its_stack_trace_which_a_repeat_does_not_erase(tmp_path: Path) -> None:
    bug = replace(FINAL, code="INTERNAL_ERROR")

    async def main() -> list[LoggedErrorRow]:
        async with SqliteJournal(tmp_path / "home") as journal:
            for number, trace in enumerate(("Traceback: here", "")):
                run = f"sess_1_aaaaa{number}"
                opened = RunOpened(lineage=Lineage.root(run))
                lease = await journal.begin(run, opened)
                assert lease is not None
                fallback = replace(ERROR, candidate="m on cli:claude")
                outcome = Failed(lineage=opened.lineage, summary="no", errors=(bug, fallback))
                await journal.finish(lease, "returned:0", Returned(outcome=outcome, trace=trace))
            lease = await journal.begin(RUN, RunOpened(lineage=Lineage.root(RUN)))
            assert lease is not None
            await journal.append(lease, "task", StepEnded(step="task", error=FINAL))
            refused = Rejected(lineage=Lineage.root(RUN), summary="no", errors=(FINAL,))
            await journal.finish(lease, "returned:0", AdmissionRefused(outcome=refused))
            return await journal.read(lambda reader: reader.errors(10))

    logged = {error.code: error for error in asyncio.run(main())}
    assert {code: error.count for code, error in logged.items()} == {"INTERNAL_ERROR": 2, "BAD_KEY": 1}
    assert logged["INTERNAL_ERROR"].trace == "Traceback: here"


def _seen(id_: str, type_: str, code: str, count: int, last_at: float = 0.0) -> LoggedErrorRow:
    return LoggedErrorRow(
        id=id_,
        type=type_,
        code=code,
        count=count,
        first_at=0.0,
        last_at=last_at,
        severity="error",
        message="No.",
        recommendation="",
        context=ErrorContext(),
    )


RARE = _seen("a", "timeout", "TIMEOUT", 1)
OFTEN = _seen("b", "validation", "INVALID_RETURN", 3)
ALIKE = _seen("c", "validation", "INVALID_RETURN", 4)
LATER = _seen("d", "validation", "INVALID_RETURN", 3, 9.0)


def test_errors_of_one_kind_stand_together_and_the_most_frequent_come_first() -> None:
    first, second = grouped([RARE, OFTEN, ALIKE, LATER])
    assert (first.code, first.count, first.ids) == ("INVALID_RETURN", 10, ("c", "d", "b"))
    assert (second.code, second.count, second.ids) == ("TIMEOUT", 1, ("a",))
    assert grouped([]) == []


def test_an_error_is_handed_over_with_those_like_it() -> None:
    assert alike([RARE, OFTEN, ALIKE, LATER], "b") == [OFTEN, ALIKE, LATER]
    assert alike([RARE, OFTEN], "a") == [RARE]
    assert alike([RARE, OFTEN], "nothing") == []
