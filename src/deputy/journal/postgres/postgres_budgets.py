"""Budgets in a Postgres store: all workers that carry out runs of a tree reserve in the same accounts.

Every change is a transaction of the writer, which has locked the leases of its runs and then the budgets of its trees.
The rules are those of `deputy.core.limits`; only the accounts are rows.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, json, structs

from deputy.core.errors import LeaseLost, StorageError
from deputy.core.guard import Ticket
from deputy.core.limits import NOTHING, Account, Amount, Shortfall, reserve_all
from deputy.engine.budget import SPAWN, BudgetLedger, least_remaining, tightest_uses
from deputy.engine.ports.budgets import Hold
from deputy.journal.nested import nested_amounts

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Sequence

    from deputy.core.limits import BudgetUse, Resource
    from deputy.core.outcome import Rejected
    from deputy.engine.ports.budgets import BudgetOpening, Decide, Ledger, Spawn
    from deputy.journal.postgres.postgres_queries import PostgresQueries
    from deputy.journal.sql.sql_journal import SqlJournal
    from deputy.journal.sql.sql_queries import SqlQueries
    from deputy.journal.sql.sql_store import SqlTables
    from deputy.journal.sql.transaction import Transaction

_READ = "SELECT run, above, epoch, is_counted, account, own FROM budgets WHERE run = ANY(?)"
_WRITE = (
    "INSERT INTO budgets (root, run, above, epoch, is_counted, account, own)"
    # An id has no line break; an array of arrays would be unnested whole.
    " SELECT ?, b.run, string_to_array(b.above, E'\\n'), b.epoch, b.is_counted, b.account, b.own"
    " FROM unnest(?::text[], ?::text[], ?::bigint[], ?::boolean[], ?::bytea[], ?::bytea[])"
    " AS b (run, above, epoch, is_counted, account, own) ON CONFLICT (run) DO UPDATE SET above = excluded.above,"
    " epoch = excluded.epoch, account = excluded.account, own = excluded.own"
)
_EPOCH = "SELECT epoch FROM leases WHERE run = ? AND owner = ?"
_HOLD = "INSERT INTO holds (run, root, epoch, body) VALUES (?, ?, ?, ?) RETURNING id"
_RELEASE = (
    "DELETE FROM holds h USING leases l WHERE h.id = ? AND l.run = h.run AND l.epoch = h.epoch AND l.owner = ?"
    " RETURNING h.id"
)
_FALL = "DELETE FROM holds WHERE run = ? AND epoch <> ? RETURNING run, body"
_FALL_ALL = (
    "DELETE FROM holds h WHERE h.root = ? AND h.epoch IS NOT NULL AND NOT EXISTS"
    " (SELECT 1 FROM leases l WHERE l.run = h.run AND l.epoch = h.epoch AND l.owner IS NOT NULL)"
    " RETURNING h.run, h.body"
)
_NESTED = "SELECT nested, body FROM holds WHERE root = ? AND nested IS NOT NULL"
_PUT_NESTED = (
    "INSERT INTO holds (run, root, nested, body) VALUES (?, ?, ?, ?)"
    " ON CONFLICT (nested) DO UPDATE SET body = excluded.body"
)
_HAS_NESTED = "SELECT 1 FROM nested WHERE root = ? LIMIT 1"
_SPAWNED = "SELECT count(*) FROM budgets WHERE root = ? AND is_counted AND run <> ?"


class BudgetRow(Struct, kw_only=True):
    """The account of a run, and what the run adds to those above it."""

    run: str
    above: tuple[str, ...] = ()
    """The accounts above it, the nearest first."""
    epoch: int = 0
    """The epoch of the run when its account was opened."""
    is_counted: bool = False
    """Whether the run counts against the spawn quota of its tree."""
    account: Account = Account()
    own: Amount = NOTHING
    """What the run itself has used, and its spawn."""


class TreeAccounts:
    """The accounts of one tree within a transaction."""

    def __init__(self, tables: SqlTables, root: str) -> None:
        self._tables = tables
        self.root = root
        self._rows: dict[str, BudgetRow] = {}
        self._changed: dict[str, BudgetRow] = {}

    def read(self, runs: Iterable[str]) -> None:
        """Read the rows of these runs and of all accounts above them."""
        missing = [run for run in runs if run not in self._rows]
        while missing:
            found = self._tables.execute(_READ, (missing,)).fetchall()
            for run, above, epoch, is_counted, account, own in found:
                self._rows[run] = BudgetRow(
                    run=run,
                    above=tuple(above),
                    epoch=epoch,
                    is_counted=is_counted,
                    account=json.decode(account, type=Account),
                    own=json.decode(own, type=Amount),
                )
            named = {name for run, *_ in found for name in self._rows[run].above}
            missing = [run for run in named if run not in self._rows]

    def get(self, run: str) -> BudgetRow | None:
        """The row of a run that was read."""
        return self._rows.get(run)

    def chain(self, run: str) -> list[Account]:
        """The account of a run and those above it."""
        row = self._rows.get(run)
        return [] if row is None else [row.account, *(self._rows[name].account for name in row.above)]

    def known(self) -> dict[str, Account]:
        """All accounts that were read."""
        return {run: row.account for run, row in self._rows.items()}

    def change(self, run: str, held: Amount = NOTHING, spent: Amount = NOTHING, *, is_above_only: bool = False) -> None:
        """Add to what is held and spent in the account of a run and in those above it."""
        row = self._rows.get(run)
        if row is None or (held == NOTHING and spent == NOTHING):
            return
        for name in row.above if is_above_only else (run, *row.above):
            one = self._rows[name]
            account = one.account
            one.account = structs.replace(account, held=account.held + held, spent=account.spent + spent)
            self._changed[name] = one

    def place(self, run: str, parent: str | None, own: Amount | None, *, is_counted: bool = False) -> BudgetRow:
        """Let a run add this to the accounts above it, instead of what it added before; None keeps that."""
        row = self._rows.get(run)
        is_new = row is None
        row = BudgetRow(run=run, is_counted=is_counted) if row is None else row
        self._rows[run] = self._changed[run] = row
        # The root of a tree has no account above it, and a parent without an account has none either.
        above = self._rows.get(parent) if parent is not None else None
        chain = () if above is None else (above.run, *above.above)
        own = row.own if own is None else own
        if is_new or (row.above, row.own) != (chain, own):
            self.change(run, spent=NOTHING - row.own, is_above_only=True)
            row.account = structs.replace(row.account, spent=row.account.spent - _used(row.own) + _used(own))
            row.above, row.own = chain, own
            self.change(run, spent=own, is_above_only=True)
        return row

    def fall(self, query: str, *values: Any) -> bool:
        """Drop the holds of lost calls; whether there were some."""
        fallen = self._tables.execute(query, values).fetchall()
        self.read(run for run, _ in fallen)
        for run, body in fallen:
            self.change(run, held=NOTHING - json.decode(body, type=Amount))
        return bool(fallen)

    def count_nested(self) -> int:
        """Hold what nested processes of the tree have reserved or used; returns the spawns among it."""
        if self._tables.execute(_HAS_NESTED, (self.root,)).fetchone() is None:
            return 0
        known = {
            name: json.decode(body, type=Amount)
            for name, body in self._tables.execute(_NESTED, (self.root,)).fetchall()
        }
        spawns = 0
        for name, above, amount in nested_amounts(self._tables.queries(), self.root):
            self.read([above])
            spawns += amount.spawns
            before = known.get(name, NOTHING)
            if amount != before:
                self.change(above, held=amount - before)
                self._tables.execute(_PUT_NESTED, (above, self.root, name, json.encode(amount)))
        return spawns

    def write(self) -> None:
        """Write the rows that were changed."""
        rows = list(self._changed.values())
        if rows:
            values = (
                [row.run for row in rows],
                ["\n".join(row.above) for row in rows],
                [row.epoch for row in rows],
                [row.is_counted for row in rows],
                [json.encode(row.account) for row in rows],
                [json.encode(row.own) for row in rows],
            )
            self._tables.execute(_WRITE, (self.root, *values))
            self._changed.clear()


def _used(own: Amount) -> Amount:
    """What a run adds to its own account: its spawn counts only above it."""
    return structs.replace(own, spawns=0)


class PostgresBudgets:
    """The budgets of all trees of a store."""

    def __init__(self, journal: SqlJournal) -> None:
        self.journal = journal
        self._trees: dict[str, dict[str, Account]] = {}
        """By root, the accounts as of the last answer; kept while a ledger of the tree is open."""
        self._open: dict[str, PostgresLedger] = {}

    async def open(self, opening: BudgetOpening) -> Ledger:
        """The ledger of a run; without a cap nothing is stored."""
        if not opening.budget.capped:
            return BudgetLedger(opening.budget)
        known = await self.journal.transact(partial(_open, opening), opening.run, trees=(opening.root,))
        ledger = self._open[opening.run] = PostgresLedger(self, opening.run, opening.root, *known)
        return ledger

    async def spawn(self, spawn: Spawn, decide: Decide) -> Ticket | Rejected:
        """Decide about a spawn and count it in one transaction, if a quota or a cap limits it."""
        if not (spawn.is_counted or spawn.is_capped):
            return decide(0, None)
        decision, accounts = await self.journal.transact(partial(_spawn, spawn, decide), spawn.run, trees=(spawn.root,))
        self.learn(spawn.root, accounts)
        return decision

    def restore(self, spawn: Spawn) -> None:
        """Nothing: the store has counted it."""

    async def refresh(self, root: str) -> None:
        """Nothing: every transaction counts nested processes."""

    def set_aside(self, run: str) -> None:
        """Nothing: the accounts are in the store."""

    def drop(self, run: str) -> None:
        """Forget the ledger of a run that is over."""
        ledger = self._open.pop(run, None)
        if ledger is not None and not any(one.root == ledger.root for one in self._open.values()):
            self._trees.pop(ledger.root, None)

    def forget_tree(self, root: str) -> bool:
        """Nothing: the counts are in the store."""
        return True

    def learn(self, root: str, accounts: dict[str, Account]) -> None:
        """Keep the accounts of a tree as a transaction has left them."""
        if accounts:
            self._trees.setdefault(root, {}).update(accounts)

    def account(self, root: str, run: str) -> Account:
        """An account as of the last answer."""
        return self._trees.get(root, {}).get(run, Account())


class PostgresLedger:
    """The account of a run and those above it."""

    is_capped = True

    def __init__(
        self, budgets: PostgresBudgets, run: str, root: str, chain: Sequence[str], known: dict[str, Account]
    ) -> None:
        self._budgets = budgets
        self.run = run
        self.root = root
        self._chain = tuple(chain)
        budgets.learn(root, known)

    def note_programs(self) -> None:
        """Nothing: nested processes are found in the store."""

    async def refresh(self) -> None:
        """Read the accounts."""
        self._budgets.learn(self.root, await self._budgets.journal.read(partial(_accounts, self._chain)))

    async def reserve(self, amount: Amount) -> Hold | Shortfall:
        """Reserve an amount here and above, in one transaction."""
        found, accounts = await self._budgets.journal.transact(
            partial(_reserve, self.run, self.root, amount), self.run, trees=(self.root,)
        )
        self._budgets.learn(self.root, accounts)
        return found

    async def commit(self, hold: Hold, spent: Amount) -> None:
        """Count what was spent; with the next records of the run, for which the caller waits."""
        budgets, root = self._budgets, self.root

        def done(answer: asyncio.Future[dict[str, Account]]) -> None:
            # A failure is that of the next record, too.
            if not answer.cancelled() and answer.exception() is None:
                budgets.learn(root, answer.result())

        accounts = zip(self._chain, self._accounts(), strict=True)
        budgets.learn(root, {run: account.commit(hold.amount, spent) for run, account in accounts})
        with suppress(StorageError):
            # A journal that is closed releases its leases, and the hold falls with that of the run.
            budgets.journal.transact_soon(
                partial(_commit, self.run, root, hold, spent), self.run, trees=(root,)
            ).add_done_callback(done)

    def remaining(self, resource: Resource) -> float | None:
        """The amount that can still be reserved here and above, as of the last answer."""
        return least_remaining(self._accounts(), resource)

    def uses(self, refused: Shortfall | None = None) -> tuple[BudgetUse, ...]:
        """The tightest use of each capped resource, as of the last answer."""
        return tightest_uses(self._accounts(), refused)

    def _accounts(self) -> list[Account]:
        return [self._budgets.account(self.root, run) for run in self._chain]


# --- in the writer's transaction --------------------------------------------------------------------------------------


def _epoch(tx: Transaction, run: str) -> int:
    """The epoch of a run that this process holds; its row is locked."""
    row = tx.tables.execute(_EPOCH, (run, tx.owner)).fetchone()
    if row is None:
        raise LeaseLost(run, 0)
    return row[0]


def _open(opening: BudgetOpening, tx: Transaction) -> tuple[tuple[str, ...], dict[str, Account]]:
    """Make the account of a run agree with its records; returns its chain and the accounts."""
    epoch, tree = _epoch(tx, opening.run), TreeAccounts(tx.tables, opening.root)
    parents = () if opening.parent is None else (opening.parent,)
    tree.read((opening.run, *parents, *(one.run for one in opening.below)))
    tree.fall(_FALL, opening.run, epoch)
    known = tree.get(opening.run)
    # Within an epoch the row is ahead of the records, which may still be on their way.
    is_ours = known is not None and known.epoch == epoch
    own = None if is_ours else structs.replace(opening.used, spawns=int(opening.parent is not None))
    row = tree.place(opening.run, opening.parent, own)
    row.epoch, row.account = epoch, structs.replace(row.account, budget=opening.budget)
    for one in opening.below:
        # What a run below has used since is in its row, which its own process keeps.
        is_known = tree.get(one.run) is not None
        used = None if is_known else one.used + SPAWN if one.is_spawn else one.used
        tree.place(one.run, one.parent, used, is_counted=one.is_spawn and one.is_counted)
    tree.count_nested()
    tree.write()
    return (row.run, *row.above), tree.known()


def _spawn(spawn: Spawn, decide: Decide, tx: Transaction) -> tuple[Ticket | Rejected, dict[str, Account]]:
    _epoch(tx, spawn.run)
    tree = TreeAccounts(tx.tables, spawn.root)
    tree.read((spawn.run, spawn.caller))
    nested = tree.count_nested()
    row = tree.get(spawn.run)
    is_paid = not spawn.is_capped or (row is not None and bool(row.own.spawns))
    left = None if is_paid else least_remaining(tree.chain(spawn.caller), "spawns")
    spawned: int = tx.tables.execute(_SPAWNED, (spawn.root, spawn.run)).fetchone()[0]
    decision = decide(spawned + nested, left)
    if isinstance(decision, Ticket) and row is None:
        tree.place(spawn.run, spawn.caller, SPAWN if spawn.is_capped else NOTHING, is_counted=spawn.is_counted)
    tree.write()
    return decision, tree.known()


def _reserve(run: str, root: str, amount: Amount, tx: Transaction) -> tuple[Hold | Shortfall, dict[str, Account]]:
    epoch, tree = _epoch(tx, run), TreeAccounts(tx.tables, root)
    tree.read([run])
    tree.count_nested()
    found = reserve_all(tree.chain(run), amount)
    if isinstance(found, Shortfall) and tree.fall(_FALL_ALL, root):
        found = reserve_all(tree.chain(run), amount)
    if isinstance(found, Shortfall):
        tree.write()
        return found, tree.known()
    held = amount if amount.cost is not None else structs.replace(amount, cost=0.0)
    tree.change(run, held=held)
    number = tx.tables.execute(_HOLD, (run, root, epoch, json.encode(held))).fetchone()[0]
    tree.write()
    return Hold(amount=held, number=number), tree.known()


def _commit(run: str, root: str, hold: Hold, spent: Amount, tx: Transaction) -> dict[str, Account]:
    if tx.tables.execute(_RELEASE, (hold.number, tx.owner)).fetchone() is None:
        # Another process has taken over the run: the hold fell, and the call is repeated there.
        return {}
    tree = TreeAccounts(tx.tables, root)
    tree.read([run])
    row = tree.get(run)
    if row is not None:
        tree.change(run, held=NOTHING - hold.amount, spent=spent)
        row.own += spent
    tree.write()
    return tree.known()


def _accounts(runs: Sequence[str], queries: SqlQueries) -> dict[str, Account]:
    rows = cast("PostgresQueries", queries).accounts(runs)
    return {run: json.decode(body, type=Account) for run, body in rows}
