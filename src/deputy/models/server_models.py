"""The models that a server really has, from its own list."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from deputy.core.errors import UsageError
from deputy.core.model_errors import ModelError
from deputy.core.provider_errors import as_object, provider_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deputy.models.factory import ModelFactory

LOCAL = ("ollama", "llamacpp", "lmstudio", "vllm")
"""Servers on this machine, in the order in which they are preferred."""

LIST_SECONDS = 5.0
LOCAL_SECONDS = 0.5
"""A server on this machine answers at once."""
_LIST_BYTES = 8_000_000


class ServedModel(Struct, frozen=True, kw_only=True):
    """One model of a server."""

    name: str
    window: int | None = None
    """The context window, where the list of the server names it."""


class ServerList(Struct, frozen=True, kw_only=True):
    """What a server says about its models."""

    provider: str
    models: tuple[ServedModel, ...] = ()
    problem: str = ""
    """Why it has no list; empty if the server answered."""
    status: int | None = None
    """The HTTP status of the answer; None without an answer."""

    @property
    def chat_models(self) -> list[str]:
        """The names of the models that can answer: embedding models cannot."""
        return [model.name for model in self.models if "embed" not in model.name]


async def list_servers(models: ModelFactory, providers: Iterable[str]) -> dict[str, ServerList]:
    """The lists of several providers, asked at the same time; one without a needed key is not asked."""
    async with asyncio.TaskGroup() as group:
        asked = {name: group.create_task(list_server(models, name)) for name in providers if models.has_key(name)}
    return {name: task.result() for name, task in asked.items()}


async def list_server(models: ModelFactory, provider: str) -> ServerList:
    """The list of one provider; a failure is its `problem`."""
    seconds = LOCAL_SECONDS if provider in LOCAL else LIST_SECONDS
    try:
        # Importing the client takes long; it is no part of the server's time.
        send = models.list_request(provider)
        async with asyncio.timeout(seconds):
            status, body = await send(_LIST_BYTES)
    except TimeoutError:
        return ServerList(provider=provider, problem=f"no answer within {seconds:g} s")
    except ModelError as error:
        return ServerList(provider=provider, problem=error.message)
    except UsageError as error:
        return ServerList(provider=provider, problem=str(error))
    if status != 200:
        message = provider_error(body, status=status).message
        return ServerList(provider=provider, problem=f"{message} (status {status})", status=status)
    try:
        listed = msgspec.json.decode(body, type=_List)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        listed = _List()
    rows = listed.models if listed.data is None else listed.data
    if rows is None:
        return ServerList(provider=provider, problem="the answer is not a list of models", status=status)
    return ServerList(provider=provider, models=tuple(_served(rows)), status=status)


class _Row(Struct):
    """One entry; servers name the context window differently."""

    id: Any = None
    name: Any = None
    max_model_len: Any = None
    context_length: Any = None
    context_window: Any = None
    max_context_length: Any = None
    input_token_limit: Any = msgspec.field(default=None, name="inputTokenLimit")
    meta: Any = None


class _List(Struct):
    data: list[_Row] | None = None
    models: list[_Row] | None = None


def _served(rows: list[_Row]) -> Iterator[ServedModel]:
    for row in rows:
        name = row.id or row.name
        if isinstance(name, str) and name:
            yield ServedModel(name=name.removeprefix("models/"), window=_window(row))


def _window(row: _Row) -> int | None:
    named = (row.max_model_len, row.context_length, row.context_window, row.max_context_length, row.input_token_limit)
    meta = as_object(row.meta) or {}
    return next((size for size in (meta.get("n_ctx"), *named) if type(size) is int and size > 0), None)
