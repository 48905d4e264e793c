"""The context window with which a server on this machine runs a model: it is set at the server, not by the model."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import msgspec

from deputy.core.errors import UsageError
from deputy.core.model_errors import ModelError
from deputy.core.provider_errors import as_list, as_object
from deputy.models.server_models import LIST_SECONDS, list_server

if TYPE_CHECKING:
    from deputy.models.factory import ModelFactory

_MOST_BYTES = 8_000_000
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})$", re.MULTILINE)


async def served_window(models: ModelFactory, name: str) -> int | None:
    """The window of a model, as its server says; None if the server does not say."""
    named = models.catalog.resolve(name)
    match named.provider:
        case "ollama":
            return await _of_ollama(models, named.model)
        case "lmstudio":
            rows = _rows(await _get(models, named.provider, "/api/v0/models"), "data")
            return _number(_row(rows, "id", named.model), "loaded_context_length")
        case _:
            served = (await list_server(models, named.provider)).models
            # llama.cpp has one model, whatever it is called.
            rows = [one for one in served if one.name == named.model or len(served) == 1]
            return rows[0].window if rows else None


async def _of_ollama(models: ModelFactory, model: str) -> int | None:
    """What the model's own parameters say, else what the model was loaded with."""
    shown = await _get(models, "ollama", "/api/show", {"model": model})
    if set_to := _NUM_CTX.search(str(shown.get("parameters", ""))):
        return int(set_to[1])
    rows = _rows(await _get(models, "ollama", "/api/ps"), "models")
    return _number(_row(rows, "name", model) or _row(rows, "name", f"{model}:latest"), "context_length")


async def _get(models: ModelFactory, provider: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer of a server beside its `/v1`; empty if there is none."""
    try:
        async with asyncio.timeout(LIST_SECONDS):
            status, answer = await models.ask_server(provider, path, body, _MOST_BYTES)
        return as_object(msgspec.json.decode(answer)) or {} if status == 200 else {}
    except (TimeoutError, ModelError, UsageError, msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _rows(answer: dict[str, Any], field: str) -> list[dict[str, Any]]:
    return [row for one in as_list(answer.get(field)) if (row := as_object(one)) is not None]


def _row(rows: list[dict[str, Any]], field: str, value: str) -> dict[str, Any]:
    return next((row for row in rows if row.get(field) == value), dict[str, Any]())


def _number(row: dict[str, Any], field: str) -> int | None:
    value: Any = row.get(field)
    return value if type(value) is int and value > 0 else None
