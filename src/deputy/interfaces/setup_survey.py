"""What there is to work with: keys, model servers and programs of other agents, each asked once."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.fallback import SHIPPED_FALLBACK
from deputy.engine.ports import NotReady, Ready
from deputy.models.default_model import BY_KEY
from deputy.models.server_models import LOCAL, ServerList, list_servers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from deputy.backends.cli.program import Program
    from deputy.models.catalog import Catalog
    from deputy.models.factory import ModelFactory

_OFFERED = 20
"""The maximum number of models of one server or program to choose from."""
_KNOWN = 4
"""The same of a program that lists none, whose models are those that the catalog knows."""


class ModelOffer(Struct, frozen=True, kw_only=True):
    """A model that can be the default."""

    model: str
    reason: str
    has_login: bool = True
    """Whether it can be used as things are: a program without a login cannot."""


class AgentProgram(Struct, frozen=True, kw_only=True):
    """An installed program of another agent, and its models."""

    name: str
    provider: str
    backend: str
    """The backend that Deputy tries first."""
    models: tuple[str, ...]
    """By our names, the best choice first."""
    lists_models: bool
    """Whether the program has a command that lists its models."""
    is_listed: bool
    """Whether the models come from that command, not from the catalog."""
    is_logged_in: bool
    login: str
    """How to log in."""


class SetupSurvey(Struct, frozen=True, kw_only=True):
    """The answers of servers by provider, and the programs by backend."""

    keys: tuple[str, ...]
    """Providers with a key."""
    servers: dict[str, ServerList]
    backends: dict[str, Ready | NotReady]
    programs: tuple[AgentProgram, ...]

    @property
    def own_servers(self) -> dict[str, ServerList]:
        """The servers that need no key of a vendor."""
        return {name: server for name, server in self.servers.items() if name not in self.keys}

    def offers(self) -> Iterator[ModelOffer]:
        """The models to choose from: of keys, of servers, then of programs, those with a login first."""
        for provider in self.keys:
            if provider in BY_KEY and self.servers[provider].status != 401:
                yield ModelOffer(model=BY_KEY[provider], reason=f"key of {provider}")
        for provider, server in self.servers.items():
            if provider not in BY_KEY:
                for name in server.chat_models[:_OFFERED]:
                    yield ModelOffer(model=f"{provider}:{name}", reason=f"{provider} has it")
        for program in sorted(self.programs, key=lambda one: not one.is_logged_in):
            reason = f"through {program.name}" + ("" if program.is_logged_in else ", no login found")
            if program.provider not in self.keys:
                for model in program.models[:_OFFERED]:
                    yield ModelOffer(model=model, reason=reason, has_login=program.is_logged_in)

    def program_of(self, provider: str) -> AgentProgram | None:
        """The installed program that has the models of a provider."""
        return next((program for program in self.programs if program.provider == provider), None)


async def survey_setup(models: ModelFactory) -> SetupSurvey:
    """Ask every provider with a key, every server of the user and of this machine, and every program."""
    catalog = models.catalog
    keys = [name for name in (*BY_KEY, *catalog.own_providers) if models.key_variable(name) is not None]
    async with asyncio.TaskGroup() as group:
        servers = group.create_task(list_servers(models, dict.fromkeys((*keys, *catalog.own_providers, *LOCAL))))
        backends, programs = await survey_programs(catalog, SHIPPED_FALLBACK.programs)
    return SetupSurvey(keys=tuple(keys), servers=servers.result(), backends=backends, programs=programs)


async def survey_programs(
    catalog: Catalog, providers: Iterable[str]
) -> tuple[dict[str, Ready | NotReady], tuple[AgentProgram, ...]]:
    """Look for the programs of these providers, and ask each installed one for its models."""
    from deputy.backends.acp.known_agents import AGENTS
    from deputy.backends.cli import NAMES, program_of
    from deputy.backends.program_backend import check_installed

    known = {f"cli:{name}": program_of(name) for name in NAMES}
    known |= {f"acp:{name}": agent.program for name, agent in AGENTS.items()}
    tried = {provider: SHIPPED_FALLBACK.programs[provider] for provider in providers}
    wanted = {backend: known[backend] for backends in tried.values() for backend in backends}
    found = await check_installed(wanted, os.environ)
    ready = {backend: one for backend, one in found.items() if isinstance(one, Ready)}
    async with asyncio.TaskGroup() as group:
        asked = {
            provider: group.create_task(
                _asked(catalog, provider, {backend: (known[backend], ready[backend]) for backend in backends})
            )
            for provider, all_backends in tried.items()
            if (backends := [backend for backend in all_backends if backend in ready])
        }
    return found, tuple(program.result() for program in asked.values())


async def _asked(catalog: Catalog, provider: str, backends: Mapping[str, tuple[Program, Ready]]) -> AgentProgram:
    """One installed program, with the models that it lists itself, else those that the catalog knows."""
    from deputy.backends.program_models import list_models

    named: tuple[str, ...] | None = None
    is_logged_in = any(ready.is_logged_in for _, ready in backends.values())
    for program, ready in backends.values():
        if program.models is not None and named is None:
            named = await list_models(program, ready.path, os.environ)
            is_logged_in = is_logged_in or (program.models.proves_login and bool(named))
    first = next(iter(backends))
    return AgentProgram(
        name=first.partition(":")[2],
        provider=provider,
        backend=first,
        models=tuple(f"{provider}:{name}" for name in named) if named else tuple(_known(catalog, provider)),
        lists_models=named is not None,
        is_listed=bool(named),
        is_logged_in=is_logged_in,
        login=backends[first][0].login,
    )


def _known(catalog: Catalog, provider: str) -> list[str]:
    """The first models of a provider in the catalog, and those that only its program has."""
    listed = [f"{provider}:{name}" for name in catalog.providers[provider].models]
    named = [entry.model for entry in catalog.names.values() if entry.model.startswith(f"{provider}:")]
    best = [BY_KEY[provider]] if provider in BY_KEY else []
    return list(dict.fromkeys((*best, *listed, *named)))[:_KNOWN]


def program_names(survey: SetupSurvey) -> list[str]:
    """The installed programs with their versions, each executable once."""
    named: dict[str, str] = {}
    # A program with two protocols has its own name before the name of the protocol.
    for backend, ready in sorted(survey.backends.items(), key=lambda item: item[0].startswith("acp:")):
        if isinstance(ready, Ready):
            named.setdefault(ready.path, f"{backend.removeprefix('cli:')} {ready.version}".rstrip())
    return list(named.values())


def program_lines(program: AgentProgram, shown: int = _KNOWN) -> Iterator[str]:
    """What is known of a program's models and login, for people."""
    first = ", ".join(program.models[:shown])
    if program.is_listed:
        more = len(program.models) - shown
        rest = f", and {more} more: deputy models {program.provider}" if more > 0 else ""
        yield f"{program.name} has {first}{rest}"
    else:
        why = "listed no models" if program.lists_models else "has no command that lists its models"
        yield f"{program.name} {why}; " + (f"Deputy knows {first}" if first else f"name one: {program.provider}:MODEL")
    if not program.is_logged_in:
        yield f"{program.name}: no login found. {program.login}."
