import asyncio
import shlex
import sys
from pathlib import Path

import pytest

from deputy.backends.acp import acp_backend
from deputy.core.conversation import TextDelta, ToolCall
from deputy.core.request import Grant
from deputy.engine.ports.backend import BackendRequest, BackendSession, ContextFill
from deputy.testing.backend_suite import WRITING
from deputy.tools.workspace_text_files import WorkspaceTextFiles

AGENT = Path(__file__).with_name("sdk_agent.py")


@pytest.fixture
def run(tmp_path, workspace, environ):
    """Talk to an agent that is made with the official SDK."""
    (tmp_path / "bin").mkdir()
    executable = tmp_path / "bin" / "claude-agent-acp"
    executable.write_text(f"#!/bin/sh\nexec {shlex.join([sys.executable, str(AGENT)])}\n")
    executable.chmod(0o755)
    (workspace / "notes.txt").write_text("remember the milk")

    def run(emit=lambda _: None, **fields):
        given = {"session_id": "sess_5_sdk", "prompt": "PROMPT", "workspace": str(workspace), "seconds": 60, **fields}
        return asyncio.run(acp_backend("claude", environ, WorkspaceTextFiles).run(BackendRequest(**given), emit))

    return run


def test_an_agent_of_the_official_sdk_understands_us_and_we_it(run, workspace):
    output = []
    end = run(output.append, grant=Grant(tools=WRITING))
    assert (end.kind, end.text, end.error) == ("answered", "Refused: -32601.", None)
    assert (workspace / "made.txt").read_text() == "remember the milk"
    assert end.changed == ("made.txt",)
    assert (end.usage.input, end.usage.output, end.usage.cached) == (100, 20, 10)
    assert end.context == ContextFill(used=50, size=1000)
    assert (end.own_session.id, end.is_resumable) == ("sdk-1", True)
    assert [type(event) for event in output if isinstance(event, TextDelta | ToolCall)] == [ToolCall, TextDelta]


def test_it_understands_a_no_a_cancel_and_a_session_to_go_on_with(run, workspace):
    assert not run().may_have_written
    assert not (workspace / "made.txt").exists()
    assert run(resume=BackendSession(id="sdk-9"), message="And?").error.code == "SESSION_GONE"
    spill = workspace / "raw"
    stopped = run(prompt="wait", seconds=8, spill=str(spill))
    assert (stopped.kind, stopped.error.code) == ("limited", "TIMEOUT")
    assert "it was told to stop" in spill.read_text()
