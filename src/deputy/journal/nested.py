"""Nested runs: a Deputy started by a run's command reserves half of what that run has left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, Struct, json

from deputy.core.errors import NotAdmitted, StorageCorrupt, StorageError
from deputy.core.events import Admitted, RunOpened
from deputy.core.limits import NOTHING, Amount, Budget, Resource, exact
from deputy.core.request import Nesting
from deputy.journal.process_identity import has_ended, this_process
from deputy.journal.registry import statuses
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deputy.core.state import State
    from deputy.journal.sql.sql_journal import SqlJournal
    from deputy.journal.sql.sql_queries import SqlQueries
    from deputy.journal.sql.sql_store import SqlStore, SqlTables

_RESOURCES: tuple[Resource, ...] = ("tokens", "cost", "requests", "spawns")
_DEEPEST = 32
_NO_AGENTS = ("delegate", "refine")
"""Commands whose root run is no agent."""


class Reservation(Struct, frozen=True, kw_only=True):
    """What a nested run has reserved, with the store of its journal and its process."""

    amount: Amount
    store: str
    owner: str


def reserve(store: SqlStore, run: str, nested: str, max_spawns: int, own: SqlStore) -> Nesting:
    """Reserve for a nested run half of what the run that started its process has left; the last spawn whole.

    Check and reservation are one transaction in the store of that run, so two processes never get the same budget.
    The other half stays for the run itself and for nested runs that start at the same time. `own` is the store of the
    nested run.
    """
    queries = store.queries()
    if queries is None:
        raise NotAdmitted(f"Run {run} started this process, but {store.name} has no journal of it; nothing was started")
    queries.close()

    def do(tables: SqlTables) -> Nesting:
        tables.serialize("nested runs")
        queries = tables.queries()
        state = queries.state(run)
        if state is None or state.lineage is None:
            raise NotAdmitted(f"Run {run} started this process, but is not in {store.location}; nothing was started")
        most = state.lineage.max_spawns
        budget = _left(queries, state, max_spawns if most is None else min(max_spawns, most))
        amount = Amount(**{name: getattr(budget, name) or 0 for name in _RESOURCES})
        held = Reservation(amount=amount, store=own.name, owner=this_process().name)
        row = (nested, run, state.lineage.root_id, json.encode(held))
        tables.execute("INSERT INTO nested VALUES (?, ?, ?, ?)", row)
        return Nesting(lineage=state.lineage, budget=budget, is_live=state.is_live, round=state.round)

    with store.writing() as writer:
        return writer.transact(do)


async def read_nested(journal: SqlJournal, root: str) -> Sequence[tuple[str, str, Amount]]:
    """The nested runs of a tree, read in a thread: see `nested_amounts`."""
    return await journal.read(lambda queries: list(nested_amounts(queries, root)))


def nested_amounts(queries: SqlQueries, root: str, depth: int = 0) -> Iterator[tuple[str, str, Amount]]:
    """The nested runs of a tree: id, the run that started its process, and the amount it counts for.

    A live one counts for its whole reservation, an ended one for its usage, and one that never began for nothing.
    """
    for nested, above, body in queries.nested(root) if depth < _DEEPEST else ():
        try:
            held = json.decode(body, type=Reservation)
        except (DecodeError, TypeError) as error:
            # If it were skipped, its reservation could be spent twice.
            raise StorageCorrupt(queries.location, f"the reservation of {nested!r} cannot be read") from error
        yield nested, above, _counted(queries, nested, held, depth)


def _counted(queries: SqlQueries, nested: str, held: Reservation, depth: int) -> Amount:
    if held.store == queries.store_name:
        return _counted_in(queries, nested, held, depth)
    try:
        others = SqliteQueries.open(Path(held.store))
        if others is None:
            return held.amount
        with others:
            return _counted_in(others, nested, held, depth)
    except StorageError:
        # What it has used is unknown.
        return held.amount


def _counted_in(queries: SqlQueries, nested: str, held: Reservation, depth: int) -> Amount:
    state = queries.state(nested)
    if state is None:
        return NOTHING if has_ended(held.owner) else held.amount
    is_over = not state.is_live or statuses(queries, [state])[0].is_orphaned
    return _total(queries, state, depth) if is_over else held.amount


def _total(queries: SqlQueries, top: State, depth: int) -> Amount:
    """The usage of a nested run with its descendants; an agent counts as a spawn itself."""
    tree = {state.run: state for state in queries.tree(top.run)}
    used = _used(queries, tree, top.run, depth + 1).get(top.run, NOTHING)
    return used + Amount(spawns=int(top.command not in _NO_AGENTS))


def _left(queries: SqlQueries, state: State, max_spawns: int) -> Budget:
    """Half of the remaining budget of a run: of its own, of its ancestors, and of the spawns of its tree."""
    root = state.run if state.lineage is None else state.lineage.root_id
    tree = {one.run: one for one in queries.tree(root)}
    used = _used(queries, tree, root)
    left: dict[str, float] = {"spawns": max_spawns - used.get(root, NOTHING).spawns}
    above: str | None = state.run
    while above is not None and above in tree:
        caps = _budget(queries, above)
        for name in _RESOURCES:
            cap, spent = getattr(caps, name), getattr(used.get(above, NOTHING), name)
            if cap is not None:
                # With an unknown cost nothing of the budget can be promised.
                rest = 0 if spent is None else exact(cap - spent)
                left[name] = min(rest, left.get(name, rest))
        above = tree[above].parent
    halves: dict[str, Any] = {name: max(0, rest + 1) // 2 for name, rest in left.items()}
    if "cost" in left:
        halves["cost"] = exact(max(0, left["cost"]) / 2)
    return Budget(**halves)


def _used(queries: SqlQueries, tree: Mapping[str, State], root: str, depth: int = 0) -> dict[str, Amount]:
    """The usage of each run of a tree with its descendants, nested runs included."""
    used: dict[str, Amount] = {}

    def add(run: str | None, amount: Amount) -> None:
        while run is not None and run in tree:
            used[run] = used.get(run, NOTHING) + amount
            run = tree[run].parent

    for state in tree.values():
        usage = state.usage
        add(state.run, Amount(tokens=usage.input + usage.output, cost=usage.cost, requests=usage.requests))
        if state.parent is not None and state.status != "rejected":
            add(state.parent, Amount(spawns=1))
    for _, above, amount in nested_amounts(queries, root, depth):
        add(above, amount)
    return used


def _budget(queries: SqlQueries, run: str) -> Budget:
    """The budget that a run was granted."""
    for record in queries.records(run):
        event = getattr(record, "event", None)
        if isinstance(event, RunOpened | Admitted):
            return event.grant.budget
    return Budget()
