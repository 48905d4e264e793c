"""The rate limit of a provider account, shared through the journal by all processes that use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import MsgspecError, json
from msgspec.structs import replace

from deputy.core.errors import StorageError
from deputy.core.rate_limit import LEASE_SECONDS, SharedLimit, SlotRequest, SlotShare, SlotUse, agree, least

if TYPE_CHECKING:
    import asyncio
    import sqlite3
    from collections.abc import Callable

    from deputy.journal.sql.sql_journal import SqlJournal
    from deputy.journal.sql.sql_store import SqlTables
    from deputy.journal.sql.transaction import Transaction

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
    """The shared rate limit of one provider and key. Callers give times of the machine's monotonic clock.

    Until a provider throttles, the journal is not asked: every commit reads the table anyway.
    """

    def __init__(self, journal: SqlJournal, account: str) -> None:
        self._journal = journal
        self._scope = journal.rate_limit_scope
        self._key = self._scope + account
        self._joined: float | None = None

    @property
    def _shift(self) -> float:
        return self._journal.rate_limit_shift()

    def is_calm(self, now: float) -> bool:
        """Whether requests may start, as of this process's last commit."""
        return self._journal.rate_limits.get(self._key, _FREE).until <= now + self._shift

    def is_limited(self, now: float) -> bool:
        """Whether a limit is in force, as of this process's last commit."""
        return self._journal.rate_limits.get(self._key, _FREE).limited_until > now + self._shift

    async def hold(self, until: float) -> None:
        """Hold back requests of all processes until this time."""
        until += self._shift

        def do(tx: Transaction) -> None:
            held, last = self._held(tx.tables, until)
            self._write(tx.tables, max(held, until), last)
            # Rows of other clocks have no meaning any more.
            query = "DELETE FROM rate_limits WHERE substr(account, 1, ?) != ?"
            tx.tables.execute(query, (len(self._scope), self._scope))

        await self._journal.transact(do)

    async def next_start(self, now: float, spacing: float) -> float:
        """Reserve a start now: 0 when granted, else the seconds to wait before the next try."""
        now += self._shift

        def do(tx: Transaction) -> float:
            held, last = self._held(tx.tables, now)
            at = max(held, last + spacing)
            if at > now:
                return at - now
            self._write(tx.tables, held, now)
            return 0.0

        return await self._journal.transact(do)

    def share(self, ask: SlotRequest, on_share: Callable[[SlotShare | None], None]) -> None:
        """Ask for a share of the limit; `on_share` gets it once it is committed, or None when there is no limit."""

        def notify(done: asyncio.Future[SlotShare | None]) -> None:
            on_share(least(ask.now) if done.cancelled() or done.exception() else self._unshifted(done.result()))

        try:
            shifted = self._shifted(ask)
            self._journal.transact_soon(lambda tx: self._agree(tx.tables, shifted)).add_done_callback(notify)
        except StorageError:
            on_share(least(ask.now))

    def _shifted(self, ask: SlotRequest) -> SlotRequest:
        """The request by the clock of the journal's rows."""
        if not self._shift:
            return ask
        throttled = None if ask.throttled is None else ask.throttled + self._shift
        return replace(ask, now=ask.now + self._shift, served_at=ask.served_at + self._shift, throttled=throttled)

    def _unshifted(self, share: SlotShare | None) -> SlotShare | None:
        return share if share is None or not self._shift else replace(share, until=share.until - self._shift)

    def _agree(self, tables: SqlTables, ask: SlotRequest) -> SlotShare | None:
        me = self._journal.owner
        before = self._agreement(tables)
        after, share = agree(before, ask, me, self._joined)
        self._joined = None if after.limit is None else after.limit.since
        old, new = _use(before, me), _use(after, me)
        is_misleading = share is None and self.is_limited(ask.now - self._shift)
        if is_misleading or before.limit != after.limit or not _is_unchanged(old, new, ask.now):
            self._write_agreement(tables, after)
        elif old is not None and share is not None:
            return replace(share, until=old.until)  # as the other processes see it
        return share

    def _agreement(self, tables: SqlTables) -> SharedLimit:
        tables.serialize("rate limits")
        query = "SELECT CAST(shared_limit AS BLOB) FROM rate_limits WHERE account = ?"
        row = tables.execute(query, (self._key,)).fetchone()
        try:
            agreement = json.decode(row[0], type=SharedLimit) if row is not None else SharedLimit()
        except MsgspecError:
            return SharedLimit()  # damaged; the next throttling creates a new one
        living = tuple(use for use in agreement.uses if not tables.has_ended(use.owner))
        return SharedLimit(limit=agreement.limit, uses=living)

    def _write_agreement(self, tables: SqlTables, agreement: SharedLimit) -> None:
        until = 0.0 if agreement.limit is None else agreement.limit.lapses_at
        query = (
            "INSERT INTO rate_limits (account, held_until, last_start, limited_until, shared_limit)"
            " VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (account) DO UPDATE"
            " SET limited_until = excluded.limited_until, shared_limit = excluded.shared_limit"
        )
        tables.execute(query, (self._key, _NEVER, _NEVER, until, json.encode(agreement)))

    def _held(self, tables: SqlTables, now: float) -> tuple[float, float]:
        tables.serialize("rate limits")
        query = (
            "SELECT CAST(held_until AS DOUBLE PRECISION), CAST(last_start AS DOUBLE PRECISION) FROM rate_limits"
            " WHERE account = ?"
        )
        held, last = tables.execute(query, (self._key,)).fetchone() or (_NEVER, _NEVER)
        return held if held < now + _LONGEST_HOLD_SECONDS else _NEVER, last if last < now + _LATEST_SECONDS else _NEVER

    def _write(self, tables: SqlTables, held_until: float, last_start: float) -> None:
        query = (
            "INSERT INTO rate_limits (account, held_until, last_start) VALUES (?, ?, ?) ON CONFLICT (account) DO UPDATE"
            " SET held_until = excluded.held_until, last_start = excluded.last_start"
        )
        tables.execute(query, (self._key, held_until, last_start))


_FREE: Final = HeldUntil()


def read_rate_limits(connection: sqlite3.Connection) -> dict[str, HeldUntil]:
    """The held-back accounts."""
    query = (
        "SELECT account, CAST(held_until AS DOUBLE PRECISION), CAST(limited_until AS DOUBLE PRECISION) FROM rate_limits"
    )
    return {account: HeldUntil(until, limited) for account, until, limited in connection.execute(query).fetchall()}


def _use(agreement: SharedLimit, owner: str) -> SlotUse | None:
    return next((use for use in agreement.uses if use.owner == owner), None)


def _is_unchanged(old: SlotUse | None, new: SlotUse | None, now: float) -> bool:
    """Whether the new use says the same, and the old one lasts for a while."""
    if old is None or new is None:
        return old is new
    return (old.slots, old.wanted) == (new.slots, new.wanted) and old.until - now > LEASE_SECONDS / 2
