"""Hostile texts in every field of a journal, through the page, its stream, reports, completion, metrics and editors.

Secrets of every covered form, sequences for terminals, invisible characters, HTML, shell commands and broken frames.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from click.shell_completion import get_completion_class
from click.testing import CliRunner
from tests.core.redaction.samples import secret_lines
from tests.support import busy_journal
from tests.support.busy_journal import BusyJournal

from deputy.core.events import Record
from deputy.core.progress import Progress
from deputy.interfaces.acp.session_updates import SessionUpdates
from deputy.interfaces.cli import COMPLETE_VARIABLE
from deputy.interfaces.cli import deputy as command_line
from deputy.interfaces.web.web_server import WebOptions, serving
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.rule("redact.where"), pytest.mark.rule("text.visible")]

LINES = secret_lines()
TRICKS = (
    "\x1b]0;title\x07\x1b[31mred", "\x9b31m", "a\u202eb", "a\u2028b\u2029c", "\u2066x\u2069", "a\u200bb", "\U000e0041x",
    "<img src=x onerror=alert(1)>", '"><script>alert(1)</script>', "</style><svg onload=alert(1)>",
    "$(touch pwned)", "`touch pwned`", "';touch pwned;'", "|touch pwned", "-rf", "--yes", "~root", "*", "{a,b}", "!!",
    "x\r\n\r\nHTTP/1.1 200 OK", "x\n\nevent: reset\ndata: {}\n\n", '"} 1\nevil{a="', '\\"} 9\nevil 1',
)  # fmt: skip
LABELS = (*(line for line, _ in LINES[::16]), *TRICKS)
EVERYTHING = [*(line for line, _ in LINES), *TRICKS]
WHOLE = "\n\n".join(EVERYTHING)
NOTES = ["\n\n".join(EVERYTHING[at : at + 100]) for at in range(0, len(EVERYTHING), 100)]
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\U000e0000-\U000e007f]")


async def fill(home: Path) -> list[str]:
    """Runs whose labels, agents, models, tools, arguments, notes and questions are hostile; one has all of it."""
    async with SqliteJournal(home, fsync="off") as journal:
        busy = BusyJournal(journal)
        top, lease = await busy.root("top", prompt=WHOLE)
        runs = [top]
        for number, text in enumerate((*LABELS, WHOLE)):
            label = "all" if text is WHOLE else text
            busy_journal.MODEL = label
            run, child = await busy.child(top, lease, label, prompt=text, agent=label)
            runs.append(run)
            for event in ("warning", "tool_call"):
                busy.show(run, Progress(event=event, label=label, tool=label, args=text[:300], reason=text))
            await busy.turns(child, 1, tool=label)
            for at, note in enumerate(NOTES if text is WHOLE else [text]):
                await busy.note(child, note, key=f"note:{at}")
            await busy.question(child, text)
            if number % 5 == 0:
                await busy.fail(run, child)
        return runs


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    home = tmp_path_factory.mktemp("hostile") / "home"
    model = busy_journal.MODEL
    runs = asyncio.run(fill(home))
    busy_journal.MODEL = model
    return home, runs


def problems(shown: str) -> list[str]:
    """Secrets and invisible characters in a text, each with what is before it."""
    found = [shown.find(spelling) for _, secret in LINES for spelling in (secret, json.dumps(secret)[1:-1])]
    found += [place.start() for place in RAW.finditer(shown)]
    return [shown[max(0, at - 60) : at + 30] for at in found if at >= 0]


def test_the_page_its_stream_the_report_and_the_metrics_show_nothing_hostile(journal):
    home, runs = journal

    async def read() -> dict[str, str]:
        shown: dict[str, str] = {}
        async with serving(WebOptions(home=home)) as page, aiohttp.ClientSession() as session:

            async def get(path: str) -> Any:
                headers = {"Authorization": f"Bearer {page.token}"}
                return await session.get(page.url + path, headers=headers)

            parts = ("", "/records?bodies=1", "/records", "/notes", "/transcript", "/report.html")
            paths = ["/api/board", "/metrics", "/api/usage", f"/api/tree/{runs[0]}"]
            paths += [f"/api/runs/{run}{part}" for run in (runs[0], *runs[-2:]) for part in parts]
            for path in paths:
                async with await get(path) as answer:
                    assert answer.status == 200, path
                    shown[path] = await answer.text()
            generation = json.loads(shown["/api/board"])["cursor"].split(".")[0]
            # The position of another server: all rows, what they do and what waits come as frames.
            async with await get(f"/api/follow?after={generation}.0.0.other.0&run={runs[-1]}") as answer:
                stream = ""
                while "event: waiting" not in stream or not stream.endswith("\n\n"):
                    stream += (await answer.content.readany()).decode()
                shown["the stream"] = stream
        return shown

    shown = asyncio.run(read())
    assert {path: problems(text) for path, text in shown.items() if problems(text)} == {}
    assert shown["the stream"].count("[redacted]") > len(LINES[::16])
    events = re.findall(r"^event: (.*)$", shown["the stream"], re.MULTILINE)
    assert events == ["rows", "doing", "waiting"]
    assert all(re.fullmatch(r"(event|id|look|data): .*|", line) for line in shown["the stream"].split("\n"))
    assert not [line for line in shown["/metrics"].splitlines() if line.startswith("evil")]
    report = shown[f"/api/runs/{runs[0]}/report.html"]
    assert "&lt;img src=x onerror" in report
    assert not re.findall(
        r"<(?:img|script|svg onload|iframe)|\son\w+=(?!alert)|javascript:", report.replace("&lt;", "")
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_no_secret_no_option_and_nothing_that_a_shell_reads(journal, shell, monkeypatch):
    home, runs = journal
    monkeypatch.setenv("DEPUTY_HOME", str(home))
    kind = get_completion_class(shell)
    assert kind is not None
    complete = kind(command_line, {}, "deputy", COMPLETE_VARIABLE)
    offered = [complete.get_completions([name], "") for name in ("show", "approve")]
    assert all(len(items) >= len(runs) for items in offered)
    for item in (one for items in offered for one in items):
        assert re.fullmatch(r"[\w.:/@+][\w.:/@+-]*", item.value), item.value
        assert problems(complete.format_completion(item).replace("\n", " ")) == []


def test_commands_that_follow_and_list_print_nothing_hostile(journal, monkeypatch):
    home, runs = journal
    monkeypatch.setenv("DEPUTY_HOME", str(home))
    for arguments in (("watch", runs[1]), ("ps", "--all"), ("show", runs[-1]), ("transcript", runs[-1])):
        for form in ((), ("--json",)):
            done = CliRunner().invoke(command_line, [*arguments, *form])
            assert done.stdout + done.stderr, arguments
            assert problems(done.stdout + done.stderr) == [], arguments


def test_an_editor_gets_no_secret_and_no_raw_character(journal, tmp_path):
    home, runs = journal
    queries = SqliteQueries.open(home)
    assert queries is not None
    with queries:
        for run in (runs[0], runs[3], runs[-1]):
            updates = SessionUpdates(run, tmp_path)
            sent = [
                one
                for record in queries.records(run)
                if isinstance(record, Record)
                for one in updates.on_record(record)
            ]
            for at, text in enumerate((*LABELS, WHOLE)):
                tool = Progress(event="tool_call", label=text, tool=text, args=text, session_id=runs[1])
                sent += updates.on_progress(tool, float(at))
                sent += updates.tables(float(at))
            sent += updates.close()
            assert problems(json.dumps(sent, ensure_ascii=False)) == []
