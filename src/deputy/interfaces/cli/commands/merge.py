"""`deputy merge NUMBER`: merge the branch of a task into the branch that is checked out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from deputy.core.errors import Unquoted, UsageError
from deputy.core.project_task import last_branch
from deputy.interfaces.cli.console import (
    REJECTED,
    Console,
    RunOptions,
    note,
    with_console,
    with_run_options,
)
from deputy.interfaces.nesting import refuse_below_run
from deputy.interfaces.safe_text import print_error

if TYPE_CHECKING:
    from deputy.core.approval import ApprovalRequest
    from deputy.core.project_task import HistoryEntry, ProjectTask
    from deputy.tools.git_merge import MergePlan

EXAMPLES = """\b
Examples:
  deputy implement 3
  deputy merge 3

\b
The commit that you approve is merged, even if its branch moves meanwhile.
A conflict is found before any file is touched, and leaves the tree as it
was. Hooks of the repository are not run, and nothing is signed or pushed.

\b
Exit codes:
  0 merged                      1 conflict, or git failed
  2 the tree is not ready       3 nothing to merge    6 not approved"""


@click.command(epilog=EXAMPLES)
@click.argument("number", metavar="NUMBER")
@with_run_options("yes", yes="Merge without asking.")
@with_console()
def command(console: Console, number: str, options: RunOptions) -> int:
    """Merge the branch of a task into the branch that is checked out.

    Shows the commit and what it changes, and asks. The working tree must
    have no uncommitted changes, other than the tasks and their documents.
    """
    refuse_below_run("deputy merge")
    from deputy.config import load_effective_settings
    from deputy.interfaces.cli.commands.delegate import print_refused
    from deputy.interfaces.cli.commands.task import one_number, task_file
    from deputy.interfaces.cli.terminal_prompt import approval_for
    from deputy.project_tasks.task_file import project_root
    from deputy.tools.git_merge import NothingToMerge, open_repository

    tasks, project = task_file(), project_root(Path.cwd())
    task = tasks.find(one_number(number))
    entry = _branch_entry(task)
    if entry is None:
        return console.not_found(f"task {task.number} has no branch; `deputy implement {task.number}` makes one")
    policy = load_effective_settings(str(project)).approval
    approval = approval_for(policy, yes=options.yes)
    with open_repository(str(project), os.environ) as repository:
        try:
            plan = repository.plan(entry.branch, f"Merge task {task.number}: {task.title}")
        except NothingToMerge as error:
            return console.not_found(print_error(error))
        request = _request(task, entry, plan, str(project))
        if approval == "refuse":
            print_refused(request, policy)
        is_approved = approval == "granted" or (approval == "ask" and _is_yes(request))
        if is_approved:
            repository.apply(plan)
    if is_approved:
        tasks.change(task.number, lambda now: _merged(now, plan))
    console.show(_form(task, plan, is_merged=is_approved), _described(plan) if is_approved else "Not merged.")
    if is_approved and plan.has_submodules:
        note("Submodules have changed. Update them: git submodule update --init --recursive")
    return 0 if is_approved else REJECTED


def _branch_entry(task: ProjectTask) -> HistoryEntry | None:
    """The latest end of a session that left a branch; refused while the task is being changed."""
    if task.work is not None and task.work.command == "implement":
        remedy = (
            f"wait for it (deputy watch {task.work.session_id}) or cancel it (deputy cancel {task.work.session_id})"
        )
        raise UsageError(f"task {task.number}", Unquoted("implement at work"), remedy)
    return last_branch(task)


def _request(task: ProjectTask, entry: HistoryEntry, plan: MergePlan, project: str) -> ApprovalRequest:
    from deputy.core.approval import ApprovalPart, ApprovalRequest, whole_text

    # Aligned columns would be shown as counted spaces.
    stat = "\n".join(" ".join(line.split()) for line in plan.stat.splitlines())
    how = "fast-forward" if plan.is_fast_forward else f"merge commit {plan.result}"
    fields = {
        "task": f"{task.number}  {task.title}",
        "branch": entry.branch,
        "commit": plan.changes.commit,
        "made by": f"{entry.what} {entry.outcome}  {entry.session_id}",
        "not merged": _left_behind(entry),
        "changes": stat,
        "into": f"{plan.into} ({plan.head})",
        "how": how,
    }
    parts = tuple(ApprovalPart(name=name, text=whole_text(text)) for name, text in fields.items() if text)
    return ApprovalRequest(tool="merge", title="Merge a branch", parts=parts, risk="high", folder=project)


def _left_behind(entry: HistoryEntry) -> str:
    """The worktree of the session, if it has files that are in no commit."""
    from deputy.interfaces.cli.commands.task import worktree_of
    from deputy.tools.git_worktrees import WorktreeCleanup

    worktree = worktree_of(entry.session_id)
    return f"files in no commit, in {worktree}" if worktree and WorktreeCleanup(os.environ).holds_work(worktree) else ""


def _is_yes(request: ApprovalRequest) -> bool:
    import asyncio

    from deputy.core.approval import Decision, Question
    from deputy.core.events import APPROVAL
    from deputy.interfaces.cli.terminal_prompt import TerminalPrompt

    async def ask() -> bool:
        question = Question(session_id="", label="", topic=APPROVAL, text="", request=request, digest=request.digest)
        answer = await TerminalPrompt(asyncio.Event()).answer(question)
        return isinstance(answer, Decision) and answer.choice == "yes"

    return asyncio.run(ask())


def _merged(task: ProjectTask, plan: MergePlan) -> ProjectTask:
    from deputy.core.project_task import HistoryEntry
    from deputy.interfaces.cli.commands.task import now_text

    entry = HistoryEntry(at=now_text(), what=f"{plan.changes.branch} merged into {plan.into}")
    return structs.replace(task, history=(*task.history, entry))


def _form(task: ProjectTask, plan: MergePlan, *, is_merged: bool) -> dict[str, Any]:
    return {
        "task": task.number,
        "merged": is_merged,
        "branch": plan.changes.branch,
        "commit": plan.changes.commit,
        "into": plan.into,
        "result": plan.result,
        "diff_stat": plan.stat,
    }


def _described(plan: MergePlan) -> list[str]:
    head = f"Merged {plan.changes.branch} ({plan.changes.commit[:12]}) into {plan.into}."
    return [head, plan.stat.rstrip("\n"), f"To undo it: git reset --keep {plan.head[:12]}"]
