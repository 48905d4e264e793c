"""The journal's clock: one for all processes of a boot, deaf to the wall clock, and continued over reboots."""

import asyncio
from contextlib import closing
from pathlib import Path

import pytest

from deputy.core.events import QuestionAsked, RunOpened
from deputy.core.request import Lineage
from deputy.journal.clock import Machine, read_clock, start_clock
from deputy.journal.registry import out_of_time
from deputy.journal.sqlite.connection import open_reader, open_writer
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

RUN = "sess_1_aaaaaa"


class Clocks:
    """The clocks of a machine, as a test sets them."""

    def __init__(self, boot: str, wall: float, monotonic: float) -> None:
        self.wall = wall
        self.monotonic = monotonic
        self.machine = Machine(boot, lambda: self.wall, lambda: self.monotonic)

    def passes(self, seconds: float, jump: float = 0.0) -> None:
        self.wall += seconds + jump
        self.monotonic += seconds


def written(home: Path, clocks: Clocks, *, deadline: float | None = None, patience: float | None = None) -> None:
    """A process of this machine that begins a run, and is gone."""

    async def main() -> None:
        with closing(open_writer(home, "off")) as connection:
            clock = start_clock(connection, clocks.machine)
        async with SqliteJournal(home, fsync="off", clock=clock) as journal:
            until = None if deadline is None else clock.now() + deadline
            lease = await journal.begin(RUN, RunOpened(lineage=Lineage.root(RUN, deadline=until), seconds=deadline))
            assert lease is not None
            if patience is not None:
                await journal.append(lease, "ask.asked", QuestionAsked(topic="approval", until=clock.now() + patience))

    asyncio.run(main())


def now(home: Path, clocks: Clocks) -> float:
    connection = open_reader(home)
    assert connection is not None
    with closing(connection):
        return read_clock(connection, clocks.machine).now()


def found(home: Path, at: float) -> tuple[list[str], list[str]]:
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        late, unanswered, _ = out_of_time(reader, at)
    return [state.run for state in late], [state.run for state in unanswered]


@pytest.mark.rule("time.clock")
@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_another_process_ends_nothing_early_and_keeps_nothing_late(tmp_path: Path, jump: float) -> None:
    clocks = Clocks("one", wall=5000.0, monotonic=10.0)
    written(tmp_path, clocks, deadline=60.0)
    clocks.passes(8.0, jump)
    assert now(tmp_path, clocks) == 5008.0
    assert found(tmp_path, now(tmp_path, clocks)) == ([], [])
    clocks.passes(53.0)
    assert found(tmp_path, now(tmp_path, clocks)) == ([RUN], [])


@pytest.mark.rule("time.clock")
@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_an_approval_lapses_when_its_time_has_passed(tmp_path: Path, jump: float) -> None:
    clocks = Clocks("one", wall=5000.0, monotonic=10.0)
    written(tmp_path, clocks, patience=100.0)
    clocks.passes(90.0, jump)
    assert found(tmp_path, now(tmp_path, clocks)) == ([], [])
    clocks.passes(11.0)
    assert found(tmp_path, now(tmp_path, clocks)) == ([], [RUN])


@pytest.mark.rule("time.clock")
def test_after_a_reboot_the_time_up_to_the_last_record_counts(tmp_path: Path) -> None:
    before = Clocks("one", wall=5000.0, monotonic=10.0)
    written(tmp_path, before, deadline=60.0)
    # Days later, by a wall clock that is wrong as well.
    after = Clocks("two", wall=900_000.0, monotonic=3.0)
    assert now(tmp_path, after) == 5000.0
    with closing(open_writer(tmp_path, "off")) as connection:
        start_clock(connection, after.machine)
    after.passes(59.0, jump=-3600.0)
    assert found(tmp_path, now(tmp_path, after)) == ([], [])
    after.passes(2.0)
    assert found(tmp_path, now(tmp_path, after)) == ([RUN], [])


@pytest.mark.rule("time.clock")
def test_a_monotonic_clock_that_went_back_tells_of_a_reboot_where_boots_have_no_name(tmp_path: Path) -> None:
    before = Clocks("-", wall=5000.0, monotonic=1000.0)
    written(tmp_path, before, deadline=60.0)
    after = Clocks("-", wall=9000.0, monotonic=3.0)
    assert now(tmp_path, after) == 5000.0


@pytest.mark.rule("time.clock")
def test_the_first_process_of_a_boot_starts_the_clock_for_all(tmp_path: Path) -> None:
    first, second = Clocks("one", wall=5000.0, monotonic=10.0), Clocks("one", wall=7000.0, monotonic=10.0)
    for clocks in (first, second):
        with closing(open_writer(tmp_path, "off")) as connection:
            assert start_clock(connection, clocks.machine).now() == 5000.0
        assert now(tmp_path, clocks) == 5000.0
