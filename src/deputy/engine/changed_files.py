"""Find the files changed by a run that reached a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import Folder, RunContext

MOST_PATHS = 200
_LONGEST_PATH = 300
_LETTERS_READ = 200_000
_BETWEEN = str.maketrans(dict.fromkeys("`'\"()[]{}<>,;|*", " "))


async def changed_files(run: RunContext, history: History, agent: AgentContext, work_folder: str) -> tuple[str, ...]:
    """The files changed since the request: by its tools, in its work folder, or named in its notes."""
    since = run.state.requested_at
    named = tuple(path for path in paths_named(history.notes) if path not in history.changed)
    if not named and not work_folder:
        return tuple(history.changed)
    found = await run.value("changed_files", list[str], _stat_files, agent.folder, named, work_folder, since)
    return tuple(dict.fromkeys((*history.changed, *found)))


async def _stat_files(folder: Folder, named: Sequence[str], work_folder: str, since: float) -> list[str]:
    found = list(await folder.changed_in(work_folder, since)) if work_folder else []
    for fact in await folder.facts(named):
        is_new = fact.modified_at is not None and fact.modified_at >= since
        if fact.exists and fact.is_inside and fact.is_file and fact.is_touched and is_new and not fact.is_kept:
            found.append(fact.path)
    return found


def paths_named(notes: Iterable[str]) -> tuple[str, ...]:
    """Everything that looks like a file path, in order, without line numbers."""
    named: dict[str, None] = {}
    for path in _candidates(notes):
        if len(named) >= MOST_PATHS:
            break
        named[path] = None
    return tuple(named)


def _candidates(notes: Iterable[str]) -> Iterator[str]:
    left = _LETTERS_READ
    for note in notes:
        text, left = note[:left], left - len(note)
        for word in text.translate(_BETWEEN).split():
            path = _without_lines(word.rstrip(".:!?"))
            if 1 < len(path) <= _LONGEST_PATH and "://" not in path and ("/" in path or "." in path[1:]):
                yield path
        if left <= 0:
            return


def _without_lines(word: str) -> str:
    """`src/a.py` of `src/a.py:12`, `src/a.py:12:4` and `src/a.py:12-30`."""
    path, _, lines = word.partition(":")
    return path if lines.replace("-", "").replace(":", "").isdecimal() else word
