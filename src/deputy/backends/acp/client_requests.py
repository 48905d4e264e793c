"""Answer an agent's requests for permissions and files, within the grant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deputy.backends.acp import jsonrpc
from deputy.backends.acp.permission import PermissionRequest, answer_of, is_granted
from deputy.backends.acp.updates import ToolCallLog, full_path, record_call
from deputy.backends.cli.program import WRITING, number_of, part, text_of
from deputy.engine.ports.text_files import NotServed

if TYPE_CHECKING:
    from deputy.backends.acp.agent import AcpAgent
    from deputy.backends.cli.program import Invocation
    from deputy.backends.turn_recorder import TurnRecorder
    from deputy.engine.ports.text_files import TextFiles


class ClientRequests:
    """Answers the requests of one agent."""

    def __init__(self, agent: AcpAgent, invocation: Invocation, files: TextFiles) -> None:
        self._agent = agent
        self._order = invocation
        self._files = files

    async def serve(
        self, asked: jsonrpc.RpcRequest, number: str | int, recorder: TurnRecorder, calls: ToolCallLog
    ) -> bytes:
        """The answer to a request; unknown methods are refused."""
        match asked.method:
            case "session/request_permission":
                return jsonrpc.answer(number, answer_of(asked, allowed=await self._permits(asked, recorder, calls)))
            case "fs/read_text_file":
                return await self._read(asked, number)
            case "fs/write_text_file":
                return await self._write(asked, number, recorder)
            case _:
                return jsonrpc.refusal(number, jsonrpc.NO_SUCH_METHOD, f"Unknown method {asked.method[:100]!r}.")

    async def _permits(self, asked: jsonrpc.RpcRequest, recorder: TurnRecorder, calls: ToolCallLog) -> bool:
        call = part(asked.params, "toolCall")
        permission = record_call(call, recorder, self._order, calls)
        allowed = is_granted(permission, self._order.tools) and await asyncio.to_thread(self._leads_inside, permission)
        if not allowed:
            recorder.denies(text_of(call.get("toolCallId")))
        return allowed

    def _leads_inside(self, permission: PermissionRequest) -> bool:
        return not any(self._files.refusal(path, for_writing=permission.writes) for path in permission.paths)

    async def _read(self, asked: jsonrpc.RpcRequest, number: str | int) -> bytes:
        # Agents read a file before they change it.
        if not self._order.tools & {"Read", "Edit", "Write"}:
            return jsonrpc.refusal(number, jsonrpc.INVALID_PARAMS, "Reading files is not granted.")
        path, limit = text_of(asked.params.get("path")), asked.params.get("limit")
        first, lines = number_of(asked.params.get("line")), None if limit is None else number_of(limit)
        found = await asyncio.to_thread(self._files.read, path, first, lines)
        if isinstance(found, NotServed) and found.is_missing and self._agent.missing_is_empty:
            found = ""
        if isinstance(found, NotServed):
            code = jsonrpc.NOT_FOUND if found.is_missing else jsonrpc.INVALID_PARAMS
            return jsonrpc.refusal(number, code, found.reason)
        return jsonrpc.answer(number, {"content": found})

    async def _write(self, asked: jsonrpc.RpcRequest, number: str | int, recorder: TurnRecorder) -> bytes:
        if not self._order.tools & WRITING:
            return jsonrpc.refusal(number, jsonrpc.INVALID_PARAMS, "Writing files is not granted.")
        path, content = text_of(asked.params.get("path")), asked.params.get("content")
        if not isinstance(content, str):
            return jsonrpc.refusal(number, jsonrpc.INVALID_PARAMS, "`content` must be a string.")
        refused = await asyncio.to_thread(self._files.write, path, content)
        if refused is not None:
            return jsonrpc.refusal(number, jsonrpc.INVALID_PARAMS, refused.reason)
        recorder.changes(full_path(self._order, path))
        return jsonrpc.answer(number, {})
