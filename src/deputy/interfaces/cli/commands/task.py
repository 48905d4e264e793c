"""`deputy task` and `deputy todo`: add, list and change the numbered tasks of a project."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deputy.core.errors import Unquoted, UsageError
from deputy.core.outcome import how_to_answer
from deputy.interfaces.cli.console import (
    NOTHING_FOUND,
    PARTIAL,
    Console,
    counted,
    note,
    open_journal,
    read_text,
    show,
    show_json,
    warn,
    with_console,
)
from deputy.interfaces.text_lines import one_line, page_width

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.core.project_task import ProjectTask
    from deputy.project_tasks.task_file import TaskFile

MOST_IMPORTED = 10_000


@click.group(
    epilog="\b\nExamples:\n"
    '  deputy task add "Cache the index" --language python\n'
    "  deputy task import TODO.md\n"
    "  deputy task list\n"
    "  deputy research 1"
)
def task() -> None:
    """Add, list and change the numbered tasks of a project.

    The tasks are stored in .deputy/tasks.json, which you can read and commit. `deputy research 12`, plan, implement,
    revise and review work on a task and change its status.
    """


_number = click.argument("number", metavar="NUMBER")
_complexity = click.option(
    "--complexity", type=click.Choice(["low", "medium", "high"]), help="How hard it is; its agents see it."
)
_all = click.option("--all", "everything", is_flag=True, help="Also list completed and abandoned tasks.")


@task.command()
@click.argument("title")
@click.option("--text", default="", help="The full description.")
@click.option("--language", default="", metavar="NAME", help="The language of the task; it selects the agent.")
@_complexity
@with_console()
def add(console: Console, title: str, text: str, language: str, complexity: str | None) -> None:
    """Add a task."""
    added = task_file().add(title, text=text, language=language, complexity=complexity or "", at=now_text())
    _show(console, added, "Added")
    warn_of_secrets(added)


@task.command("list")
@_all
@with_console()
def list_(console: Console, everything: bool) -> int:
    """List the open tasks."""
    return _list(console, everything)


@click.command(epilog="\b\nExamples:\n  deputy todo\n  deputy todo --all --json")
@_all
@with_console()
def todo(console: Console, everything: bool) -> int:
    """List the open tasks."""
    return _list(console, everything)


def _list(console: Console, everything: bool) -> int:
    from deputy.core.project_task import OVER

    tasks = [task for task in task_file().tasks() if everything or task.status not in OVER]
    width = max((len(str(task.number)) for task in tasks), default=0)
    if tasks or console.as_json:
        lines = (line for task in tasks for line in _lines(task, width))
        console.show({"tasks": [_form(task) for task in tasks]}, lines)
    else:
        note('No tasks. Add one: deputy task add "…"')
    return 0 if tasks else NOTHING_FOUND


def _lines(task: ProjectTask, width: int) -> Iterator[str]:
    """A task in a list: its title, the question that blocks it, and its artifacts."""
    head = f"{task.number:>{width}}  {task.status:<11}  "
    indent = " " * len(head)
    yield f"{head}{one_line(task.title, page_width() - len(head))}"
    if task.question:
        yield indent + one_line(f"asks: {task.question}", page_width() - len(indent))
    if task.artifacts:
        artifacts = f"{counted(len(task.artifacts), 'artifact')}: {', '.join(task.artifacts)}"
        yield indent + one_line(artifacts, page_width() - len(indent))


@task.command("show")
@_number
@with_console()
def show_(console: Console, number: str) -> None:
    """Show a task with its text, artifacts, history and latest branch."""
    task = task_file().find(one_number(number))
    branch, worktree = _last_changes(task)
    form = {**_form(task), "branch": branch or None, "worktree": worktree or None}
    console.show(form, _described(task, branch, worktree))


@task.command()
@_number
@click.option("--title", help="The new title.")
@click.option("--text", help="The new description.")
@click.option("--language", metavar="NAME", help="The new language.")
@_complexity
@with_console()
def edit(console: Console, number: str, **given: str | None) -> None:
    """Change the title, text, language or complexity of a task."""
    from msgspec import structs

    from deputy.project_tasks.task_file import check_title

    fields = {name: value for name, value in given.items() if value is not None}
    if not fields:
        raise UsageError("task edit", Unquoted("no change"), "give --title, --text, --language or --complexity")
    if "title" in fields:
        check_title(fields["title"])
    changed = task_file().change(one_number(number), lambda task: structs.replace(task, **fields))
    _show(console, changed, "Changed")
    warn_of_secrets(changed)


@task.command()
@_number
@with_console()
def abandon(console: Console, number: str) -> None:
    """Close a task that will not be done."""
    from deputy.core.project_task import abandoned

    _show(console, task_file().change(one_number(number), lambda task: abandoned(task, now_text())), "Abandoned")


@task.command()
@_number
@with_console()
def reopen(console: Console, number: str) -> None:
    """Reopen a completed, abandoned or blocked task."""
    from deputy.core.project_task import reopened

    _show(console, task_file().change(one_number(number), lambda task: reopened(task, now_text())), "Reopened")


@task.command()
@_number
@with_console()
def release(console: Console, number: str) -> None:
    """Free a task whose session is not known on this machine.

    The session ran on another machine, or was removed.
    """
    from deputy.core.project_task import released

    tasks = task_file()
    work = tasks.find(one_number(number)).work
    if work is None:
        raise UsageError(f"task {number}", Unquoted("no command at work"), "there is nothing to release")
    with open_journal() as queries:
        if queries is not None and queries.state(work.session_id) is not None:
            remedy = f"resume it (deputy resume {work.session_id}) or cancel it (deputy cancel {work.session_id})"
            raise UsageError(f"task {number}", Unquoted(f"{work.command} at work"), remedy)
    _show(console, tasks.change(one_number(number), lambda task: released(task, work, now_text())), "Released")


@task.command()
@_number
@with_console()
def remove(console: Console, number: str) -> None:
    """Remove a task from the list."""
    _show(console, task_file().remove(one_number(number)), "Removed")


@task.command("import")
@click.argument("file", metavar="FILE|-")
@click.option("--done", "with_done", is_flag=True, help="Also add checked items.")
@click.option("--language", default="", metavar="NAME", help="The language of the new tasks.")
@with_console()
def import_(console: Console, file: str, with_done: bool, language: str) -> int:
    """Add the items of a Markdown TODO list.

    If the list has checkboxes, only those items are added, else all list items. Text that is indented below an item
    becomes the text of the task. Items whose title is already a task are skipped, so a list can be imported again;
    items with the same title become one task. At most 10,000 tasks are added at once; if there are more, the exit code
    is 4.
    """
    from deputy.project_tasks.todo_list import read_todo_list

    tasks = task_file()
    known = {task.title for task in tasks.tasks()}
    items = [item for item in read_todo_list(read_text(file)) if with_done or not item.is_done]
    new: dict[str, dict[str, None]] = {}
    for item in items:
        if item.title not in known:
            new.setdefault(item.title, {})[item.text] = None
    left = max(0, len(new) - MOST_IMPORTED)
    texts = {title: "\n\n".join(filter(None, parts)) for title, parts in islice(new.items(), MOST_IMPORTED)}
    added = tasks.add_all([(title, text, language) for title, text in texts.items()], at=now_text()) if new else ()
    if console.as_json:
        known = len(items) - len(added) - left
        show_json({"added": [_form(task) for task in added], "known": known, "left": left})
    else:
        for one in added:
            show(f"{one.number}  {one_line(one.title, page_width() - 6)}")
        note(f"Added {len(added)} of {len(items)} items.")
    warn_of_secrets(*added)
    if left:
        again = f"{left:,} items were not added (at most {MOST_IMPORTED:,} at once); import the list again for the rest"
        warn(again)
        return PARTIAL
    return 0 if added else NOTHING_FOUND


def _form(task: ProjectTask) -> dict[str, Any]:
    """A task as JSON; the status is always included."""
    from msgspec import to_builtins

    return {"number": task.number, "title": task.title, "status": task.status, **to_builtins(task)}


def _last_changes(task: ProjectTask) -> tuple[str, str]:
    """The branch of the latest session that has one, and its worktree if it still exists."""
    for entry in reversed(task.history):
        worktree = worktree_of(entry.session_id)
        if entry.branch or worktree:
            return entry.branch, "" if worktree is None else str(worktree)
    return "", ""


def worktree_of(session_id: str) -> Path | None:
    """The worktree of a session, if it still exists."""
    from deputy.journal.home import WORKTREES, home_path
    from deputy.journal.transcript import safe_id

    folder = home_path() / WORKTREES / safe_id(session_id)
    return folder if session_id and folder.is_dir() else None


_DETAILS = ("language", "complexity", "question")


def _described(task: ProjectTask, branch: str, worktree: str) -> list[str]:
    lines = [f"{task.number}  {task.title}", "", f"status      {task.status}"]
    lines += [f"{name:<11} {value}" for name in _DETAILS if (value := getattr(task, name))]
    if task.work is not None:
        lines.append(f"at work     {task.work.command}, {task.work.session_id}, since {task.work.since}")
    if task.asked is not None:
        lines.append(f"blocked     by {task.asked.command}. {how_to_answer(task.asked.session_id)}")
    if branch:
        lines.append(f"branch      {branch}")
    if worktree:
        lines.append(f"worktree    {worktree}")
    if task.text:
        lines += ["", task.text]
    if task.artifacts:
        lines += ["", "Artifacts:", *(f"  {path}" for path in task.artifacts)]
    lines += ["", "History:"]
    for entry in task.history:
        ended = f": {entry.outcome}" if entry.outcome else ""
        lines.append(f"  {entry.at}  {entry.what}{ended}{f'  {entry.session_id}' if entry.session_id else ''}")
    return lines


def warn_of_secrets(*tasks: ProjectTask) -> None:
    """Warn of tasks whose title or text has a secret: the task file holds it readable, and may be committed."""
    from deputy.processes.outgoing import process_redactor

    redact = process_redactor().redact
    for task in tasks:
        if redact(text := f"{task.title}\n{task.text}") != text:
            warn(
                f"warning: task {task.number} has a secret, which .deputy/tasks.json stores readable. "
                f"Remove it: deputy task edit {task.number} --title … --text …"
            )


def _show(console: Console, task: ProjectTask, what: str) -> None:
    console.show(_form(task), f"{what}: {task.number}  {one_line(task.title, page_width() - 20)} ({task.status})")


def one_number(text: str) -> int:
    """The number of one task, as it was typed."""
    from deputy.core.project_task import read_numbers

    numbers = read_numbers(text)
    if numbers is None or len(numbers) != 1:
        raise UsageError("NUMBER", text, "give the number of one task, like 12")
    return numbers[0]


def task_file() -> TaskFile:
    """The tasks of this project, after those whose session has ended are updated."""
    from deputy.project_tasks.sync import unsettled
    from deputy.project_tasks.task_file import TaskFile, project_root

    tasks = TaskFile(project_root(Path.cwd()))
    if unsettled(tasks):
        from deputy.interfaces.task_sync import sync_from

        with open_journal() as queries:
            if queries is not None:
                sync_from(queries, tasks)
    return tasks


def now_text() -> str:
    """The time for the history of a task."""
    from deputy.core.request import timestamp

    return timestamp(time.time())


COMMANDS = {"task": task, "todo": todo}
