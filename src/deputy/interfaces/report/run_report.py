"""The report of a run and everything below it: tree, timeline, outcomes, notes and transcripts on one page."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, convert, json

from deputy import __version__
from deputy.core.outcome import Usage
from deputy.core.request import timestamp
from deputy.core.visible_text import visible_json
from deputy.interfaces.report.safe_html import Html, SafeHtml
from deputy.interfaces.report.timeline import LEGEND, Lane, is_open, lane_of, timeline_svg
from deputy.interfaces.text_lines import cost_part, elapsed, one_line, tokens
from deputy.interfaces.view.progress_table import ending_mark
from deputy.journal.registry import as_tree, show_run, statuses
from deputy.journal.transcript import Transcript, safe_id, transcribe
from deputy.processes.outgoing import outgoing_json, process_redactor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from deputy.core.messages import Message, MessageCall
    from deputy.core.redaction import Redactor
    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries

STYLE = Path(__file__).parents[1] / "web" / "assets" / "style.css"
_TITLE_LENGTH = 120
_OPEN_LENGTH = 1200
"""A longer prompt is folded."""
_OPEN_RUNS = 50
"""The tree and the timeline of more runs are folded."""
_MESSAGE_LENGTH = 100_000
"""A longer message is cut: a report is read in a browser."""
_INDENT = "\u2007" * 2
"""Figure spaces: a browser does not join them."""


class ReportedRun(Struct, frozen=True, kw_only=True):
    """One run of the report, without secrets."""

    form: dict[str, Any]
    """As `deputy show --json` prints it."""
    transcript: Transcript | None
    lane: Lane
    depth: int
    seconds: float

    @property
    def anchor(self) -> str:
        """The id of its section."""
        return f"run-{safe_id(self.form['session_id'])}"

    @property
    def outcome(self) -> dict[str, Any]:
        """Its outcome; empty while it has none."""
        return self.form["outcome"] or {}

    @property
    def name(self) -> str:
        """What people call it."""
        return self.form["label"] or self.form["command"] or self.form["subagent"] or self.form["session_id"]

    @property
    def title(self) -> str:
        """Its name; of a parent agent with what it was asked."""
        is_named = self.form["label"] or self.form["command"] == "delegate"
        return self.name if is_named else one_line(f"{self.name}: {self.form['prompt']}", _TITLE_LENGTH)


def write_report(queries: Queries, state: State, now: float) -> tuple[bytes, int]:
    """The report as one HTML file, and the number of runs in it."""
    redactor = process_redactor()
    runs = [*_runs(queries, state, redactor)]
    return _Page(SafeHtml(redactor), runs, now).whole().encode(errors="replace"), len(runs)


def _runs(queries: Queries, top: State, redactor: Redactor) -> Iterator[ReportedRun]:
    depths: dict[str, int] = {}
    clock = queries.now()
    for status in as_tree(statuses(queries, [top, *queries.descendants(top.run)])):
        state = status.state
        depth = depths[state.run] = depths.get(state.parent or "", -1) + 1
        records = list(queries.records(state.run))
        until = clock if is_open(status) else None
        # Redacted by field: the name of a field decides what its value may show.
        form: dict[str, Any] = json.decode(outgoing_json(show_run(queries, state.run)))
        transcript = json.decode(outgoing_json(transcribe(records, state)), type=Transcript | None)
        name = form["label"] or form["command"] or form["subagent"]
        lane = lane_of(name, f"run-{safe_id(state.run)}", records, redactor, until)
        seconds = state.seconds_worked(clock if not lane.rounds else lane.rounds[-1][1])
        yield ReportedRun(form=form, transcript=transcript, lane=lane, depth=depth, seconds=seconds)


class _Page:
    """Writes the page."""

    def __init__(self, html: SafeHtml, runs: Sequence[ReportedRun], now: float) -> None:
        self._html = html
        self._runs = runs
        self._now = now

    def whole(self) -> str:
        """The whole file."""
        element, style = self._html.element, STYLE.read_text()
        allowed = b64encode(sha256(style.encode()).digest()).decode()
        policy = f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
        title = one_line(f"{self._runs[0].form['status']}: {self._runs[0].title}", _TITLE_LENGTH)
        head = (
            '<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
            '<meta name="referrer" content="no-referrer">\n'
            f"{element('title', title)}\n<style>{style}</style>"
        )
        body = element("main", *self._parts(), class_="report")
        return f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n{body}\n</body>\n</html>\n'

    def _parts(self) -> Iterator[Html]:
        element = self._html.element
        yield element("header", *self._header(self._runs[0]))
        count = len(self._runs)
        if count > 1:
            yield element("h2", "Runs")
            yield self._tree() if count <= _OPEN_RUNS else self._html.folded(f"{count:,} runs", self._tree())
        yield element("h2", "Timeline")
        yield element("p", *self._legend(), class_="quiet")
        timeline = timeline_svg([run.lane for run in self._runs], self._html)
        yield timeline if count <= _OPEN_RUNS else self._html.folded(f"{count:,} lanes", timeline)
        for run in self._runs:
            yield element("section", *self._run(run), id=run.anchor)

    def _header(self, top: ReportedRun) -> Iterator[Html]:
        element = self._html.element
        yield element("h1", top.title)
        yield element("p", self._status(top.form["status"]), " ", top.outcome.get("summary", ""))
        if top.form["ended_at"] is None:
            yield element("p", "The run had not ended when this report was made.", class_="waiting")
        made = f"Made {timestamp(self._now)} by Deputy {__version__} from run {top.form['session_id']}."
        yield element("p", made, class_="quiet")

    def _status(self, status: str) -> Html:
        element = self._html.element
        word = element("span", f" {status}", class_="word")
        return element("strong", ending_mark(status), word, class_=status, title=status)

    def _legend(self) -> Iterator[str]:
        for kind, text in LEGEND.items():
            yield self._html.element("span", "■", class_=f"span-{kind}")
            yield f" {text}  "

    def _tree(self) -> Html:
        element = self._html.element
        wide = {"class_": "number wide"}
        head = element(
            "tr",
            element("th", "Run"),
            element("th", "Status"),
            element("th", "Time", class_="number"),
            element("th", "In", **wide),
            element("th", "Out", **wide),
            element("th", "Cost", class_="number"),
            element("th", "Model", class_="wide"),
        )
        rows: list[Html] = []
        for run in self._runs:
            usage = convert(run.form["usage"], Usage)
            name = element("a", run.name, href=f"#{run.anchor}")
            rows.append(
                element(
                    "tr",
                    element("td", _INDENT * run.depth, name),
                    element("td", self._status(run.form["status"]), class_="status"),
                    element("td", elapsed(run.seconds), class_="number"),
                    element("td", f"{usage.input:,}", **wide),
                    element("td", f"{usage.output:,}", **wide),
                    element("td", usage.cost_text or "-", class_="number"),
                    element("td", run.form["model"] or "", class_="wide"),
                )
            )
        return element("table", element("thead", head), element("tbody", *rows), class_="tree")

    # --- one run ------------------------------------------------------------------------------------------------------

    def _run(self, run: ReportedRun) -> Iterator[Html]:
        html, form, outcome = self._html, run.form, run.outcome
        yield html.element("h2", run.name, " ", self._status(form["status"]))
        yield html.folded(self._figures(run), self._details(run))
        if form["prompt"]:
            yield html.element("h3", "Asked")
            text = self._text(form["prompt"])
            yield text if len(form["prompt"]) <= _OPEN_LENGTH else html.folded("Show the whole prompt", text)
        if question := outcome.get("question") or form["question"]:
            yield html.element("h3", "Question")
            yield self._text(question)
        # The report of a call repeats those of its subagents.
        if outcome.get("report") and form["command"] != "delegate":
            yield html.element("h3", "Report")
            yield html.element("div", html.markdown(outcome["report"]), class_="prose")
        yield from self._lists(outcome)
        if run.transcript is not None and run.transcript.messages:
            count = len(run.transcript.messages)
            messages = [*self._messages(run.transcript)]
            yield html.folded(f"Transcript: {count} message{'s' * (count != 1)}", *messages)

    def _figures(self, run: ReportedRun) -> str:
        usage = convert(run.form["own_usage"], Usage)
        used = f"{tokens(usage.input, usage.output, estimated=usage.estimated)} · {cost_part(usage.cost)}"
        parts = (elapsed(run.seconds), used if usage.requests else "", run.form["model"])
        return " · ".join(part for part in parts if part)

    def _details(self, run: ReportedRun) -> Html:
        form, element = run.form, self._html.element
        fallbacks: list[dict[str, str]] = run.outcome.get("fallbacks") or []
        rows: dict[str, str] = {
            "Session": form["session_id"],
            "Path": " → ".join(form["delegation_path"]),
            "Backend": form["backend"] or "",
            "Fallbacks": "; ".join(f"{one['left']} → {one['taken']}: {one['reason']}" for one in fallbacks),
            "Tools": ", ".join(form["tools"]),
            "Started": form["started_at"],
            "Resumed": form["resumed_at"] or "",
            "Ended": form["ended_at"] or "",
            "Model calls": str(form["turns"]),
            "Tool calls": str(form["tool_calls"]),
            "Branch": run.outcome.get("branch") or "",
        }
        shown = [part for name, text in rows.items() if text for part in (element("dt", name), element("dd", text))]
        return element("dl", *shown)

    def _lists(self, outcome: dict[str, Any]) -> Iterator[Html]:
        element = self._html.element
        lists: dict[str, list[str]] = {
            "Notes": list(outcome.get("notes") or ()),
            "Artifacts": [f"{one['type']}: {one['path']}" for one in outcome.get("artifacts") or ()],
            "Warnings": list(outcome.get("warnings") or ()),
            "Errors": [
                f"{one['type']}: {one['message']} {one['recommendation']}" for one in outcome.get("errors") or ()
            ],
        }
        for title, items in lists.items():
            if items:
                yield element("h3", title)
                yield element("ul", *(element("li", item, class_="text") for item in items))

    def _text(self, text: str, tag: str = "div") -> Html:
        left = len(text) - _MESSAGE_LENGTH
        end = f"\n… {left:,} more characters are not in this report." if left > 0 else ""
        return self._html.element(tag, text[:_MESSAGE_LENGTH] + end, class_="text")

    # --- transcript ---------------------------------------------------------------------------------------------------

    def _messages(self, transcript: Transcript) -> Iterator[Html]:
        html = self._html
        for damaged in transcript.damaged:
            yield html.element("p", f"A damaged record was left out: {damaged}", class_="failed")
        names: dict[str, str] = {}
        for message in transcript.messages:
            names |= {call.id: call.name for call in self._calls(message)}
            yield html.element("article", *self._message(message, names))

    def _message(self, message: Message, names: dict[str, str]) -> Iterator[Html]:
        html = self._html
        if message.tool_call_id is not UNSET:
            name = names.get(message.tool_call_id, "a tool")
            size = f"{len(message.content):,} characters"
            yield html.folded(f"Result of {name}, {size}", self._text(message.content, "pre"))
            return
        yield html.element("h4", message.role)
        if message.content:
            yield self._text(message.content)
        for call in self._calls(message):
            arguments = visible_json(call.arguments, indent=2).decode()
            title = one_line(f"→ {call.name} {visible_json(call.arguments).decode()}", _TITLE_LENGTH)
            yield html.folded(title, self._text(arguments, "pre"))

    @staticmethod
    def _calls(message: Message) -> tuple[MessageCall, ...]:
        return () if message.tool_calls is UNSET else message.tool_calls
