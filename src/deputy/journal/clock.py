"""The journal's clock: the machine's monotonic clock, continued over reboots, so that the wall clock moves no limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.events import Moment, Record
from deputy.journal.process_identity import boot_id
from deputy.journal.sql.rows import read_event
from deputy.journal.sqlite.sqlite_tables import LAST_EVENT

if TYPE_CHECKING:
    import sqlite3

_TOLERANCE_SECONDS = 1.0
"""How far the clock may be behind the latest record; further back, the machine was rebooted."""


class Machine(Struct, frozen=True):
    """The clocks of a machine, and the id of its boot."""

    boot: str
    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic


class Clock:
    """The journal's clock, and the wall clock beside it."""

    def __init__(
        self,
        offset: float = 0.0,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._offset = offset
        self.wall = wall
        self._monotonic = monotonic

    def now(self) -> float:
        """Seconds by the journal's clock; it starts at the wall clock's time, and later changes do not move it."""
        return self._monotonic() + self._offset

    def moment(self) -> Moment:
        """The current time by both clocks."""
        return Moment(self.wall(), self._monotonic() + self._offset)


def read_clock(connection: sqlite3.Connection, machine: Machine | None = None) -> Clock:
    """The journal's clock; before the first write of this boot it starts at the latest record. Writes nothing."""
    machine = Machine(boot_id()) if machine is None else machine
    return running_clock(connection, machine) or _clock(machine, _new_offset(connection, machine))


def start_clock(connection: sqlite3.Connection, machine: Machine | None = None) -> Clock:
    """The same in a write transaction: after its commit every process of this boot uses this clock."""
    machine = Machine(boot_id()) if machine is None else machine
    found = running_clock(connection, machine)
    if found is not None:
        return found
    offset = _new_offset(connection, machine)
    connection.execute("DELETE FROM clocks")
    connection.execute("INSERT INTO clocks VALUES (?, ?)", (machine.boot, offset))
    return _clock(machine, offset)


def running_clock(connection: sqlite3.Connection, machine: Machine | None = None) -> Clock | None:
    """The clock that a process of this boot has started; None when there is none."""
    machine = Machine(boot_id()) if machine is None else machine
    row = connection.execute("SELECT CAST(offset AS REAL) FROM clocks WHERE boot = ?", (machine.boot,)).fetchone()
    if row is None:
        return None
    clock, latest = _clock(machine, row[0]), _latest(connection)
    # Where the system gives no boot id, a clock that went back shows a reboot.
    return None if latest is not None and clock.now() < latest - _TOLERANCE_SECONDS else clock


def _new_offset(connection: sqlite3.Connection, machine: Machine) -> float:
    latest = _latest(connection)
    return (machine.wall() if latest is None else latest) - machine.monotonic()


def _clock(machine: Machine, offset: float) -> Clock:
    return Clock(offset, wall=machine.wall, monotonic=machine.monotonic)


def _latest(connection: sqlite3.Connection) -> float | None:
    row = connection.execute(LAST_EVENT).fetchone()
    record = None if row is None else read_event(row)
    return record.clock if isinstance(record, Record) else None
