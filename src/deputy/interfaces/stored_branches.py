"""Branches of work that workers have stored: made branches of the user's repository, or written as patches."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from deputy.core.errors import DeputyError
from deputy.core.events import Record, Requested, RunOpened
from deputy.stores import find_bundles, store_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deputy.core.snapshot import Snapshot
    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries
    from deputy.processes.child_process import StopSignal
    from deputy.tools.git_workspaces import GitWorkspaces, StoredWork

    T = TypeVar("T")


class _Stored(NamedTuple):
    run: str
    branch: str
    snapshot: Snapshot
    workspace: str
    """The folder that it was submitted from, on the machine that submitted it."""


def fetch_branches(queries: Queries, state: State) -> list[str]:
    """Fetch the branches of a run and of those below it; returns what could not be fetched, in words.

    On a machine without the folder that the work was submitted from there is nothing to fetch into.
    """
    problems: list[str] = []
    for one in _stored(queries, state):
        if Path(one.workspace).is_dir():
            try:
                _with_workspaces(lambda all_, stop, of=one: all_.bring_now(of.branch, of.snapshot, of.workspace, stop))
            except DeputyError as error:
                problems.append(str(error))
    return problems


def patches(queries: Queries, state: State) -> Iterator[tuple[str, str]]:
    """The changes of a run and of those below it as patches, by run."""
    for one in _stored(queries, state):
        text = _with_workspaces(lambda all_, stop, of=one: all_.patch_now(of.branch, of.snapshot, stop))
        if text:
            yield one.run, text


def find_work(branch: str, snapshot: Snapshot) -> StoredWork | None:
    """What is stored of a branch, in a repository of the home: no repository of the user changes."""
    return _with_workspaces(lambda all_, stop: all_.find_now(branch, snapshot, stop))


def _stored(queries: Queries, state: State) -> Iterator[_Stored]:
    top = _top(queries, state) if store_url() else None
    snapshot = snapshot_of(queries, state) if top is not None else None
    if top is None or snapshot is None:
        return
    for one in (state, *queries.descendants(state.run)):
        outcome = queries.outcome(one)
        if outcome is not None and outcome.branch:
            yield _Stored(one.run, outcome.branch, snapshot, top.workspace)


def snapshot_of(queries: Queries, state: State) -> Snapshot | None:
    """The snapshot that the workers of a run got; None if the run uses a folder."""
    top = _top(queries, state)
    return None if top is None or top.conditions is None else top.conditions.snapshot


def _top(queries: Queries, state: State) -> RunOpened | Requested | None:
    root = state.run if state.lineage is None else state.lineage.root_id
    first = next((one.event for one in queries.records(root, limit=1) if isinstance(one, Record)), None)
    return first if isinstance(first, RunOpened | Requested) else None


def _with_workspaces(do: Callable[[GitWorkspaces, StopSignal], T]) -> T:
    from deputy.journal.home import home_path, make_home
    from deputy.journal.transcript import safe_id
    from deputy.processes.child_process import StopSignal
    from deputy.tools.git_workspaces import GitWorkspaces

    folder = make_home(home_path())
    workspaces = GitWorkspaces(folder, os.environ, find_bundles(folder), safe_id)
    with closing(StopSignal()) as stop:
        return do(workspaces, stop)
