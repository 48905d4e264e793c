"""What an agent asks of us in the middle of its turn: permissions and files, given within the grant or refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deputy.backends.acp import wire
from deputy.backends.acp.permission import Wish, answer_of, is_granted
from deputy.backends.acp.updates import Calls, full_path, take_call
from deputy.backends.cli.program import WRITING, number_of, part, text_of
from deputy.engine.ports.text_files import Unserved

if TYPE_CHECKING:
    from deputy.backends.acp.agent import Agent
    from deputy.backends.cli.program import Order
    from deputy.backends.told import Told
    from deputy.engine.ports.text_files import TextFiles


class Desk:
    """Answers one agent's requests."""

    def __init__(self, agent: Agent, order: Order, files: TextFiles) -> None:
        self._agent = agent
        self._order = order
        self._files = files

    async def serve(self, asked: wire.Asked, number: str | int, told: Told, calls: Calls) -> bytes:
        """The line that answers a request; whatever is not known is refused."""
        match asked.method:
            case "session/request_permission":
                return wire.answer(number, answer_of(asked, allowed=await self._permits(asked, told, calls)))
            case "fs/read_text_file":
                return await self._read(asked, number)
            case "fs/write_text_file":
                return await self._write(asked, number, told)
            case _:
                return wire.refusal(number, wire.NO_SUCH_METHOD, f"{asked.method[:100]!r} is not served here.")

    async def _permits(self, asked: wire.Asked, told: Told, calls: Calls) -> bool:
        call = part(asked.params, "toolCall")
        wish = take_call(call, told, self._order, calls)
        allowed = is_granted(wish, self._order.tools) and await asyncio.to_thread(self._leads_inside, wish)
        if not allowed:
            told.denies(text_of(call.get("toolCallId")))
        return allowed

    def _leads_inside(self, wish: Wish) -> bool:
        return not any(self._files.refusal(path, for_writing=wish.writes) for path in wish.paths)

    async def _read(self, asked: wire.Asked, number: str | int) -> bytes:
        # A file is read before it is changed, too.
        if not self._order.tools & {"Read", "Edit", "Write"}:
            return wire.refusal(number, wire.INVALID_PARAMS, "Reading files is not granted.")
        path, limit = text_of(asked.params.get("path")), asked.params.get("limit")
        first, lines = number_of(asked.params.get("line")), None if limit is None else number_of(limit)
        found = await asyncio.to_thread(self._files.read, path, first, lines)
        if isinstance(found, Unserved) and found.is_missing and self._agent.missing_is_empty:
            found = ""
        if isinstance(found, Unserved):
            code = wire.NOT_FOUND if found.is_missing else wire.INVALID_PARAMS
            return wire.refusal(number, code, found.reason)
        return wire.answer(number, {"content": found})

    async def _write(self, asked: wire.Asked, number: str | int, told: Told) -> bytes:
        if not self._order.tools & WRITING:
            return wire.refusal(number, wire.INVALID_PARAMS, "Writing files is not granted.")
        path, content = text_of(asked.params.get("path")), asked.params.get("content")
        if not isinstance(content, str):
            return wire.refusal(number, wire.INVALID_PARAMS, "There is no content to write.")
        refused = await asyncio.to_thread(self._files.write, path, content)
        if refused is not None:
            return wire.refusal(number, wire.INVALID_PARAMS, refused.reason)
        told.changes(full_path(self._order, path))
        return wire.answer(number, {})
