"""An agent made with the protocol's official SDK, which checks every message of ours against its own schema."""

import asyncio
import sys

from acp import (
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    run_agent,
    start_edit_tool_call,
    text_block,
    update_agent_message,
    update_tool_call,
)
from acp.schema import (
    AgentCapabilities,
    PermissionOption,
    SessionCapabilities,
    SessionMode,
    SessionModeState,
    SessionResumeCapabilities,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

OPTIONS = [
    PermissionOption(option_id="y", name="Yes", kind="allow_once"),
    PermissionOption(option_id="n", name="No", kind="reject_once"),
]


class SdkAgent(Agent):
    def __init__(self):
        self.conn, self.cwd, self.cancelled = None, "", asyncio.Event()

    def on_connect(self, conn):
        self.conn = conn

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **kwargs):
        assert client_info.name == "deputy"
        assert client_capabilities.fs.read_text_file
        assert not client_capabilities.terminal
        resume = SessionCapabilities(resume=SessionResumeCapabilities())
        return InitializeResponse(protocol_version=1, agent_capabilities=AgentCapabilities(session_capabilities=resume))

    async def new_session(self, cwd, mcp_servers=None, **kwargs):
        self.cwd = cwd
        modes = [SessionMode(id=name, name=name) for name in ("default", "yolo")]
        return NewSessionResponse(
            session_id="sdk-1", modes=SessionModeState(current_mode_id="yolo", available_modes=modes)
        )

    async def set_session_mode(self, session_id, mode_id, **kwargs):
        assert (session_id, mode_id) == ("sdk-1", "default")

    async def resume_session(self, session_id, cwd, **kwargs):
        raise RequestError.resource_not_found(session_id)

    async def cancel(self, session_id, **kwargs):
        self.cancelled.set()

    async def prompt(self, prompt, session_id, **kwargs):
        if "wait" in prompt[0].text:
            await self.cancelled.wait()
            sys.stderr.write("it was told to stop\n")
            return PromptResponse(stop_reason="cancelled")
        notes = await self.conn.read_text_file(session_id=session_id, path=f"{self.cwd}/notes.txt", line=1, limit=1)
        path = f"{self.cwd}/made.txt"
        await self.conn.session_update(session_id, start_edit_tool_call("c1", "Write made.txt", path, notes.content))
        asked = ToolCallUpdate(tool_call_id="c1", kind="edit", locations=[{"path": path}])
        answer = await self.conn.request_permission(session_id=session_id, tool_call=asked, options=OPTIONS)
        if answer.outcome.outcome == "selected" and answer.outcome.option_id == "y":
            await self.conn.write_text_file(session_id=session_id, path=path, content=notes.content)
        await self.conn.session_update(session_id, update_tool_call("c1", status="completed"))
        try:
            await self.conn.create_terminal(session_id=session_id, command="sh")
        except RequestError as error:
            await self.conn.session_update(session_id, update_agent_message(text_block(f"Refused: {error.code}.")))
        await self.conn.session_update(session_id, UsageUpdate(session_update="usage_update", used=50, size=1000))
        usage = Usage(total_tokens=120, input_tokens=90, output_tokens=20, cached_read_tokens=10)
        return PromptResponse(stop_reason="end_turn", usage=usage)


asyncio.run(run_agent(SdkAgent()))
