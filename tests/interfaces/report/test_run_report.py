"""The report of a run: all of it is there, nothing hostile becomes markup, and no secret is in it."""

import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from msgspec import Raw, json
from tests.support.hostile_markup import HOSTILE

from deputy.core.errors import Error
from deputy.core.events import (
    Admitted,
    Event,
    MessageAdded,
    ModelCallBegun,
    ModelCallEnded,
    Noted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    Requested,
    Retried,
    Returned,
    RunOpened,
    Started,
    ToolCallBegun,
    ToolCallEnded,
)
from deputy.core.foreign_text import plain
from deputy.core.outcome import Artifact, Blocked, Completed, Fallback, Outcome, Partial, Usage
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.interfaces.report.run_report import STYLE, write_report
from deputy.testing.memory_journal import MemoryDisk
from deputy.testing.memory_queries import MemoryQueries

TOP = "sess_1_topaaa"
ROOT = Lineage.root(TOP)
VOID = {"meta", "br", "hr"}
TAGS = VOID | {"html", "head", "title", "style", "body", "main", "header", "section", "article", "h1", "h2", "h3", "h4"}
TAGS |= {"p", "div", "span", "strong", "em", "s", "a", "ul", "ol", "li", "dl", "dt", "dd", "pre", "code", "blockquote"}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td", "details", "summary", "svg", "rect", "line", "text"}
ATTRIBUTES = {"lang", "charset", "name", "content", "http-equiv", "class", "id", "href", "rel", "title", "open", "role"}
ATTRIBUTES |= {"height", "width", "x", "y", "x1", "x2", "y1", "y2", "aria-label", "text-anchor", "stroke-width"}


def journal(*texts: str, ending: type[Outcome] = Partial) -> MemoryQueries:
    """A run with one subagent for each text, which is in every field that can hold it."""
    disk = MemoryDisk()
    append(disk, TOP, RunOpened(lineage=ROOT, prompt=texts[0], label="top", command="run", model="m"), Started())
    for number, text in enumerate(texts):
        append(disk, f"sess_1_{number}", *everywhere(f"sess_1_{number}", text, ending))
    append(disk, TOP, Returned(outcome=Completed(lineage=ROOT, summary="All is done.", report=texts[-1])))
    return MemoryQueries(disk, lambda: 500.0)


def append(disk: MemoryDisk, run: str, *events: Event) -> None:
    records = disk.records.setdefault(run, [])
    for event in events:
        at = 100.0 + len(records)
        key = {"returned": "returned:0"}.get(event.kind, f"k{len(records) // 2}")
        key += {"model_call_begun": ".begun", "tool_call_begun": ".begun", "question_asked": ".asked"}.get(
            event.kind, ""
        )
        records.append(Record(run=run, seq=len(records) + 1, key=key, at=at, clock=at, event=event))


def everywhere(run: str, text: str, ending: type[Outcome]) -> list[Event]:
    lineage = Lineage(
        session_id=run, root_id=TOP, depth=1, path=(Hop("orchestrator", "orchestrator"), Hop(text, "agent"))
    )
    request = Request(
        session_id=run, target=Hop(text, "agent"), prompt=text, caller=ROOT, caller_grant=Grant(tools=frozenset({text}))
    )
    said = {"role": "assistant", "text": text, "tool_calls": [{"id": text, "name": text, "arguments": {text: text}}]}
    error = Error(type=text, code=text, message=text, recoverable=True, recommendation=text)
    outcome = ending(
        lineage=lineage,
        summary=text[:500],
        report=text,
        notes=(text,),
        artifacts=(Artifact(type=text, path=text, summary=text),),
        branch=text,
        errors=(error,),
        warnings=(text,),
        next_steps=text,
        model=text,
        backend=text,
        fallbacks=(Fallback(left=text, taken=text, reason=text),),
        **({"question": text} if ending is Blocked else {}),
    )
    call = Raw(json.encode({"path": text, text: [text, {text: text}]}))
    return [
        Requested(request=request, label=text, command=text, model=text, parent=TOP),
        Admitted(lineage=lineage, grant=Grant(tools=frozenset({text}))),
        Started(backend=text, model=text),
        MessageAdded(message=Raw(json.encode({"role": text, "text": text}))),
        ModelCallBegun(model=text),
        ModelCallEnded(model=text, message=Raw(json.encode(said)), usage=Usage(input=9, output=1, requests=1)),
        ToolCallBegun(tool=text, call=text, arguments=call),
        ToolCallEnded(
            tool=text, call=text, message=Raw(json.encode({"call_id": text, "content": text, "is_error": True}))
        ),
        QuestionAsked(topic="approval", question=text),
        QuestionAnswered(topic="approval", body=Raw(json.encode(text))),
        Noted(content=text),
        Retried(what=text, attempt=1, reason=text, seconds=1.0),
        Returned(outcome=outcome),
    ]


def report(queries: MemoryQueries) -> str:
    state = queries.state(TOP)
    assert state is not None
    page, _ = write_report(queries, state, 1000.0)
    return page.decode()


class Reader(HTMLParser):
    """Reads a page, and notes what a page of ours never has."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.found: list[str] = []
        self.texts: list[str] = []
        self.links: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found += [f"<{tag}>"] * (tag not in TAGS)
        self.found += [f"{tag} {name}" for name, _ in attrs if name not in ATTRIBUTES]
        self.links += [value or "" for name, value in attrs if name == "href"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.found.append(f"unbalanced </{tag}>")

    def handle_comment(self, data):
        self.found.append(f"comment {data[:40]}")

    def handle_pi(self, data):
        self.found.append(f"instruction {data[:40]}")

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.texts.append(data)


@pytest.mark.parametrize("ending", [Partial, Blocked])
def test_hostile_texts_in_every_field_stay_texts(ending):
    assert len(HOSTILE) >= 100
    read = Reader(report(journal(*HOSTILE, ending=ending)))
    assert (read.found, read.open) == ([], [])
    assert [link for link in read.links if not re.match(r"#run-[\w-]+\Z|https?://", link)] == []
    shown = "\n".join(read.texts)
    assert [text for text in HOSTILE if plain(text) not in shown] == []


def test_the_policy_of_the_page_allows_its_own_style_and_nothing_else():
    page = report(journal("text"))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert policy is not None
    assert style is not None
    assert style[1] == STYLE.read_text()
    allowed = b64encode(sha256(style[1].encode()).digest()).decode()
    assert policy[1] == f"default-src 'none'; style-src 'sha256-{allowed}'; base-uri 'none'; form-action 'none'"
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert "style=" not in page


@pytest.mark.rule("redact.where")
def test_secrets_are_in_no_field_of_the_report(monkeypatch):
    secret = "sk-ant-api03-" + "Ab3dEf7hIj" * 9
    monkeypatch.setenv("SHOP_PASSWORD", "correct-horse-battery")
    texts = (f"key {secret} end", "the correct-horse-battery is it", f"sk\\-ant\\-api03\\-{secret[13:]}")
    page = report(journal(*texts))
    assert secret not in page
    assert "correct-horse-battery" not in page
    assert "correct-horse-battery" not in "".join(Reader(page).texts)


def test_the_report_has_the_tree_the_outcome_and_the_transcript_of_each_run():
    text = "# Found\n\nTwo **problems** in [auth](https://a.example/x).\n\n- one\n- two\n\n```\ncode < here\n```"
    page = report(journal(text))
    assert "<title>completed: top</title>" in page
    assert '<a href="#run-sess_1_0">' in page
    assert '<section id="run-sess_1_0">' in page
    assert "<h4>Found</h4><p>Two <strong>problems</strong> in" in page
    assert '<a href="https://a.example/x" rel="noopener noreferrer nofollow">auth</a>' in page
    assert "<ul><li>one</li><li>two</li></ul><pre>code &lt; here\n</pre>" in page
    assert "<details><summary>Transcript: 3 messages</summary>" in page
    assert page.count("<rect") == 2 + 4


def test_a_text_too_long_for_a_browser_is_cut_and_says_so():
    disk = MemoryDisk()
    append(disk, TOP, RunOpened(lineage=ROOT, prompt="word " * 30_000, label="a"), Started())
    page = report(MemoryQueries(disk, lambda: 500.0))
    assert "<summary>Show the whole prompt</summary>" in page
    assert "… 50,000 more characters are not in this report." in page


def test_the_tree_and_the_timeline_of_many_runs_are_folded():
    assert "<summary>51 runs</summary><table" in report(journal(*["x"] * 50))
    assert "<summary>51 lanes</summary><svg" in report(journal(*["x"] * 50))
    assert "<h2>Runs</h2><table" in report(journal("x"))


def test_a_run_that_works_says_so():
    disk = MemoryDisk()
    append(disk, TOP, RunOpened(lineage=ROOT, prompt="do", command="run"), Started(), ModelCallBegun(model="m"))
    page = report(MemoryQueries(disk, lambda: 500.0))
    assert "The run had not ended when this report was made." in page
    assert "<title>interrupted: run: do</title>" in page
