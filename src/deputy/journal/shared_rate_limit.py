"""The rate limit of a provider account, shared by all processes of a machine through the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import MsgspecError, json
from msgspec.structs import replace

from deputy.core.errors import StorageError
from deputy.core.rate_limit import LEASE_SECONDS, SharedLimit, SlotRequest, SlotShare, SlotUse, agree, least
from deputy.journal.process_identity import has_ended

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from collections.abc import Callable

    from deputy.journal.sqlite.sqlite_journal import SqliteJournal
    from deputy.journal.sqlite.transaction import Transaction

_NEVER: Final = float("-inf")
_LONGEST_HOLD_SECONDS: Final = 7 * 86_400.0
"""A longer hold comes from a damaged row."""
_LATEST_SECONDS: Final = 1.0
"""How far ahead another process may have read the clock; a later start comes from a damaged row."""


class HeldUntil(NamedTuple):
    """The time until which requests to an account are held back, and until which their number is limited."""

    until: float = _NEVER
    limited_until: float = _NEVER


class JournalRateLimitStore:
    """The shared rate limit of one provider and key. Times are on the machine's monotonic clock.

    Until a provider throttles, the journal is not asked: every commit reads the table anyway.
    """

    def __init__(self, journal: SqliteJournal, account: str) -> None:
        self._journal = journal
        # The monotonic clock restarts at boot, so earlier rows have no meaning.
        self._boot = f"{journal.owner.partition('/')[0]}/"
        self._key = self._boot + account
        self._joined: float | None = None

    def is_calm(self, now: float) -> bool:
        """Whether requests may start, as of this process's last commit."""
        return self._journal.rate_limits.get(self._key, _FREE).until <= now

    def is_limited(self, now: float) -> bool:
        """Whether a limit is in force, as of this process's last commit."""
        return self._journal.rate_limits.get(self._key, _FREE).limited_until > now

    async def hold(self, until: float) -> None:
        """Hold back requests of all processes until this time."""

        def do(tx: Transaction) -> None:
            held, last = self._held(tx.connection, until)
            self._write(tx.connection, max(held, until), last)
            query = "DELETE FROM rate_limits WHERE substr(account, 1, ?) != ?"
            tx.connection.execute(query, (len(self._boot), self._boot))

        await self._journal.transact(do)

    async def next_start(self, now: float, spacing: float) -> float:
        """Reserve a start now: 0 when granted, else the seconds to wait before the next try."""

        def do(tx: Transaction) -> float:
            held, last = self._held(tx.connection, now)
            at = max(held, last + spacing)
            if at > now:
                return at - now
            self._write(tx.connection, held, now)
            return 0.0

        return await self._journal.transact(do)

    def share(self, ask: SlotRequest, on_share: Callable[[SlotShare | None], None]) -> None:
        """Ask for a share of the limit; `on_share` gets it once it is committed, or None when there is no limit."""

        def notify(done: asyncio.Future[SlotShare | None]) -> None:
            on_share(least(ask.now) if done.cancelled() or done.exception() else done.result())

        try:
            self._journal.transact_soon(lambda tx: self._agree(tx.connection, ask)).add_done_callback(notify)
        except StorageError:
            on_share(least(ask.now))

    def _agree(self, connection: sqlite3.Connection, ask: SlotRequest) -> SlotShare | None:
        me = self._journal.owner
        before = self._agreement(connection)
        after, share = agree(before, ask, me, self._joined)
        self._joined = None if after.limit is None else after.limit.since
        old, new = _use(before, me), _use(after, me)
        is_misleading = share is None and self.is_limited(ask.now)
        if is_misleading or before.limit != after.limit or not _is_unchanged(old, new, ask.now):
            self._write_agreement(connection, after)
        elif old is not None and share is not None:
            return replace(share, until=old.until)  # as the other processes see it
        return share

    def _agreement(self, connection: sqlite3.Connection) -> SharedLimit:
        query = "SELECT CAST(shared_limit AS BLOB) FROM rate_limits WHERE account = ?"
        row = connection.execute(query, (self._key,)).fetchone()
        try:
            agreement = json.decode(row[0], type=SharedLimit) if row is not None else SharedLimit()
        except MsgspecError:
            return SharedLimit()  # damaged; the next throttling creates a new one
        living = tuple(use for use in agreement.uses if not has_ended(use.owner))
        return SharedLimit(limit=agreement.limit, uses=living)

    def _write_agreement(self, connection: sqlite3.Connection, agreement: SharedLimit) -> None:
        until = 0.0 if agreement.limit is None else agreement.limit.lapses_at
        query = (
            "INSERT INTO rate_limits (account, held_until, last_start, limited_until, shared_limit)"
            " VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (account) DO UPDATE"
            " SET limited_until = excluded.limited_until, shared_limit = excluded.shared_limit"
        )
        connection.execute(query, (self._key, _NEVER, _NEVER, until, json.encode(agreement)))

    def _held(self, connection: sqlite3.Connection, now: float) -> tuple[float, float]:
        query = "SELECT CAST(held_until AS REAL), CAST(last_start AS REAL) FROM rate_limits WHERE account = ?"
        held, last = connection.execute(query, (self._key,)).fetchone() or (_NEVER, _NEVER)
        return held if held < now + _LONGEST_HOLD_SECONDS else _NEVER, last if last < now + _LATEST_SECONDS else _NEVER

    def _write(self, connection: sqlite3.Connection, held_until: float, last_start: float) -> None:
        query = (
            "INSERT INTO rate_limits (account, held_until, last_start) VALUES (?, ?, ?) ON CONFLICT (account) DO UPDATE"
            " SET held_until = excluded.held_until, last_start = excluded.last_start"
        )
        connection.execute(query, (self._key, held_until, last_start))


_FREE: Final = HeldUntil()


def read_rate_limits(connection: sqlite3.Connection) -> dict[str, HeldUntil]:
    """The held-back accounts."""
    query = "SELECT account, CAST(held_until AS REAL), CAST(limited_until AS REAL) FROM rate_limits"
    return {account: HeldUntil(until, limited) for account, until, limited in connection.execute(query).fetchall()}


def _use(agreement: SharedLimit, owner: str) -> SlotUse | None:
    return next((use for use in agreement.uses if use.owner == owner), None)


def _is_unchanged(old: SlotUse | None, new: SlotUse | None, now: float) -> bool:
    """Whether the new use says the same, and the old one lasts for a while."""
    if old is None or new is None:
        return old is new
    return (old.slots, old.wanted) == (new.slots, new.wanted) and old.until - now > LEASE_SECONDS / 2
