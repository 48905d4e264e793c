import asyncio
import errno
import io
import json
import os
import threading
from pathlib import Path

import pytest

from deputy.core.errors import UsageError
from deputy.core.progress import Progress
from deputy.interfaces.view import event_lines
from deputy.interfaces.view.event_lines import EventLines, open_events


@pytest.mark.rule("delegate.events")
def test_an_event_is_a_line_with_a_number_a_time_and_the_fields_of_its_kind():
    file = io.BytesIO()
    lines = EventLines(file)
    lines.emit(Progress(event="started", label="a", session_id="s", index=0, total=2))
    lines.emit(Progress(event="tool_call", label="a", session_id="s", tool="Read", args="x.py"))
    lines.emit(Progress(event="tokens", label="a", session_id="s", input=10, output=2, cost=0.5))
    lines.emit(Progress(event="completed", label="a", session_id="s", status="partial", reason="timeout"))
    lines.close()
    output = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [event.pop("seq") for event in output] == [1, 2, 3, 4]
    assert all(event.pop("time").endswith("Z") for event in output)
    assert output == [
        {"event": "started", "label": "a", "session_id": "s", "index": 0, "total": 2},
        {"event": "tool_call", "label": "a", "session_id": "s", "tool": "Read", "args": "x.py"},
        {"event": "tokens", "label": "a", "session_id": "s", "input": 10, "output": 2, "cost": 0.5},
        {"event": "completed", "label": "a", "session_id": "s", "status": "partial", "reason": "timeout"},
    ]


def test_a_reader_that_goes_away_stops_the_writing_and_nothing_else():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as file:
        lines = EventLines(file)
        lines.emit(Progress(event="text", label="a", content="x"))
        lines.emit(Progress(event="text", label="a", content="y"))
        lines.close()
    assert lines.failure is None


def test_a_reader_that_does_not_read_never_holds_up_the_work():
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as file, os.fdopen(reading, "rb") as reader:
        lines = EventLines(file)
        for _ in range(1000):
            lines.emit(Progress(event="text", label="a", content="x" * 1000))
        output = [json.loads(reader.readline())["seq"] for _ in range(1000)]
        lines.close()
    assert output == list(range(1, 1001))


def test_a_disk_that_is_full_stops_the_writing_and_is_remembered():
    with Path("/dev/full").open("wb", buffering=0) as file:
        lines = EventLines(file)
        lines.emit(Progress(event="text", label="a", content="x"))
        lines.close()
    assert lines.failure is not None
    assert lines.failure.errno == errno.ENOSPC


def test_a_reader_that_takes_nothing_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(event_lines, "_MAX_WAIT_SECONDS", 0.1)
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as file:
        lines = EventLines(file)
        lines.emit(Progress(event="text", label="a", content="x" * 1_000_000))
        lines.close()
        assert lines.failure is not None
        assert lines.failure.strerror == "the reader does not read"
        os.close(reading)


async def opened(name, do=None):
    async with open_events(str(name)) as lines:
        await do(lines)
    return lines


def test_a_pipe_without_a_reader_is_named_and_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(event_lines, "READER_SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="start the reader first"):
        asyncio.run(opened(tmp_path / "pipe"))


@pytest.mark.rule("delegate.events")
def test_a_reader_may_come_a_little_late_and_leave_early(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    first = []

    def read():
        with pipe.open() as reader:
            first.append(reader.readline())

    reader = threading.Timer(0.1, read)
    reader.start()

    async def tell(lines):
        lines.write("opened", {})
        await asyncio.to_thread(reader.join)
        for _ in range(3):
            lines.write("text", {"content": "x" * 100_000})

    assert asyncio.run(opened(pipe, tell)).failure is None
    assert '"opened"' in first[0]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be written: Is a directory"):
        asyncio.run(opened(tmp_path))
