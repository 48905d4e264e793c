"""What work that reached a limit has left on disk: files that its tools wrote, in its work folder, or in its notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json

from deputy.core.events import StepEnded, StepLost
from deputy.core.note_paths import paths_named

if TYPE_CHECKING:
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import Folder, RunContext


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
