"""The catalog: providers, models, prices and names; the user's configuration may override it."""

from __future__ import annotations

import re
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast, get_args

import msgspec
from msgspec import Meta, Struct, field, structs

from deputy.config.setting_checks import USER_FILE
from deputy.core.conversation import ThinkingLevel
from deputy.core.detect.phrase_tables import SHIPPED
from deputy.core.errors import Unquoted, UsageError
from deputy.core.limits import exact
from deputy.models.server_address import is_address, without_password
from deputy.models.wire import ThinkingStyle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.core.conversation import TokenUsage

WireName: TypeAlias = Literal["anthropic", "openai-responses", "openai-chat", "google"]


Price: TypeAlias = Annotated[float, Meta(ge=0)]
"""A price is at least 0."""


class ModelPrices(Struct, frozen=True, kw_only=True):
    """Prices in dollars per million tokens."""

    input: Price
    output: Price
    cached: Price | None = None
    """For input read from a cache; None means the price of input."""
    cache_write: Price | None = None
    long_above: int | None = None
    """Above this input, `long` applies to the whole request."""
    long: ModelPrices | None = None


def priced(used: TokenUsage, prices: ModelPrices | None) -> TokenUsage:
    """The usage with its cost; without a known price, a cost reported by the provider stays."""
    if prices is None or not used.is_reported:
        return used
    if prices.long is not None and prices.long_above is not None and used.input_tokens > prices.long_above:
        prices = prices.long
    cached_price = prices.input if prices.cached is None else prices.cached
    write_price = prices.input if prices.cache_write is None else prices.cache_write
    fresh = max(0, used.input_tokens - used.cached_tokens - used.cache_write_tokens)
    total = (
        fresh * prices.input
        + used.cached_tokens * cached_price
        + used.cache_write_tokens * write_price
        + used.output_tokens * prices.output
    )
    return structs.replace(used, cost=exact(total / 1_000_000))


_SHOWN_ALIASES = 8
_FREE = ModelPrices(input=0.0, output=0.0)


class ModelEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The known facts of a model; None means unknown."""

    window: int | None = None
    max_output: int | None = None
    thinking: ThinkingStyle | None = None
    prices: ModelPrices | None = None
    idle_seconds: float | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    seed: int | None = None
    profile: Literal["compact", "full"] | None = None
    """The prompt and tools of its subagents; None: compact for small windows and small local models."""
    retires: str = ""
    """The day from which the provider refuses it, like `2026-11-30`; `successor` is used instead then."""
    successor: str = ""


class ProviderEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A provider: protocol, address, and the variables for its key and address."""

    protocol: WireName | None = None
    """None means that only a program can reach it."""
    base_url: str = ""
    base_url_variable: str = ""
    host_variable: str = ""
    """A variable of the server itself, with a host, a port, or both; `base_url_variable` wins."""
    keys: dict[str, str] = field(default_factory=dict[str, str])
    """The variables for the key, each with its header; the first that is set wins."""
    needs_key: bool = True
    is_free: bool = False
    """Whether models without a price cost nothing: it runs on a machine of the user."""
    quirks: frozenset[str] = frozenset()
    thinking: ThinkingStyle | None = None
    models: dict[str, ModelEntry] = field(default_factory=dict[str, ModelEntry])


class ResolvedName(Struct, frozen=True, kw_only=True):
    """A resolved name: provider and model."""

    provider: str
    model: str
    thinking: ThinkingLevel | None = None
    instead_of: str = ""
    """The retired model that was named."""

    def __str__(self) -> str:
        return f"{self.provider}:{self.model}"


class NameEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The meaning of a short name: another name, or `provider:model`."""

    model: str
    thinking: ThinkingLevel | None = None


class Catalog(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All known providers and models."""

    providers: dict[str, ProviderEntry]
    names: dict[str, NameEntry]

    @property
    def own_providers(self) -> list[str]:
        """The providers that the user added."""
        return [name for name in self.providers if name not in built_in()["providers"]]

    def keys_in(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """The names of the providers' keys that an environment has."""
        names = {name for provider in self.providers.values() for name in provider.keys}
        return tuple(sorted(name for name in names if environ.get(name, "").strip()))

    def resolve(self, name: str, today: str = "") -> ResolvedName:
        """Resolve an alias, `provider:model`, or a bare model name that a provider lists.

        A name of a retired model stands for its successor; `provider:model` is exact, because a gateway may still
        serve it.
        """
        named = self._named(name)
        if name == str(named):
            return named
        today, seen = today or date.today().isoformat(), {named.model}
        while (entry := self.entry(named)).successor and entry.retires <= today:
            named = structs.replace(named, model=entry.successor, instead_of=named.instead_of or named.model)
            if named.model in seen:
                raise UsageError("model", name, "the successors in the configuration form a circle")
            seen.add(named.model)
        return named

    def _named(self, name: str) -> ResolvedName:
        thinking: ThinkingLevel | None = None
        asked, seen = name, {name}
        while (entry := self.names.get(name) or self.names.get(name.lower())) is not None:
            thinking = thinking or entry.thinking
            name = entry.model
            if name in seen:
                raise UsageError("model", asked, "the names in the configuration form a circle")
            seen.add(name)
        provider, colon, model = name.partition(":")
        if colon and provider in self.providers and model:
            return ResolvedName(provider=provider, model=model, thinking=thinking)
        for provider, found in self.providers.items():
            if _listed(found.models, name) is not None:
                return ResolvedName(provider=provider, model=name, thinking=thinking)
        raise UsageError("model", asked, self._what_is_known(asked))

    def _what_is_known(self, asked: str) -> str:
        """The remedy for an unknown name, with similar names."""
        near = self.similar(asked)
        meant = f"did you mean {' or '.join(near)}? Otherwise " if near else ""
        aliases, providers = ", ".join([*self.names][:_SHOWN_ALIASES]), ", ".join(self.providers)
        known = f"write provider:model, with one of {providers}; or an alias such as {aliases}"
        return f"unknown model: {meant}{known}. `deputy models` lists models"

    def similar(self, asked: str) -> list[str]:
        """Known names that are similar to an unknown one."""
        from difflib import get_close_matches

        provider, colon, model = asked[:100].partition(":")
        if colon and model:
            return [f"{one}:{model}" for one in get_close_matches(provider, self.providers, n=3, cutoff=0.75)]
        models = [model for provider in self.providers.values() for model in provider.models]
        return get_close_matches(asked[:100], [*self.names, *models], n=3)

    def entry(self, named: ResolvedName) -> ModelEntry:
        """The entry of a model; dated versions share the entry of the undated name."""
        provider = self.providers[named.provider]
        listed = _listed(provider.models, named.model)
        entry = ModelEntry(thinking=provider.thinking) if listed is None else provider.models[listed]
        return structs.replace(entry, prices=_FREE) if provider.is_free and entry.prices is None else entry


def _listed(models: Mapping[str, ModelEntry], name: str) -> str | None:
    """The listed name of a model: itself, or without its date."""
    if name in models:
        return name
    stems = [stem for stem in models if name.startswith(f"{stem}-") and _is_date(name[len(stem) + 1 :])]
    return max(stems, key=len, default=None)


def _is_date(text: str) -> bool:
    return all(part.isdigit() for part in text.split("-")) and len(text.replace("-", "")) == 8


@cache
def built_in() -> Mapping[str, Any]:
    """The shipped catalog as plain data."""
    import tomllib
    from pathlib import Path

    catalog = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text("utf-8"))
    # One table of aliases: that of requests in texts.
    aliases = {alias: {"model": model} for alias, model in SHIPPED.aliases.items()}
    return {**catalog, "names": {**aliases, **catalog["names"]}}


def read_catalog(override: Mapping[str, Any] | None = None) -> Catalog:
    """The shipped catalog, overridden field by field by the user's tables, and with the user's own providers."""
    over = dict(override or {})
    over["providers"] = {name: _provider_table(name, table) for name, table in over.get("providers", {}).items()}
    try:
        return msgspec.convert(_laid_over(built_in(), over), Catalog)
    except msgspec.ValidationError as error:
        raise UsageError("models", "the catalog", f"cannot be read: {error}") from error


def _provider_table(name: str, said: Any) -> dict[str, Any]:
    """A provider of the user in the form of the catalog: `key_variable` becomes `keys`, and the rest is checked."""
    where = f"{USER_FILE}: providers.{name}"
    shipped: dict[str, Any] | None = built_in()["providers"].get(name)
    if not isinstance(said, dict):
        raise UsageError(where, said, 'give a table, like [providers.mine] with base_url = "http://localhost:8000/v1"')
    table: dict[str, Any] = {**cast("dict[str, Any]", said)}
    if shipped is None and not _PROVIDER_NAME.fullmatch(name):
        raise UsageError(where, name, "name it with lower-case letters, digits and hyphens; some names are taken")
    variable = table.pop("key_variable", None)
    if variable is not None and not (isinstance(variable, str) and _VARIABLE.fullmatch(variable)):
        raise UsageError(f"{where}.key_variable", Unquoted("a value"), "name the environment variable that has the key")
    if variable is not None:
        # The header of the shipped provider stays.
        headers: dict[str, str] = (shipped or {}).get("keys", {})
        header = next(iter(headers.values()), "authorization")
        table = {"keys": {variable: header}, "needs_key": True, **table}
    if shipped is None:
        table = {"protocol": "openai-chat", "needs_key": bool(table.get("keys")), **table}
    try:
        entry = msgspec.convert(_laid_over(shipped or {}, table), ProviderEntry)
    except msgspec.ValidationError as error:
        from deputy.config.setting_checks import explained_entry

        known = {
            "": (*ProviderEntry.__struct_fields__, "key_variable"),
            "models.*": ModelEntry.__struct_fields__,
            "protocol": get_args(WireName),
            "thinking": get_args(ThinkingStyle),
            "models.*.thinking": get_args(ThinkingStyle),
            "models.*.profile": ("compact", "full"),
        }
        raise explained_entry(where, table, str(error), known) from error
    if entry.protocol is not None and not is_address(entry.base_url):
        raise UsageError(
            f"{where}.base_url", without_password(entry.base_url), "give an address like http://localhost:8000/v1"
        )
    return table


_PROVIDER_NAME = re.compile(r"(?!(script|offline|pydantic-ai|native|acp|cli|inline)\Z)[a-z0-9][a-z0-9._-]{0,39}")
_VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]{0,99}")


def _laid_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        are_tables = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = _laid_over(cast("Any", below), cast("Any", value)) if are_tables else value
    return merged
