"""The journal holds what really happened, but for provider keys; the files beside it hold no secret."""

import asyncio
import json
from pathlib import Path

import pytest
from msgspec import Raw
from tests.core.redaction.samples import made_up, secret_lines

from deputy.core.errors import Error
from deputy.core.events import (
    ModelCallEnded,
    Noted,
    Requested,
    Returned,
    RunOpened,
    Started,
    ToolCallBegun,
    ToolCallEnded,
)
from deputy.core.outcome import Failed
from deputy.core.provider_keys import ProviderKeys
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

RUN, CHILD = "sess_1_root00", "sess_1_child0"
KNOWN = f"made-up {made_up(20, seed=5)}"
KEY = f"gsk{made_up(20, seed=6)}9"

pytestmark = pytest.mark.rule("redact.where")


def test_no_secret_reaches_a_file_beside_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE_UP_TOKEN", KNOWN)
    lines = [*secret_lines(), (f"the token is {KNOWN}", KNOWN)]
    home = tmp_path / "home"
    asyncio.run(write(home, [line for line, _ in lines]))
    files = [path for path in home.rglob("*") if path.is_file() and not path.name.startswith("journal.db")]
    assert any(path.name.endswith(".transcript.json") for path in files)
    written = b"".join(path.read_bytes() for path in files)
    assert written.count(b"[redacted]") > 2 * len(lines)
    assert [secret for _, secret in lines if json.dumps(secret)[1:-1].encode() in written] == []


def test_records_are_stored_and_returned_exactly(tmp_path: Path) -> None:
    lines = [line for line, _ in secret_lines()]
    asyncio.run(write(tmp_path / "home", lines))
    reader = SqliteQueries.open(tmp_path / "home")
    assert reader is not None
    with reader:
        assert [reader.get(CHILD, f"note {number}").event for number in range(len(lines))] == [
            Noted(content=line) for line in lines
        ]


def test_a_provider_key_reaches_no_file_of_the_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    asyncio.run(write(home, [f"the key is {KEY}"], ProviderKeys(["GROQ_API_KEY"], {"GROQ_API_KEY": KEY})))
    written = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert written.count(b"[redacted GROQ_API_KEY]") > 5
    assert KEY.encode() not in written


async def write(home: Path, lines: list[str], keys: ProviderKeys | None = None) -> None:
    mask = (keys or ProviderKeys()).mask_json
    async with SqliteJournal(home, mask=mask) as journal:
        lease = await journal.begin(RUN, RunOpened(lineage=Lineage.root(RUN), prompt="\n".join(lines)))
        assert lease is not None
        caller = Lineage.root(RUN)
        target = Hop("task:child", "task")
        request = Request(session_id=CHILD, target=target, prompt="\n".join(lines), caller=caller, caller_grant=Grant())
        child = await journal.spawn(lease, "spawn", CHILD, Requested(request=request, label="child", parent=RUN))
        assert child is not None
        await journal.append(child, "started", Started())
        for number, line in enumerate(lines):
            message = Raw(json.dumps({"role": "assistant", "content": line}).encode())
            inner = Raw(json.dumps({"role": "tool", "content": json.dumps({"output": line})}).encode())
            record = await journal.append(child, f"note {number}", Noted(content=line))
            assert record.event == Noted(content=mask(line.encode()).decode())
            await journal.append(child, f"model {number}", ModelCallEnded(model="m", message=message))
            journal.append_begun(child, f"tool {number}.begun", ToolCallBegun(tool="Read", arguments=inner))
            await journal.append(child, f"tool {number}", ToolCallEnded(tool="Read", message=inner))
            await journal.send(RUN, "answer", f"message {number}", json.dumps(line).encode())
        error = Error(type="provider", message=lines[0], recoverable=False, recommendation=lines[-1])
        outcome = Failed(lineage=caller, summary="failed", report="\n".join(lines), errors=(error,))
        await journal.finish(child, "returned:0", Returned(outcome=outcome, trace="\n".join(lines)))
