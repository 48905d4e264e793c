"""The page of one run, as `deputy show` prints it: what was asked, how it ended, what it used, what to do next."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import convert

from deputy.core.outcome import Usage, how_to_answer
from deputy.interfaces.text_lines import cost_part, elapsed, one_line_at, plain, terminal_width, tokens
from deputy.interfaces.view.progress_table import ending_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from deputy.core.errors import Error

_WIDTH = 80
_FOLDED_LINES = 24
_FOLDED_ITEMS = 10
_INDENT = "  "
_TITLE_WIDTH = 10


class PageSection(NamedTuple):
    """A titled part of the page; `markdown` is rendered at a terminal."""

    title: str
    lines: Sequence[str] = ()
    markdown: str = ""


def show_page(form: dict[str, Any], *, is_full: bool, current: Callable[[str], str]) -> None:
    """Print the page of a run; `current` updates advice that no longer holds."""
    import click

    from deputy.interfaces.view.renderers import show_markdown

    click.echo(plain(_heading(form)))
    for section in page_sections(form, is_full=is_full, current=current):
        click.echo("")
        click.secho(section.title.upper(), bold=True, color=sys.stdout.isatty() or False)
        if section.lines:
            click.echo(plain("\n".join(section.lines)))
        if section.markdown:
            show_markdown(f"{section.markdown}\n")


def page_sections(form: dict[str, Any], *, is_full: bool, current: Callable[[str], str]) -> Iterator[PageSection]:
    """The sections that have content, in order."""
    outcome: dict[str, Any] = form["outcome"] or {}
    fold = _Fold(form["session_id"], is_full)
    if form["prompt"]:
        yield PageSection("asked", fold.lines(_wrapped(form["prompt"])))
    if outcome:
        yield PageSection("outcome", _wrapped(f"{outcome['status']}: {outcome['summary']}"))
    if question := outcome.get("question") or form["question"]:
        yield PageSection("question", _wrapped(question))
    report = current(outcome.get("report") or "").rstrip()
    if report and report != outcome.get("question"):
        yield PageSection("report", markdown="\n".join(fold.lines(report.split("\n"))))
    yield PageSection("details", [*_details(form)])
    items = {
        "notes": outcome.get("notes") or (),
        "artifacts": [f"{one.type}: {one.path}" for one in outcome.get("artifacts") or ()],
        "warnings": outcome.get("warnings") or (),
    }
    for title, found in items.items():
        if found:
            yield PageSection(title, fold.items([_wrapped(one, "- ") for one in found]))
    if errors := outcome.get("errors"):
        yield PageSection("errors", [line for error in errors for line in _error(error, current)])
    if form["children"]:
        yield PageSection("subagents", fold.items([[_child(one)] for one in form["children"]]))
    if steps := [line for step in _next_steps(form, outcome) for line in _advice(current(step))]:
        yield PageSection("next", steps)


class _Fold(NamedTuple):
    """Cuts long parts, and says how to see all of them."""

    run: str
    is_full: bool

    def lines(self, lines: Sequence[str]) -> list[str]:
        return self.items([[line] for line in lines], _FOLDED_LINES, " lines")

    def items(self, items: Sequence[Sequence[str]], most: int = _FOLDED_ITEMS, what: str = "") -> list[str]:
        # One more costs less than saying that there is one.
        left = 0 if self.is_full or len(items) <= most + 1 else len(items) - most
        shown = [line for item in items[: len(items) - left] for line in item]
        return [*shown, f"{_INDENT}… {left} more{what}: deputy show {self.run} --full"] if left else shown


def _heading(form: dict[str, Any]) -> str:
    name = form["label"] or form["command"] or form["subagent"]
    return f"[{name}] {ending_mark(form['status'])} {form['status']} · {form['session_id']}"


def _details(form: dict[str, Any]) -> Iterator[str]:
    usage = convert(form["usage"], Usage)
    outcome: dict[str, Any] = form["outcome"] or {}
    # The outcome has the model that answered, also after a fallback.
    model, backend = outcome.get("model") or form["model"], outcome.get("backend") or form["backend"]
    used = f"{'~' * usage.estimated}in={usage.input:,} out={usage.output:,} cached={usage.cached:,}"
    work = [("turn", form["turns"]), ("tool call", form["tool_calls"]), ("note", form["notes"])]
    # A call has no turns of its own: its subagents have tools, and work.
    is_call = bool(form["children"]) and not form["turns"]
    rows: dict[str, Any] = {
        "command": " · ".join(filter(None, (form["command"], form["task_number"] and f"task {form['task_number']}"))),
        "path": f"{' → '.join(form['delegation_path'])} (depth {form['delegation_depth']})",
        "parent": form["parent"],
        "model": f"{model}{f' on {backend}' if backend else ''}" if model else None,
        "fallbacks": "; ".join(f"{one.left} → {one.taken}: {one.reason}" for one in outcome.get("fallbacks", ())),
        "tools": None if is_call else ", ".join(form["tools"]) or "none",
        "approved": form["always_approved"] and f"always {', '.join(form['always_approved'])}",
        "branch": outcome.get("branch"),
        "time": _time(form, outcome),
        "work": None if is_call else ", ".join(f"{number} {name}{'s' * (number != 1)}" for name, number in work),
        "usage": f"{used}, {usage.requests} request{'s' * (usage.requests != 1)}",
        "cost": usage.cost_text,
        "now": ", ".join(form["under_way"]),
    }
    for title, value in rows.items():
        if value:
            yield from _wrapped(str(value), f"{title:<{_TITLE_WIDTH}}")


def _time(form: dict[str, Any], outcome: dict[str, Any]) -> str:
    limit = f" (limit {elapsed(form['timeout'])})" if form["timeout"] else ""
    took = f", took {elapsed(outcome['duration_seconds'])}" if outcome else ""
    resumed = f", resumed {form['resumed_at']}" if form["resumed_at"] else ""
    overdue = ", overdue" if form["overdue"] else ""
    return f"started {form['started_at']}{resumed}{took}{limit}{overdue}"


def _error(error: Error, current: Callable[[str], str]) -> Iterator[str]:
    code = f" ({error.code})" if error.code else ""
    yield from _wrapped(f"{error.type}{code}: {error.message}", "- ")
    if error.recommendation:
        yield from _advice(current(error.recommendation), f"{_INDENT}→ ")


def _child(child: dict[str, Any]) -> str:
    usage, status = convert(child["usage"], Usage), f"{ending_mark(child['status'])} {child['status']}"
    used = tokens(usage.input, usage.output, estimated=usage.estimated)
    used += f" {cost_part(usage.cost)}" if usage.cost_text else ""
    line = f"{_INDENT}{child['session_id']}  {status:<11}  {used}  {child['label']}"
    return one_line_at(line, min(_WIDTH, terminal_width()))


def _next_steps(form: dict[str, Any], outcome: dict[str, Any]) -> Iterator[str]:
    run, status = form["session_id"], form["status"]
    if outcome.get("next_steps"):
        yield outcome["next_steps"]
    elif status == "waiting":
        yield f"Approve or deny it: deputy approve {run}" if form["approves"] else how_to_answer(run)
    elif status == "interrupted":
        yield f"Continue it: deputy resume {run}"
    elif not outcome:
        yield f"Follow it: deputy watch {run}"
    if form["turns"]:
        yield f"Read its conversation: deputy transcript {run}"


def _wrapped(text: str, start: str = "") -> list[str]:
    """A text within the width of the page; its own line breaks stay."""
    import textwrap

    first = f"{_INDENT}{start}"
    lines: list[str] = []
    # Redacted before a line break can come between a name and its secret.
    for line in plain(text).rstrip().split("\n"):
        indent = first if not lines else " " * len(first)
        lines += textwrap.wrap(
            line,
            min(_WIDTH, terminal_width()),
            initial_indent=indent,
            subsequent_indent=" " * len(first),
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return lines


def _advice(text: str, start: str = _INDENT) -> list[str]:
    """Advice in which a command stays on one line, to be copied."""
    flat = " ".join(text.split())
    before, colon, command = flat.rpartition(": deputy ")
    if len(start + flat) <= min(_WIDTH, terminal_width()) or not colon:
        return _wrapped(flat, start.removeprefix(_INDENT))
    return [*_wrapped(f"{before}:", start.removeprefix(_INDENT)), f"{' ' * len(start)}{_INDENT}deputy {command}"]
