"""`deputy show ID`: show the state and the outcome of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from deputy.core.outcome import how_to_answer, how_to_resume_call
from deputy.interfaces.cli.journal_access import not_found, open_journal
from deputy.interfaces.cli.output import show, show_json
from deputy.interfaces.text_lines import one_line

if TYPE_CHECKING:
    from deputy.journal.sqlite.reader import JournalReader

_ANSWERED, _DROPPED = "It has been answered.", "It has been cancelled."
_LEFT_OUT = frozenset({"outcome", "usage", "own_usage", "delegation_path"})


@click.command(
    "show", epilog="\b\nExamples:\n  deputy show sess_1763190000_x7k2ab\n  deputy show sess_1763190000_x7k2ab --json"
)
@click.argument("run", metavar="ID")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(run: str, as_json: bool) -> None:
    """Show the state and the outcome of a run."""
    from deputy.journal.queries import show_run

    with open_journal() as reader:
        form = None if reader is None else show_run(reader, run)
        answered = [] if reader is None or form is None or as_json else _answered(reader, run)
    if form is None:
        not_found(run)
    if as_json:
        show_json(form)
    else:
        page = _page(form)
        for asked, became in answered:
            page = page.replace(how_to_answer(asked), became)
        show(page)


def _answered(reader: JournalReader, run: str) -> list[tuple[str, str]]:
    """The runs of the tree that no longer wait, each with the text that replaces how to answer it."""
    state = reader.state(run)
    tree = [] if state is None or state.lineage is None else reader.tree(state.lineage.root_id)
    settled = [one for one in tree if one.status not in ("blocked", "waiting")]
    is_call = state is not None and state.command == "delegate"
    dropped = f"{_DROPPED} {how_to_resume_call(run)}" if is_call else _DROPPED
    return [(one.run, dropped if one.status == "cancelled" else _ANSWERED) for one in settled]


def _page(form: dict[str, Any]) -> str:
    usage = form["usage"]
    lines = [
        *(f"{name}: {_value(value)}" for name, value in form.items() if name not in _LEFT_OUT and value is not None),
        f"delegation_path: {' → '.join(form['delegation_path'])}",
        f"usage: {'~' * usage['estimated']}in={usage['input']:,} out={usage['output']:,} cached={usage['cached']:,}",
    ]
    outcome = form["outcome"]
    if outcome is not None:
        lines += ["", f"{outcome['status']}: {outcome['summary']}"]
        lines += [f"- {error.message} {error.recommendation}" for error in outcome["errors"]]
        lines += [f"- warning: {warning}" for warning in outcome["warnings"]]
        lines += [f"- {artifact.type}: {artifact.path}" for artifact in outcome["artifacts"]]
        lines += ["", outcome["report"]] if outcome["report"] else []
        lines += ["", f"Next: {outcome['next_steps']}"] if outcome["next_steps"] else []
    return "\n".join(lines)


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value))) or "-"
    return one_line(str(value), 200)
