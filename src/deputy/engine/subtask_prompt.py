"""How a subtask begins: its files are read, what matches is gathered, and all that it is told is put together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.subtask.context_passing import FRESH_FILES, RELEVANT_SHARE, Briefing, PassedFile, compose, query_of
from deputy.engine.history import user_message
from deputy.engine.ports import Folder, Ranker
from deputy.engine.untrusted import wrap_untrusted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.events import MessageAdded
    from deputy.engine.delegate import TaskArgs


class BriefingView(Struct, frozen=True, kw_only=True):
    """What a subtask's task is put together from."""

    folder: Folder
    ranker: Ranker
    briefing: Briefing
    form: str
    """What it is told of the form of its return."""
    random_string: Callable[[str, int], str]


async def subtask_prompt(args: TaskArgs, view: BriefingView) -> MessageAdded:
    """The task with its context, as the subtask is told it; a file that cannot be had is a warning."""
    briefing = view.briefing
    named = await view.folder.named(args.paths) if args.paths else ()
    is_fresh = briefing.settings.fresh_context == "enabled"
    matching = await _matching(view, {file.path for file in named}) if is_fresh else ()
    text, passed = compose(
        briefing,
        named=named,
        matching=matching,
        fence=lambda text, source: wrap_untrusted(text, " ".join(source.split()), view.random_string),
    )
    return user_message(f"{text}\n\n{view.form}" if view.form else text, passed.warnings, passed)


async def _matching(view: BriefingView, named: set[str]) -> Sequence[PassedFile]:
    """The files that are relevant to the request, the best first."""
    files = [file for file in await view.folder.candidates() if file.path not in named]
    # The path is a part of what a file says.
    scores = await view.ranker.rank(query_of(view.briefing.request), [f"{file.path}\n{file.text}" for file in files])
    least = RELEVANT_SHARE * max(scores, default=0.0)
    best = sorted(
        (index for index, score in enumerate(scores) if score > max(0.0, least)),
        key=lambda index: (-scores[index], files[index].path),
    )
    return [files[index] for index in best[:FRESH_FILES]]
