import asyncio
import os
import threading

import pytest

from deputy.core.errors import UsageError
from deputy.interfaces.view import subscribers
from deputy.interfaces.view.subscribers import open_events


async def opened(name, do=None):
    async with open_events(str(name)) as lines:
        await do(lines)
    return lines


def test_a_pipe_without_a_reader_is_named_and_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(subscribers, "READER_SECONDS", 0.1)
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
