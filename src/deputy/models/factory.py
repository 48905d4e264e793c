"""Make models by name, with retries and a rate limit."""

from __future__ import annotations

import re
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Self, assert_never
from urllib.parse import urlsplit

from deputy.core.approval import PriceBounds
from deputy.core.conversation import TokenUsage
from deputy.core.errors import UsageError
from deputy.core.fallback import FUNCTION, SCRIPT, is_function, is_script
from deputy.core.limits import IDLE_SECONDS
from deputy.models.catalog import (
    Catalog,
    ModelEntry,
    ProviderEntry,
    ResolvedName,
    WireName,
    priced,
    read_catalog,
)
from deputy.models.rate_limiter import RateLimiter, most_requests
from deputy.models.server_address import address_of_host, check_address, with_version, without_password
from deputy.models.wire import ApiKey

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from deputy.core.conversation import ThinkingLevel
    from deputy.engine.ports import Model
    from deputy.engine.timeouts import SharedTimer
    from deputy.models.http_client import HttpClient
    from deputy.models.rate_limiter import RateLimitStore
    from deputy.models.retry import RetryPolicy
    from deputy.models.wire import Wire
    from deputy.models.wire_model import Endpoint

OFFLINE: Final = "offline:"
PYDANTIC_AI: Final = "pydantic-ai:"
OPENAI_QUIRKS: Final = frozenset({"max_completion_tokens", "schema_beside_tools"})
COMPACT_BELOW: Final = 16_384
"""The context window below which a model gets the compact profile."""
LARGE_BILLIONS: Final = 24
"""The parameters, in billions, with which a local model gets the full profile."""
CURSOR: Final = "cursor"
"""The provider whose program has models of other providers, under its own names."""


class ModelFactory:
    """All models of a process: one connection pool, one rate limiter per provider and key.

    Keys and addresses come from `environ`; the first model call opens the first connection.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        catalog: Catalog | None = None,
        retry: RetryPolicy | None = None,
        idle_seconds: float | None = None,
        max_concurrency: int | None = None,
        pace_of: Callable[[str], RateLimitStore] | None = None,
        given: Mapping[str, Model] | None = None,
        timer: SharedTimer | None = None,
    ) -> None:
        self._timer = timer
        self.catalog = catalog or read_catalog()
        self._environ = environ
        self._given: Mapping[str, Model] = {} if given is None else given
        self._known: dict[str, tuple[ResolvedName, ModelEntry]] = {}
        self._retry = retry
        self._idle_seconds = idle_seconds
        self._max_concurrency = most_requests() if max_concurrency is None else max_concurrency
        self._pace_of = pace_of
        self._limiters: dict[str, RateLimiter] = {}
        """By account: a provider with a fingerprint of the key."""
        self._http: HttpClient | None = None
        self._opened: dict[str, Model] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for limiter in self._limiters.values():
            await limiter.close()
        if self._http is not None:
            await self._http.aclose()

    def open(self, name: str) -> Model:
        """The model of an alias, `provider:model`, `script:FILE`, `offline:scout` or `pydantic-ai:NAME`."""
        opened = self._opened.get(name)
        if opened is None:
            from deputy.models.retry import RetryingModel

            model, payer = self._made(name)
            opened = self._opened[name] = RetryingModel(model, self.limiter(payer), policy=self._retry)
        return opened

    def limiter(self, account: str) -> RateLimiter:
        """The rate limiter of an account."""
        if account not in self._limiters:
            store = None if self._pace_of is None else self._pace_of(account)
            self._limiters[account] = RateLimiter(max_concurrency=self._max_concurrency, store=store)
        return self._limiters[account]

    def _made(self, name: str) -> tuple[Model, str]:
        """A model, and the account for its rate limit."""
        if name in self._given:
            return self._given[name], name
        if name.startswith(OFFLINE):
            from deputy.models.offline_model import OfflineModel

            return OfflineModel.named(name), name
        if is_script(name):
            from deputy.models.script_model import ScriptModel

            return ScriptModel.read(name.removeprefix(SCRIPT)), name
        if is_function(name):
            from deputy.engine.attempt import Elsewhere

            return Elsewhere(name), name
        if name.startswith(PYDANTIC_AI):
            try:
                from deputy.models.pydantic_ai import PydanticAIModel
            except ImportError as error:
                raise UsageError("model", name, "install deputy-agents[pydantic-ai] to use it") from error
            return PydanticAIModel.named(name.removeprefix(PYDANTIC_AI)), name
        named = self.catalog.resolve(name)
        endpoint = self._endpoint(named.provider)
        return self._over_the_wire(named, endpoint), account(named.provider, endpoint.key)

    def check(self, name: str) -> None:
        """Raise unless a name is known; a model that only a program knows is named `cursor:NAME`."""
        if self._is_wireless(name):
            self.open(name)
        else:
            self.catalog.resolve(name)

    def thinking(self, name: str) -> ThinkingLevel | None:
        """The thinking level that a name asks for."""
        return None if self._is_wireless(name) else self._lookup(name)[0].thinking

    def is_compact(self, name: str, window: int | None) -> bool:
        """Whether a model with this window gets the compact profile.

        As its entry says; else small windows, and models of local servers unless their name says that they are large.
        """
        if self._is_wireless(name):
            return False
        named, entry = self._lookup(name)
        if entry.profile is not None:
            return entry.profile == "compact"
        if window is None or window < COMPACT_BELOW:
            return window is not None or self.catalog.providers[named.provider].is_free
        return self.catalog.providers[named.provider].is_free and billions(named.model) < LARGE_BILLIONS

    def find_window(self, name: str) -> Callable[[], Awaitable[int | None]] | None:
        """How to ask the server of a model for its context window; None if the catalog knows, or no server decides."""
        if self._is_wireless(name):
            return None
        named, entry = self._lookup(name)
        if entry.window is not None or not self.catalog.providers[named.provider].is_free:
            return None
        from deputy.models.served_window import served_window

        return partial(served_window, self, name)

    async def ask_server(
        self, provider: str, path: str, body: dict[str, Any] | None, limit_bytes: int
    ) -> tuple[int, bytes]:
        """Status and body of a request to a path beside the `/v1` of a server; with a body it is a POST."""
        from yarl import URL

        endpoint = self._endpoint(provider)
        check_address(endpoint, self._base_url_field(provider))
        url = URL(endpoint.base_url.rstrip("/").removesuffix("/v1") + path, encoded=True)
        return await self._client().get(url, endpoint.headers(), limit_bytes, body)

    def has_key(self, provider: str) -> bool:
        """Whether a provider has a key, or needs none."""
        entry = self.catalog.providers[provider]
        return entry.protocol is not None and (not entry.needs_key or self.key_variable(provider) is not None)

    def key_variable(self, provider: str) -> str | None:
        """The variable that holds a provider's key."""
        found = _find_key(self.catalog.providers[provider], self._environ)
        return found[0] if found is not None else None

    def address(self, provider: str) -> str:
        """The address of a provider, without a password."""
        return without_password(self._base_url(provider))

    def missing_key(self, name: str) -> str | None:
        """The provider whose key is missing for this model; None if no key is missing."""
        if self._is_wireless(name):
            return None
        provider = self._lookup(name)[0].provider
        return None if self.has_key(provider) else provider

    def provider_of(self, name: str) -> str:
        """The provider of a model; "" if it is not in the catalog."""
        return "" if self._is_wireless(name) else self._lookup(name)[0].provider

    def full_name(self, name: str) -> str:
        """The name of a model as `provider:model`."""
        if self._is_wireless(name):
            return name
        named = self._lookup(name)[0]
        return name if named.model == name else str(named)

    def notice(self, name: str) -> str:
        """The warning for a name that stands for a retired model; else empty."""
        if self._is_wireless(name) or not (old := (named := self._lookup(name)[0]).instead_of):
            return ""
        return f"{old} is retired; its successor {named.model} was used. Name that model, or another one."

    def _is_wireless(self, name: str) -> bool:
        """Whether the model has no provider in the catalog, and so no key and no known price."""
        return name in self._given or name.startswith((SCRIPT, OFFLINE, PYDANTIC_AI, FUNCTION))

    def _lookup(self, name: str) -> tuple[ResolvedName, ModelEntry]:
        """The catalog entry of a model; an unknown name without a colon may be one of Cursor's."""
        if (known := self._known.get(name)) is None:
            try:
                named = self.catalog.resolve(name)
            except UsageError:
                if ":" in name:
                    raise
                named = ResolvedName(provider=CURSOR, model=name)
            known = self._known[name] = (named, self.catalog.entry(named))
        return known

    def max_cost(self, name: str, input_tokens: int, output_tokens: int) -> float | None:
        """The maximum cost of these tokens; None if no price is known."""
        if self._is_wireless(name):
            return 0 if name.startswith(OFFLINE) else None
        prices = self._lookup(name)[1].prices
        return priced(TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens), prices).cost

    def usable(self, spelled: str) -> str | None:
        """The model name for another program's spelling, if its provider has a key."""
        for name in (spelled, spelled.replace("/", ":", 1), spelled.lower()):
            try:
                provider = self.catalog.resolve(name).provider
            except UsageError:
                continue
            if self.has_key(provider):
                return name
        return None

    def prices_of(self, name: str) -> PriceBounds:
        """The known prices of a model, for approval requests."""
        window = None if self._is_wireless(name) else self._lookup(name)[1].window
        return PriceBounds(lambda given, taken: self.max_cost(name, given, taken), window)

    def _endpoint(self, provider: str) -> Endpoint:
        from deputy.models.wire_model import Endpoint

        entry, base_url = self.catalog.providers[provider], self._base_url(provider)
        found = _find_key(entry, self._environ)
        if found is None:
            return Endpoint(base_url=base_url, key_variable=next(iter(entry.keys), "") if entry.needs_key else "")
        variable, secret = found
        return Endpoint(base_url=base_url, key_header=entry.keys[variable], key=secret, key_variable=variable)

    def _base_url(self, provider: str) -> str:
        entry = self.catalog.providers[provider]
        if given := self._environ.get(entry.base_url_variable, ""):
            url = given
        elif host := self._environ.get(entry.host_variable, ""):
            url = address_of_host(host, str(urlsplit(entry.base_url).port or 80))
        else:
            url = entry.base_url
        return url if entry.needs_key else with_version(url)

    def _quirks(self, provider: str) -> frozenset[str]:
        """The quirks of a provider's server: those of OpenAI's own server are not assumed at another address."""
        quirks, shipped = self.catalog.providers[provider].quirks, read_catalog().providers.get(provider)
        if shipped is None or quirks != shipped.quirks or _host(self._base_url(provider)) == _host(shipped.base_url):
            return quirks
        return quirks - OPENAI_QUIRKS

    def _base_url_field(self, provider: str) -> str:
        """The name of the variable or setting with the address of a provider."""
        entry = self.catalog.providers[provider]
        set_by = next((name for name in (entry.base_url_variable, entry.host_variable) if self._environ.get(name)), "")
        return set_by or f"providers.{provider}.base_url"

    def list_request(self, provider: str) -> Callable[[int], Awaitable[tuple[int, bytes]]]:
        """The request for a provider's models, with a limit of bytes; it returns status and body."""
        from yarl import URL

        protocol = self.catalog.providers[provider].protocol
        if protocol is None:
            raise UsageError("provider", provider, "it has no API; only its own program can use it")
        endpoint, wire, client = self._endpoint(provider), wire_of(protocol), self._client()
        check_address(endpoint, self._base_url_field(provider))
        url = URL(endpoint.base_url.rstrip("/") + wire.list_path, encoded=True)

        async def send(limit_bytes: int) -> tuple[int, bytes]:
            status, body = await client.get(url, {**wire.headers, **endpoint.headers()}, limit_bytes)
            # A provider may quote the key in an error.
            return status, body if endpoint.key is None else endpoint.key.hide(body.decode(errors="replace")).encode()

        return send

    def _client(self) -> HttpClient:
        if self._http is None:
            from deputy.models.http_client import HttpClient

            self._http = HttpClient()
        return self._http

    def _over_the_wire(self, named: ResolvedName, endpoint: Endpoint) -> Model:
        from deputy.models.wire import ModelTarget
        from deputy.models.wire_model import WireModel

        provider = self.catalog.providers[named.provider]
        if provider.protocol is None:
            raise UsageError("model", str(named), "this model has no API; only its own program can use it")
        check_address(endpoint, self._base_url_field(named.provider))
        entry = self.catalog.entry(named)
        return WireModel(
            wire_of(provider.protocol),
            ModelTarget(
                provider=named.provider,
                model=named.model,
                max_output_tokens=entry.max_output,
                thinking_style=entry.thinking,
                temperature=entry.temperature,
                top_p=entry.top_p,
                seed=entry.seed,
                quirks=self._quirks(named.provider),
            ),
            endpoint,
            self._client(),
            context_window=entry.window,
            prices=entry.prices,
            idle_seconds=entry.idle_seconds or self._idle_seconds or IDLE_SECONDS,
            timer=self._timer,
        )


def _find_key(provider: ProviderEntry, environ: Mapping[str, str]) -> tuple[str, ApiKey] | None:
    for variable in provider.keys:
        if value := environ.get(variable, "").strip():
            if not (value.isascii() and value.isprintable()):
                raise UsageError(variable, ApiKey(value), "the value has characters that no key has; set it again")
            return variable, ApiKey(value)
    return None


def _host(url: str) -> str | None:
    return urlsplit(url).hostname


def account(provider: str, key: ApiKey | None) -> str:
    """The account for rate limits: the provider, with a fingerprint of the key."""
    if key is None:
        return provider
    return f"{provider}/{sha256(b'deputy governor ' + key.reveal().encode()).hexdigest()[:12]}"


def wire_of(protocol: WireName) -> Wire:
    """The wire protocol with this name; only its file is imported."""
    match protocol:
        case "anthropic":
            from deputy.models.anthropic import WIRE
        case "openai-responses":
            from deputy.models.openai_responses import WIRE
        case "openai-chat":
            from deputy.models.openai_chat import WIRE
        case "google":
            from deputy.models.google import WIRE
        case _:
            assert_never(protocol)
    return WIRE


def billions(model: str) -> float:
    """The number of parameters that the name of a model says, as in `qwen3:32b`; 0 if it says none."""
    found = re.search(r"(?<![A-Za-z0-9.])([0-9]{1,4}(?:\.[0-9]{1,3})?)b(?![A-Za-z0-9])", model, re.IGNORECASE)
    return float(found[1]) if found else 0.0
