"""The default model: the one that the user names, else of the first provider with a key, else of a local server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

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


class ModelChoice(Struct, frozen=True, kw_only=True):
    """The chosen model, and the reason."""

    model: str
    reason: str


async def choose_model(
    models: ModelFactory, environ: Mapping[str, str], configured: str | None = None
) -> ModelChoice | None:
    """The model to use if a task names none; None if no model is configured."""
    named = environ.get(MODEL_VARIABLE, "").strip()
    if named:
        return ModelChoice(model=named, reason=f"{MODEL_VARIABLE} names it")
    if configured is not None:
        return ModelChoice(model=configured, reason="your config.toml names it")
    for provider, model in BY_KEY.items():
        if models.has_key(provider):
            return ModelChoice(model=model, reason=f"{models.key_variable(provider)} is set")
    from deputy.models.server_models import LOCAL, list_servers

    for provider, served in (await list_servers(models, (*models.catalog.own_providers, *LOCAL))).items():
        if served.chat_models:
            model = f"{provider}:{served.chat_models[0]}"
            return ModelChoice(model=model, reason=f"no key is set, and {provider} answers here")
    return None
