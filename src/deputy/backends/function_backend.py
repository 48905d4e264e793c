"""An async Python function as a backend: the program's own code does the task, with the limits of every backend."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import MsgspecError, json

from deputy.backends import program_errors
from deputy.backends.cli.program import json_object
from deputy.backends.turn_recorder import TEXT_BYTES
from deputy.core.conversation import TextDelta, TokenUsage, ToolCall
from deputy.core.limits import time_is_up
from deputy.core.model_errors import ModelError
from deputy.core.outcome import NO_USAGE, Usage
from deputy.engine.loop import AWAITING
from deputy.engine.ports.backend import BackendRequest, BackendResult, Emit, Ready, ToolUse
from deputy.processes.bounded_output import HeadAndTail

if TYPE_CHECKING:
    from deputy.core.errors import Error

AgentFunction: TypeAlias = Callable[[BackendRequest], Awaitable[object] | AsyncGenerator[object, None]]
"""Takes a request and returns the answer, or yields it in pieces: texts, `TokenUsage` and `ToolUse`.

A value that is no text becomes JSON.
"""
_LIMITS = ("timeout", "context_exhausted", "budget", "output_limit")


def is_agent_function(value: object) -> bool:
    """Whether this is an async function or an async generator function, or an object that is called like one."""
    called = (value, type(value).__dict__.get("__call__"))
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in called)


class FunctionBackend:
    """A function as a backend. It has no session: each turn gets the conversation so far as its prompt."""

    def __init__(self, name: str, function: AgentFunction) -> None:
        self.name = name
        self._function = function

    async def check(self) -> Ready:
        """A function can always be called."""
        return Ready()

    async def run(self, request: BackendRequest, emit: Emit) -> BackendResult:
        """Call the function once; its exceptions are results."""
        turn = _FunctionTurn(emit)
        limit = asyncio.timeout(request.seconds)
        try:
            async with limit:
                await self._call(request, turn)
        except TimeoutError as error:
            return turn.result(time_is_up(request.seconds) if limit.expired() else self._crashed(error))
        except ModelError as failure:
            return turn.result(failure.as_value())
        except Exception as error:  # noqa: BLE001  the program's own code
            return turn.result(self._crashed(error))
        return turn.result(None if turn.text.strip() else program_errors.no_output(self.name))

    async def _call(self, request: BackendRequest, turn: _FunctionTurn) -> None:
        made = self._function(request)
        if inspect.isasyncgen(made):
            pieces = cast("AsyncGenerator[object, None]", made)
            async with aclosing(pieces):
                async for piece in pieces:
                    turn.take(piece)
        else:
            turn.take(await cast("Awaitable[object]", made))

    def _crashed(self, error: Exception) -> Error:
        return program_errors.crashed(self.name, f"raised {type(error).__name__}", str(error))


class _FunctionTurn:
    """What a function has said in one turn."""

    def __init__(self, emit: Emit) -> None:
        self._kept = HeadAndTail(TEXT_BYTES, TEXT_BYTES)
        """The text after the last tool call."""
        self._emit = emit
        self._usage: Usage | None = None
        self._used: list[ToolUse] = []

    @property
    def text(self) -> str:
        """The text after the last tool call, without the middle of a very long one."""
        return self._kept.text

    def take(self, piece: object) -> None:
        """Take the next piece of the answer."""
        match piece:
            case TokenUsage():
                self._usage = (self._usage or NO_USAGE) + piece.usage
                self._emit(piece)
            case ToolUse(name=name, arguments=arguments):
                self._kept = HeadAndTail(TEXT_BYTES, TEXT_BYTES)
                self._used.append(piece)
                given = json_object(arguments.encode()) or {}
                self._emit(ToolCall(id=f"{name}-{len(self._used)}", name=name, arguments=given))
            case None:
                return
            case _:
                text = piece if isinstance(piece, str) else _json(piece)
                self._kept.feed(text.encode("utf-8", "replace"))
                self._emit(TextDelta(text=text))

    def result(self, error: Error | None) -> BackendResult:
        """The result of the turn; text before a limit is kept."""
        text, kind = self.text.rstrip(), "answered"
        if error is not None:
            kind = "limited" if error.type in _LIMITS else "failed"
        elif text.endswith(AWAITING):
            text, kind = text.removesuffix(AWAITING).rstrip(), "asked"
        return BackendResult(
            kind=kind,
            text=text,
            error=error,
            usage=self._usage or NO_USAGE,
            is_metered=self._usage is not None,
            tools_used=tuple(self._used),
        )


def _json(value: Any) -> str:
    """A value as JSON; a pydantic model says itself how."""
    if hasattr(value, "model_dump_json"):
        return str(value.model_dump_json())
    try:
        return json.encode(value).decode()
    except (MsgspecError, TypeError, ValueError) as error:
        message = f"return or yield a text, or a value that is JSON, not {type(value).__name__} ({error})"
        raise TypeError(message) from error
