"""What there is to work with: keys, model servers and programs of other agents, each asked once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.fallback import SHIPPED_FALLBACK
from deputy.engine.ports import NotReady, Ready
from deputy.models.default_model import BY_KEY
from deputy.models.server_models import LOCAL, ServerList, list_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.models.catalog import Catalog
    from deputy.models.factory import ModelFactory

_OFFERED = 20
"""The maximum number of models of one server to choose from."""
_OF_PROGRAM = 4
"""The same of the program of another agent, whose models are those that the catalog knows."""


class ModelOffer(Struct, frozen=True, kw_only=True):
    """A model that can be the default."""

    model: str
    reason: str
    is_program: bool = False
    """Whether the program of another agent executes it."""


class SetupSurvey(Struct, frozen=True, kw_only=True):
    """The answers of servers by provider, and the programs by backend."""

    keys: tuple[str, ...]
    """Providers with a key."""
    servers: dict[str, ServerList]
    programs: dict[str, Ready | NotReady]
    known: dict[str, tuple[str, ...]]
    """The models that the catalog knows of providers that have a program, the best choice first."""

    @property
    def own_servers(self) -> dict[str, ServerList]:
        """The servers that need no key of a vendor."""
        return {name: server for name, server in self.servers.items() if name not in self.keys}

    def offers(self) -> Iterator[ModelOffer]:
        """The models to choose from: of keys, of servers, then of programs."""
        for provider in self.keys:
            if provider in BY_KEY and self.servers[provider].status != 401:
                yield ModelOffer(model=BY_KEY[provider], reason=f"key of {provider}")
        for provider, server in self.servers.items():
            if provider not in BY_KEY:
                for name in server.chat_models[:_OFFERED]:
                    yield ModelOffer(model=f"{provider}:{name}", reason=f"{provider} has it")
        for program, models in self.program_models.items():
            for model in models:
                if model.partition(":")[0] not in self.keys:
                    yield ModelOffer(model=model, reason=f"through the program {program}", is_program=True)

    @property
    def program_models(self) -> dict[str, tuple[str, ...]]:
        """The known models of each program that is installed and not logged out."""
        found: dict[str, tuple[str, ...]] = {}
        for provider, models in self.known.items():
            for backend in SHIPPED_FALLBACK.programs[provider]:
                ready = self.programs.get(backend)
                if isinstance(ready, Ready) and ready.is_logged_in is not False:
                    found[backend.partition(":")[2]] = models
        return found


async def survey_setup(models: ModelFactory) -> SetupSurvey:
    """Ask every provider with a key, every server of the user and of this machine, and look for programs."""
    catalog = models.catalog
    keys = [name for name in (*BY_KEY, *catalog.own_providers) if models.key_variable(name) is not None]
    servers = await list_servers(models, dict.fromkeys((*keys, *catalog.own_providers, *LOCAL)))
    known = {provider: tuple(_known(catalog, provider)) for provider in SHIPPED_FALLBACK.programs}
    return SetupSurvey(keys=tuple(keys), servers=servers, programs=await _programs(), known=known)


def _known(catalog: Catalog, provider: str) -> list[str]:
    """The first models of a provider in the catalog, and those that only its program has."""
    listed = [f"{provider}:{name}" for name in catalog.providers[provider].models]
    named = [entry.model for entry in catalog.names.values() if entry.model.startswith(f"{provider}:")]
    best = [BY_KEY[provider]] if provider in BY_KEY else []
    return list(dict.fromkeys((*best, *listed, *named)))[:_OF_PROGRAM]


async def _programs() -> dict[str, Ready | NotReady]:
    from deputy.backends.acp.known_agents import AGENTS
    from deputy.backends.cli import NAMES, program_of
    from deputy.backends.program_backend import check_installed

    agents = {f"acp:{name}": agent.program for name, agent in AGENTS.items()}
    return await check_installed({f"cli:{name}": program_of(name) for name in NAMES} | agents, os.environ)


def program_names(survey: SetupSurvey) -> list[str]:
    """The installed programs, each once, with version and login."""
    named: dict[str, str] = {}
    for backend, ready in survey.programs.items():
        name = backend.removeprefix("cli:")
        if isinstance(ready, Ready):
            named[name] = f"{name} {ready.version}".rstrip() + ("" if ready.is_logged_in else " (no login found)")
    return list(named.values())
