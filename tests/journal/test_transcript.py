"""Transcripts: the conversation as it went, at any moment, in files that labels cannot lead astray."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.journal.conftest import completed, requested

from deputy.core.events import (
    Event,
    ModelCallEnded,
    Record,
    Resumed,
    Returned,
    Started,
    StepLost,
    ToolCallBegun,
    ToolCallEnded,
)
from deputy.core.messages import INTERRUPTED_CALL, LOST_CALL
from deputy.core.state import State
from deputy.journal.sql import sql_journal
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.transcript import (
    Transcript,
    add_note,
    ending,
    markdown,
    safe_id,
    safe_label,
    scratchpad_path,
    transcribe,
    transcript_path,
)

RUN = "sess_1_aaaaaa"


def read(home: Path) -> Transcript:
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        transcript = transcribe(reader.records(RUN))
    assert transcript is not None
    return transcript


async def end(journal: SqliteJournal, run: str) -> None:
    lease = await journal.begin(run, requested(run))
    assert lease is not None
    await journal.append(lease, "started", Started(backend="native", model="m"))
    await journal.finish(lease, "returned:0", Returned(outcome=completed(run)))


async def come(path: Path) -> None:
    async with asyncio.timeout(30):
        while not path.exists():  # noqa: ASYNC110, ASYNC240  it is a file that comes
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("calm", "longest"), [(0.01, 30.0), (30.0, 0.01)], ids=["when it is calm", "anyway"])
def test_transcripts_are_written_while_the_journal_is_open(
    home: Path, monkeypatch: pytest.MonkeyPatch, calm: float, longest: float
) -> None:
    monkeypatch.setattr(sql_journal, "_CALM_SECONDS", calm)
    monkeypatch.setattr(sql_journal, "_TRANSCRIPT_SECONDS", longest)

    async def go() -> None:
        async with SqliteJournal(home, fsync="off") as journal:
            for run in (RUN, "sess_1_bbbbbb"):
                await end(journal, run)
                await come(transcript_path(home, "look", run))

    asyncio.run(go())


def test_transcripts_wait_until_nothing_ends_any_more_or_the_journal_is_closed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_journal, "_CALM_SECONDS", 30.0)
    monkeypatch.setattr(sql_journal, "_TRANSCRIPT_SECONDS", 30.0)

    async def go() -> bool:
        async with SqliteJournal(home, fsync="off") as journal:
            await end(journal, RUN)
            await asyncio.sleep(0.05)
            return transcript_path(home, "look", RUN).exists()

    assert not asyncio.run(go())
    assert transcript_path(home, "look", RUN).exists()


@pytest.mark.rule("transcript")
def test_a_subagent_leaves_its_transcript_when_it_ends(filled: Callable[..., Path]) -> None:
    home = filled(turns=2, ended=True)
    (path,) = (home / "subagent").iterdir()
    assert path == transcript_path(home, "look", RUN)
    left = json.loads(path.read_bytes())
    assert (left["label"], left["outcome"], left["session_id"]) == ("look", "success", RUN)
    assert left["started_at"].endswith("Z")
    assert left["ended_at"].endswith("Z")
    assert [message["role"] for message in left["messages"]] == ["user", "assistant", "tool", "assistant", "tool"]
    assert left["messages"][0]["content"] == f"The task of {RUN}."
    assert left["messages"][1]["tool_calls"] == [{"id": "c0", "name": "Read", "arguments": {"path": "a"}}]
    assert left["messages"][-1]["tool_call_id"] == "c1"
    assert left["usage"]["input"] == 200


@pytest.mark.rule("transcript")
def test_the_transcript_of_a_run_that_was_killed_can_be_read(filled: Callable[..., Path]) -> None:
    transcript = read(filled(turns=2))
    assert transcript.outcome == "in_progress"
    assert transcript.ended_at is None
    assert len(transcript.messages) == 5
    assert transcript.notes == ("finding 0", "finding 1")


def test_markdown_tells_the_same_to_people(filled: Callable[..., Path]) -> None:
    text = markdown(read(filled(turns=1)))
    assert text.startswith("# look\n")
    for part in ("outcome: in_progress", "## user", "## assistant", "## tool `c0`", "**Read** `c0`", "- finding 0"):
        assert part in text


def test_nothing_in_a_tools_result_closes_its_fence(filled: Callable[..., Path]) -> None:
    from msgspec.structs import replace

    from deputy.core.messages import Message

    transcript = replace(read(filled(turns=1)), messages=(Message(role="tool", content="a\n````\nb"),))
    assert "`````\na\n````\nb\n`````" in markdown(transcript)


@pytest.mark.parametrize(
    ("status", "reason", "word"),
    [
        ("completed", "", "success"),
        ("partial", "timeout", "timeout"),
        ("partial", "budget", "budget"),
        ("partial", "context_exhausted", "context_exhausted"),
        ("partial", "provider", "error"),
        ("failed", "timeout", "error"),
        ("blocked", "question", "blocked"),
        ("cancelled", "", "cancelled"),
        ("waiting", "", "in_progress"),
    ],
)
def test_an_ending_has_a_word(status: str, reason: str, word: str) -> None:
    assert ending(State(status=status, reason=reason)) == word


@given(st.text(max_size=60), st.text(min_size=1, max_size=100))
def test_neither_label_nor_id_leads_out_of_the_folder(label: str, run: str) -> None:
    home = Path("/home/of/deputy")
    for path in (transcript_path(home, label, run), scratchpad_path(home, label, run)):
        assert path.parent == home / "subagent"
        assert path.name.isascii()
        assert len(path.name) < 160
        assert path.resolve() == path


def test_ids_that_differ_have_files_that_differ() -> None:
    assert safe_id("../x") != safe_id("..\\x")
    assert safe_id("sess_1_aaaaaa") == "sess_1_aaaaaa"
    assert safe_label("../../etc/passwd") == "etc-passwd"
    assert safe_label("") == safe_label("…") == "task"


def test_notes_are_appended_to_the_scratchpad(tmp_path: Path) -> None:
    path = scratchpad_path(tmp_path, "security", RUN)
    assert path.name == f"subagent-security-{RUN}.scratch.md"
    add_note(path, "one")
    add_note(path, "two\n")
    assert path.read_text() == "one\n\ntwo\n\n"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.rule("untrusted")
def test_a_scratchpad_can_be_printed_on_a_terminal(tmp_path: Path) -> None:
    path = scratchpad_path(tmp_path, "security", RUN)
    add_note(path, "one\x1b[2J\x1b]0;title\x07\ttwo\r\nthree\x9b31m")
    assert path.read_text() == "one\ttwo\nthree\n\n"


def test_nothing_at_all_has_no_transcript() -> None:
    assert transcribe([]) is None


@pytest.mark.rule("transcript")
def test_a_call_with_an_unknown_end_is_shown_as_the_model_saw_it() -> None:
    events = [
        ("asked", requested(RUN)),
        ("tool:1.0.begun", ToolCallBegun(tool="Run", call="c1", is_repeatable=False)),
        ("tool:1.0", StepLost(step="call_tool")),
        ("other", StepLost(step="something else")),
    ]
    records = [
        Record(run=RUN, seq=n, key=key, at=1.0, clock=1.0, event=event) for n, (key, event) in enumerate(events, 1)
    ]
    transcript = transcribe(records)
    assert transcript is not None
    assert [(one.role, one.content) for one in transcript.messages][1:] == [("tool", LOST_CALL)]
    assert transcript.messages[1].tool_call_id == "c1"


@pytest.mark.rule("transcript")
@pytest.mark.parametrize(("tool", "result"), [("Run", INTERRUPTED_CALL), ("Ask", "Go on.")])
def test_a_call_that_was_stopped_has_one_result_when_it_goes_on(tool: str, result: str) -> None:
    calls = [{"id": "c1", "name": "Read", "arguments": {}}, {"id": "c2", "name": tool, "arguments": {}}]
    asked = Raw(json.dumps({"role": "assistant", "parts": calls}).encode())
    events = [
        ("asked", requested(RUN)),
        ("model:1", ModelCallEnded(model="m", message=asked)),
        ("tool:1.0", ToolCallEnded(tool="Read", call="c1", message=Raw(b'{"call_id": "c1", "content": "text"}'))),
        ("resumed:1", Resumed(round=1, message=Raw(b'"Go on."'))),
        ("model:2", ModelCallEnded(model="m", message=Raw(b'{"role": "assistant", "parts": [{"text": "Done."}]}'))),
    ]
    records = [
        Record(run=RUN, seq=n, key=key, at=1.0, clock=1.0, event=event) for n, (key, event) in enumerate(events, 1)
    ]
    transcript = transcribe(records)
    assert transcript is not None
    output = [(one.role, one.content) for one in transcript.messages][2:]
    said = [] if tool == "Ask" else [("user", "Go on.")]
    assert output == [("tool", "text"), ("tool", result), *said, ("assistant", "Done.")]
    under_way = transcribe(records[:3])
    assert under_way is not None
    assert len(under_way.messages) == 3


@pytest.mark.rule("transcript")
def test_results_stand_in_the_order_of_their_calls_whichever_came_first() -> None:
    def ended(call: str) -> ToolCallEnded:
        return ToolCallEnded(tool="Read", call=call, message=Raw(b'{"call_id": "%b", "content": "x"}' % call.encode()))

    calls = [{"id": f"c{number}", "name": "Read", "arguments": {}} for number in range(3)]
    asked = Raw(json.dumps({"role": "assistant", "parts": calls}).encode())
    events: list[tuple[str, Event]] = [("asked", requested(RUN))]
    # A provider may give the same ids in every turn.
    for turn in (1, 2):
        events.append((f"model:{turn}", ModelCallEnded(model="m", message=asked)))
        events += [(f"tool:{turn}.{call}", ended(call)) for call in ("c2", "c0", "c1")]
    records = [
        Record(run=RUN, seq=n, key=key, at=1.0, clock=1.0, event=event) for n, (key, event) in enumerate(events, 1)
    ]
    transcript = transcribe(records)
    assert transcript is not None
    output = [one.tool_call_id if one.role == "tool" else one.role for one in transcript.messages]
    assert output == ["user", *(["assistant", "c0", "c1", "c2"] * 2)]
