"""No byte of a secret reaches the files of a home, whatever it came in."""

import asyncio
import json
from pathlib import Path

from msgspec import Raw
from tests.core.redaction.samples import made_up, secret_lines

from deputy.core.errors import Error
from deputy.core.events import ModelCallEnded, Noted, Opened, Requested, Returned, Started, ToolCallBegun, ToolCallEnded
from deputy.core.outcome import Failed
from deputy.core.redaction import Redactor
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.journal.sqlite import SqliteJournal

RUN, CHILD = "sess_1_root00", "sess_1_child0"
KNOWN = f"made-up {made_up(20, seed=5)}"


def test_no_secret_reaches_a_file_of_the_home(tmp_path: Path) -> None:
    lines = [*secret_lines(), (f"the key is {KNOWN}", KNOWN)]
    home = tmp_path / "home"
    asyncio.run(write(home, [line for line, _ in lines]))
    files = [path for path in home.rglob("*") if path.is_file()]
    assert any(path.name.endswith(".transcript.json") for path in files)
    written = b"".join(path.read_bytes() for path in files)
    assert written.count(b"[redacted]") > 5 * len(lines)
    assert [secret for _, secret in lines if json.dumps(secret)[1:-1].encode() in written] == []


async def write(home: Path, lines: list[str]) -> None:
    async with SqliteJournal(home, redact=Redactor([KNOWN]).redact_json) as journal:
        lease = await journal.begin(RUN, Opened(lineage=Lineage.root(RUN), prompt="\n".join(lines)))
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
            await journal.append(child, f"note {number}", Noted(content=line))
            await journal.append(child, f"model {number}", ModelCallEnded(model="m", message=message))
            journal.mark_soon(child, f"tool {number}.begun", ToolCallBegun(tool="Read", arguments=inner))
            await journal.append(child, f"tool {number}", ToolCallEnded(tool="Read", message=inner))
            await journal.send(RUN, "answer", f"message {number}", json.dumps(line).encode())
            journal.show_progress(CHILD, json.dumps({"text": line}).encode())
        error = Error(type="provider", message=lines[0], recoverable=False, recommendation=lines[-1])
        await journal.log(CHILD, error, trace="\n".join(lines))
        outcome = Failed(lineage=caller, summary="failed", report="\n".join(lines), errors=(error,))
        await journal.finish(child, "returned:0", Returned(outcome=outcome))
