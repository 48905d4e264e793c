"""What work that reached a limit has left on disk: files that its tools wrote, in its work folder, or in its notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json

from deputy.core.events import StepEnded, StepLost

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import Folder, RunContext


MOST_PATHS = 200
_LONGEST_PATH = 300
_LETTERS_READ = 200_000
_BETWEEN = str.maketrans(dict.fromkeys("`'\"()[]{}<>,;|*", " "))


class ChangedFilesArgs(Struct, frozen=True, kw_only=True):
    """Where to look, and since when a file must have changed."""

    named: tuple[str, ...]
    work_folder: str
    since: float


async def changed_files(run: RunContext, history: History, agent: AgentContext, work_folder: str) -> tuple[str, ...]:
    """The files that were written or changed since the work was asked for, those of its tools first."""
    named = tuple(path for path in paths_named(history.notes) if path not in history.changed)
    if not named and not work_folder:
        return tuple(history.changed)
    args = ChangedFilesArgs(named=named, work_folder=work_folder, since=run.state.requested_at)
    ended = await run.step("changed_files", _stat_files, args, view=agent.folder)
    if isinstance(ended, StepLost) or ended.result is UNSET:
        raise TypeError("looking may be repeated, is never lost and has a result")
    return tuple(dict.fromkeys((*history.changed, *json.decode(ended.result, type=list[str]))))


async def _stat_files(args: ChangedFilesArgs, folder: Folder) -> StepEnded:
    found = list(await folder.changed_in(args.work_folder, args.since)) if args.work_folder else []
    for fact in await folder.facts(args.named):
        is_new = fact.modified_at is not None and fact.modified_at >= args.since
        if fact.exists and fact.is_inside and fact.is_file and fact.is_touched and is_new and not fact.is_kept:
            found.append(fact.path)
    return StepEnded(step="changed_files", result=Raw(json.encode(found)))


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
