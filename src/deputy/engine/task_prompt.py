"""The prompts of a delegation: the system prompt, and the task with its files or passed context."""

from __future__ import annotations

import re
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING

from msgspec import json

from deputy.core.approval import ApprovalPart, ApprovalRequest, file_text, tools_risk, whole_text
from deputy.core.errors import ContextChanged, StepFailed
from deputy.core.progress import Progress
from deputy.core.project_notes import NOTES_FILES, chosen_notes, shortened_notes
from deputy.core.request import GLOB, delegation_context
from deputy.core.short_listing import short_listing
from deputy.core.subtask.context_passing import FRESH_FILES, RELEVANT_SHARE, compose, query_of
from deputy.core.task import DELEGATE
from deputy.engine.approvals import ask_person, policy_for
from deputy.engine.history import NOTE, user_message, words_of
from deputy.engine.loop import append_user_message
from deputy.engine.ports import ToolContext
from deputy.engine.prompts import prompt
from deputy.engine.untrusted import wrap_untrusted
from deputy.engine.validate import instruction

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from deputy.core.events import MessageAdded, Requested
    from deputy.core.subtask.context_passing import Briefing, PassedFile
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.history import History
    from deputy.engine.ports import Folder, Ranker, RunContext
    from deputy.engine.services import Services

_MOST_FILES = 2000
"""How many files are looked at for the short listing."""
_SHOWS = {"Read": "Read shows a file.", "Grep": "Grep finds a word in all files."}
"""What the tools of the compact profile do."""


def system_prompt(start: Requested, services: Services, *parts: str) -> str:
    """The system prompt: the user's base prompt, the agent's own, and `parts`; siblings have the same."""
    role = start.options.role
    return joined(services.base_prompt, "" if role is None else role.prompt, *parts)


def subagent_prompt(agent: AgentContext) -> str:
    """The part of the system prompt about the subagent's tools."""
    can_write = any(not tool.traits.reads_only for tool in agent.tools.definitions())
    return _prompt_of(agent.held, is_compact=agent.is_compact, can_write=can_write)


@lru_cache(64)
def _prompt_of(held: tuple[str, ...], *, is_compact: bool, can_write: bool) -> str:
    text = prompt("compact" if is_compact else "subagent").format(
        tools=", ".join(held) or "none",
        powers="" if can_write else prompt("read_only"),
        notes=prompt("notes") if NOTE in held else "",
        shows="".join(f" {shows}" for name, shows in _SHOWS.items() if name in held),
        first="First call a tool. " if held else "",
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def run_data(run: RunContext, start: Requested, scratchpad: str) -> str:
    """The end of the first message: what differs between siblings, and so must not be in the system prompt."""
    seconds, deadline = run.state.seconds, run.lineage.deadline
    if deadline is not None and seconds is None:
        # Without a limit of its own, the time that its caller leaves it is its limit.
        seconds = float(max(0, round(deadline - run.state.began_clock)))
    context = delegation_context(run.lineage, seconds, start.request.task_context)
    return prompt("delegation_context").format(context=json.encode({**context, "scratchpad": scratchpad}).decode())


def task_text(run: RunContext, start: Requested, backend: str) -> str:
    """The task with the contract instruction for this backend; programs read the notes of a project themselves."""
    return joined(start.request.prompt, instruction(run, start.options, backend))


async def append_prompt(
    run: RunContext, agent: AgentContext, history: History, services: Services, text: str, form: str = ""
) -> None:
    """Record the first message of an agent without files: the prompt, project notes, and the form of the answer."""
    if not _has_notes(agent, services):
        await append_user_message(run, history, "task", joined(text, form))
        return
    event = await run.step("task", _task_message, agent.folder, (), (text, form), None, True, reads=True)
    history.append_user_message(words_of(event))


async def append_task(
    run: RunContext,
    start: Requested,
    agent: AgentContext,
    history: History,
    services: Services,
    backend: str,
    *more: str,
) -> None:
    """Record the first message of a delegation, with `more` at its end, and append it."""
    options, key = start.options, "task"
    if options.subtask is not None:
        if services.subtasks is None:
            raise TypeError("a subtask needs subtask services")
        form, ranker = joined(instruction(run, options, backend), *more), services.subtasks.ranker
        approved = options.context_digests
        has_notes = _has_notes(agent, services)
        event = await run.step(key, _subtask_message, agent, options.subtask, form, ranker, approved, has_notes)
    elif options.context:
        event = await _with_files(run, start, agent, services, joined(instruction(run, options, backend), *more))
    else:
        form = joined(instruction(run, options, backend), *more)
        if not (agent.is_compact and agent.tools.find(GLOB)):
            await append_prompt(run, agent, history, services, start.request.prompt, form)
            return
        event = await run.step(key, _listed_message, agent, joined(start.request.prompt, form))
    history.append_user_message(words_of(event), event.warnings, event.passed)
    for warning in event.warnings:
        agent.emit(Progress(event="warning", label=agent.label, content=warning))


async def _listed_message(agent: AgentContext, task: str) -> MessageAdded:
    """The task after a short list of the workspace's files: a small model begins with the names that exist."""
    found = await agent.tools.run(GLOB, {"pattern": "*", "limit": _MOST_FILES}, ToolContext(held=agent.held))
    listing = "" if found.is_error or found.is_our_own else short_listing(found.text.splitlines())
    if not listing:
        return user_message(task)
    fenced = wrap_untrusted(listing, GLOB, agent.random_string)
    return user_message(joined(prompt("listing").format(listing=fenced), task))


async def _with_files(
    run: RunContext, start: Requested, agent: AgentContext, services: Services, form: str
) -> MessageAdded:
    """The task with its files; a file that changed since the approval is asked for again."""
    options, text = start.options, (start.request.prompt, form)
    approved: Mapping[str, str] | None = options.context_digests
    has_notes = _has_notes(agent, services)
    if not approved:
        return await run.step("task", _task_message, agent.folder, options.context, text, None, has_notes)
    # The approval covers the caller's files, even if the task has its own worktree.
    folder = services.files.open(agent.grant, options.root)
    for number in count(1):
        key = "task" if number == 1 else f"task.{number}"
        try:
            return await run.step(key, _task_message, folder, options.context, text, approved, has_notes)
        except StepFailed as failed:
            asking, begun = f"{key}:approval", f"task.{number + 1}"
            policy = policy_for(run, asking, agent.approval, begun=begun, ended=())
            if failed.error.code != "CONTEXT_CHANGED" or policy == "refuse":
                raise
            if policy == "granted":
                # --yes approves the files as they are now.
                approved = None
                continue
            verdict = await ask_person(
                run,
                asking,
                partial(_files_request, start, agent.grant.tools, folder, failed.error.message),
                begun=begun,
                emit=agent.emit,
                approval=agent.approval,
                folder=folder,
            )
            if not verdict.is_yes:
                raise
            approved = verdict.request.digests
    raise AssertionError("the loop ends with a message or an error")


async def _files_request(start: Requested, tools: Collection[str], folder: Folder, reason: str) -> ApprovalRequest:
    """The approval request for context files that changed after they were approved."""
    files = await folder.digests(start.options.context)
    shown = "\n".join(map(file_text, files))
    parts = (
        ApprovalPart(name="changed", text=reason),
        ApprovalPart(name="context", text=shown),
        ApprovalPart(name="prompt", text=whole_text(start.request.prompt)),
    )
    risk = tools_risk(tools)
    return ApprovalRequest(tool=DELEGATE, title="Use the changed files", parts=parts, risk=risk, files=tuple(files))


async def _task_message(
    folder: Folder,
    paths: Sequence[str],
    task: tuple[str, str],
    approved: Mapping[str, str] | None,
    has_notes: bool,
) -> MessageAdded:
    """The files, the prompt, project notes, and last the form of the answer."""
    files = await folder.before_prompt(paths, approved)
    if files.changed:
        raise ContextChanged(files.changed)
    text, form = task
    notes = await _project_notes(folder, paths) if has_notes else ""
    return user_message(joined(files.text, text, notes, form), files.warnings)


def _has_notes(agent: AgentContext, services: Services) -> bool:
    """Whether it gets the notes of the project; a small model needs the room."""
    return services.has_project_notes and not agent.is_compact


async def _project_notes(folder: Folder, given: Collection[str] = ()) -> str:
    """The notes of the project around the agent's folder; empty if it has none, or if they are a context file."""
    found = chosen_notes(await folder.named(NOTES_FILES))
    if found is None or found.path in given:
        return ""
    text, is_cut = shortened_notes(found.text)
    more = f"\n\n(The rest is left out; Read {found.path} for all of it.)" if is_cut else ""
    return prompt("project_notes").format(path=found.path, text=text + more)


async def _subtask_message(
    agent: AgentContext, briefing: Briefing, form: str, ranker: Ranker, approved: Mapping[str, str], has_notes: bool
) -> MessageAdded:
    """A subtask with its context; an unreadable file becomes a warning."""
    now = await agent.folder.digests(tuple(approved)) if approved else ()
    if changed := [file.path for file in now if file.sha256 != approved[file.path]]:
        raise ContextChanged(changed)
    named = await agent.folder.named(briefing.file_paths) if briefing.file_paths else ()
    is_fresh = briefing.settings.fresh_context == "enabled"
    matching = await _matching(agent.folder, ranker, briefing, {file.path for file in named}) if is_fresh else ()
    text, passed = compose(
        briefing,
        named=named,
        matching=matching,
        fence=lambda text, source: wrap_untrusted(text, " ".join(source.split()), agent.random_string),
    )
    notes = await _project_notes(agent.folder, briefing.file_paths) if has_notes else ""
    return user_message(joined(text, notes, form), passed.warnings, passed)


async def _matching(folder: Folder, ranker: Ranker, briefing: Briefing, named: set[str]) -> Sequence[PassedFile]:
    """The files relevant to the request, best first."""
    files = [file for file in await folder.candidates() if file.path not in named]
    # The path is part of the ranked text.
    scores = await ranker.rank(query_of(briefing.request), [f"{file.path}\n{file.text}" for file in files])
    least = RELEVANT_SHARE * max(scores, default=0.0)
    best = sorted(
        (index for index, score in enumerate(scores) if score > max(0.0, least)),
        key=lambda index: (-scores[index], files[index].path),
    )
    return [files[index] for index in best[:FRESH_FILES]]


def joined(*parts: str) -> str:
    """The parts that are not empty, as paragraphs."""
    return "\n\n".join(filter(None, parts))
