"""Answer an agent's requests for permissions and files by the grant; the default is no."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from deputy.backends.acp import jsonrpc
from deputy.backends.acp.updates import ToolCallLog, record_call
from deputy.backends.cli.program import READING, RUNNING, WRITING, Fields, number_of, part, parts, text_of
from deputy.engine.ports.backend import NotServed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.acp.known_agents import AcpAgent
    from deputy.backends.acp.updates import PermissionRequest
    from deputy.backends.turn_recorder import TurnRecorder
    from deputy.engine.ports.backend import TextFiles
WEB = frozenset({"WebFetch", "WebSearch"})
NEEDED: Mapping[str, frozenset[str]] = {
    "read": READING, "search": READING, "edit": WRITING, "delete": WRITING, "move": WRITING, "execute": RUNNING,
    "fetch": WEB,
}  # fmt: skip
"""For each kind of tool, our tools of which one must be granted; other kinds are never allowed."""
_ON_FILES = frozenset({"read", "search", "edit", "delete", "move"})


class ClientRequests:
    """Answers the requests of one agent."""

    def __init__(self, agent: AcpAgent, files: TextFiles, recorder: TurnRecorder, calls: ToolCallLog) -> None:
        self._agent = agent
        self._files = files
        self._recorder = recorder
        self._calls = calls
        self._tools = recorder.invocation.tools

    async def serve(self, asked: jsonrpc.RpcRequest, number: str | int) -> bytes:
        """The answer to a request; unknown methods are refused."""
        match asked.method:
            case "session/request_permission":
                return jsonrpc.answer(number, answer_of(asked, allowed=await self._permits(asked)))
            case "fs/read_text_file":
                return await self._read(asked, number)
            case "fs/write_text_file":
                return await self._write(asked, number)
            case _:
                return jsonrpc.refusal(number, jsonrpc.NO_SUCH_METHOD, f"Unknown method {asked.method[:100]!r}.")

    async def _permits(self, asked: jsonrpc.RpcRequest) -> bool:
        call = part(asked.params, "toolCall")
        permission = record_call(call, self._recorder, self._calls)
        allowed = is_granted(permission, self._tools) and not await asyncio.to_thread(self._is_outside, permission)
        if not allowed:
            self._recorder.denies(text_of(call.get("toolCallId")))
        return allowed

    def _is_outside(self, permission: PermissionRequest) -> bool:
        return any(self._files.refusal(path, for_writing=permission.writes) for path in permission.paths)

    async def _read(self, asked: jsonrpc.RpcRequest, number: str | int) -> bytes:
        # Agents read a file before they change it.
        if not self._tools & {"Read", "Edit", "Write"}:
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

    async def _write(self, asked: jsonrpc.RpcRequest, number: str | int) -> bytes:
        if not self._tools & WRITING:
            return jsonrpc.refusal(number, jsonrpc.INVALID_PARAMS, "Writing files is not granted.")
        path, content = text_of(asked.params.get("path")), asked.params.get("content")
        if not isinstance(content, str):
            return jsonrpc.refusal(number, jsonrpc.INVALID_PARAMS, "`content` must be a string.")
        refused = await asyncio.to_thread(self._files.write, path, content)
        if refused is not None:
            return jsonrpc.refusal(number, jsonrpc.INVALID_PARAMS, refused.reason)
        self._recorder.changes(path)
        return jsonrpc.answer(number, {})


def is_granted(permission: PermissionRequest, tools: frozenset[str]) -> bool:
    """Whether the granted tools allow it; the caller checks the paths."""
    if permission.kind in _ON_FILES and not permission.paths:
        return False
    return bool(NEEDED.get(permission.kind, frozenset()) & tools)


def answer_of(asked: jsonrpc.RpcRequest, *, allowed: bool) -> Fields:
    """Select the option for the decision; never "always allow", which would outlive the grant."""
    options = parts(asked.params.get("options"))
    wanted = ("allow_once",) if allowed else ("reject_once", "reject_always")
    for kind in wanted:
        for option in options:
            if option.get("kind") == kind and isinstance(option.get("optionId"), str):
                return {"outcome": {"outcome": "selected", "optionId": cast("str", option["optionId"])}}
    return {"outcome": {"outcome": "cancelled"}}
