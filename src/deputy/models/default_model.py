"""The default model: the one that the user names, else of the first provider with a key, else of a local server."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, Struct, json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPResponse

    from deputy.models.factory import ModelFactory

MODEL_VARIABLE = "DEPUTY_MODEL"

BY_KEY = {
    "anthropic": "anthropic:claude-sonnet-5-5",
    "openai": "openai:gpt-5.2",
    "google": "google:gemini-3.1-pro-preview",
    "openrouter": "openrouter:openrouter/auto",
    "groq": "groq:openai/gpt-oss-120b",
    "deepseek": "deepseek:deepseek-v4-pro",
    "mistral": "mistral:mistral-large-2512",
}
"""The default model of each provider; the first provider with a key is used."""

LOCAL = ("ollama", "llamacpp", "lmstudio", "vllm")
"""Local servers, tried in this order if no provider has a key."""

PROBE_SECONDS = 0.5
_PROBE_BYTES = 1_000_000


class ModelChoice(Struct, frozen=True, kw_only=True):
    """The chosen model, and the reason."""

    model: str
    reason: str


async def choose_model(
    models: ModelFactory, environ: Mapping[str, str], configured: str | None = None
) -> ModelChoice | None:
    """The model to use if a task names none; None if no model is configured."""
    import asyncio

    named = environ.get(MODEL_VARIABLE, "").strip()
    if named:
        return ModelChoice(model=named, reason=f"{MODEL_VARIABLE} names it")
    if configured is not None:
        return ModelChoice(model=configured, reason="your config.toml names it")
    for provider, model in BY_KEY.items():
        if models.has_key(provider):
            return ModelChoice(model=model, reason=f"{models.key_variable(provider)} is set")
    for provider in LOCAL:
        entry = models.catalog.providers[provider]
        address = environ.get(entry.base_url_variable) or entry.base_url
        found = await asyncio.to_thread(_models_at, address)
        if found:
            return ModelChoice(model=f"{provider}:{found[0]}", reason=f"no key is set, and {provider} answers here")
    return None


def _models_at(address: str) -> list[str]:
    import http.client
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(address)
        if parts.scheme != "http" or not parts.hostname:
            return []
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PROBE_SECONDS)
        with closing(connection):
            connection.request("GET", f"{parts.path.rstrip('/')}/models")
            answer = connection.getresponse()
            return _names_in(_read(answer)) if answer.status == 200 else []
    except (OSError, ValueError, http.client.HTTPException):
        return []


def _read(answer: HTTPResponse) -> bytes:
    deadline = time.monotonic() + PROBE_SECONDS
    body = b""
    while (piece := answer.read1(65536)) and len(body) < _PROBE_BYTES and time.monotonic() < deadline:
        body += piece
    return body


class _Named(Struct):
    id: Any = None


class _ModelList(Struct):
    data: list[_Named]


def _names_in(body: bytes) -> list[str]:
    try:
        listed = json.decode(body, type=_ModelList)
    except (DecodeError, RecursionError):
        return []
    # Embedding models cannot answer.
    return [one.id for one in listed.data if isinstance(one.id, str) and one.id and "embed" not in one.id]
