"""When requests to a provider may start, agreed on by all processes of a machine through the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3

    from deputy.journal.sqlite import SqliteJournal
    from deputy.journal.transaction import Transaction

_NEVER = float("-inf")


class JournalPace:
    """The pace of one provider and key. Times are on the machine's monotonic clock, which means the same everywhere."""

    def __init__(self, journal: SqliteJournal, account: str) -> None:
        self._journal = journal
        # After a reboot the clock starts anew, and what was agreed on before means nothing.
        self._key = f"{journal.owner.partition('/')[0]}/{account}"

    def is_calm(self, now: float) -> bool:
        """Whether nobody holds starts back, as of this process's last commit."""
        return self._journal.held_until.get(self._key, _NEVER) <= now

    async def hold(self, until: float) -> None:
        """Nobody starts before this time, in any process."""

        def do(tx: Transaction) -> None:
            held, last = self._row(tx.connection)
            self._write(tx.connection, max(held, until), last)

        await self._journal.transact(do)

    async def take(self, now: float, spacing: float) -> float:
        """Take a start now: 0 when it is given, else how many seconds to wait before asking again."""

        def do(tx: Transaction) -> float:
            held, last = self._row(tx.connection)
            at = max(held, last + spacing)
            if at > now:
                return at - now
            self._write(tx.connection, held, now)
            return 0.0

        return await self._journal.transact(do)

    def _row(self, connection: sqlite3.Connection) -> tuple[float, float]:
        row = connection.execute("SELECT held_until, last_start FROM paces WHERE account = ?", (self._key,)).fetchone()
        return (_NEVER, _NEVER) if row is None else (row[0], row[1])

    def _write(self, connection: sqlite3.Connection, held_until: float, last_start: float) -> None:
        query = "INSERT OR REPLACE INTO paces VALUES (?, ?, ?)"
        connection.execute(query, (self._key, held_until, last_start))


def held_until(connection: sqlite3.Connection) -> dict[str, float]:
    """Until when starts are held back, by account."""
    return dict(connection.execute("SELECT account, held_until FROM paces").fetchall())
