"""`deputy models`: ask providers for their models, and list what is known of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct, structs

from deputy.core.fallback import PROGRAMS_ONLY, SHIPPED_FALLBACK
from deputy.interfaces.cli.completers import complete_provider
from deputy.interfaces.cli.console import Console, counted, fitted, with_console
from deputy.interfaces.setup_survey import AgentProgram
from deputy.models.catalog import ModelEntry, ResolvedName, read_catalog
from deputy.models.server_models import ServerList, list_servers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.models.factory import ModelFactory

EPILOG = """\b
Examples:
  deputy models                    all providers, and whether they answer
  deputy models ollama             every model that the server has
  deputy models opencode           every model that the program lists
  deputy models anthropic --json   as JSON

A ✓ means that the server, or the program, answered. Name a model as provider:model or by an alias. Models that are not
listed work too. A key is read from the environment variable shown. A server of your own is a [providers.NAME] in your
config.toml."""

_SHOWN = 8
"""The maximum number of models of a server in the list of all providers."""


class _Listed(Struct, frozen=True):
    """A provider, what its server answered (None: not asked), and its models: those of the server or the catalog."""

    name: str
    server: ServerList | None
    models: dict[str, ModelEntry]
    more: int = 0
    """How many of its models are left out."""
    program: AgentProgram | None = None
    """The installed program that lists its models, where there is no key."""

    @property
    def answered(self) -> bool | None:
        """Whether the server or the program listed its models; None if none was asked."""
        if self.program is not None:
            return self.program.is_listed
        return None if self.server is None else not self.server.problem


@click.command(epilog=EPILOG)
@click.argument("provider", required=False, shell_complete=complete_provider)
@with_console()
def command(console: Console, provider: str | None) -> None:
    """Ask providers for their models."""
    import asyncio

    from deputy.config import load_catalog
    from deputy.core.errors import UsageError
    from deputy.models.factory import ModelFactory

    models = ModelFactory(environ=os.environ, catalog=read_catalog(load_catalog()))
    known = models.catalog.providers
    if provider is not None and provider not in known:
        raise UsageError("PROVIDER", provider, f"give one of {', '.join(known)}")
    listed = asyncio.run(_list(models, [*known] if provider is None else [provider], is_whole=provider is not None))
    names = _names(models, {one.name for one in listed})
    form = {"providers": [_described(models, one) for one in listed], "names": names}
    console.show(form, [*(line for one in listed for line in _provider_lines(models, one)), *_name_lines(names)])


async def _list(models: ModelFactory, chosen: list[str], *, is_whole: bool) -> list[_Listed]:
    import asyncio

    from deputy.interfaces.setup_survey import survey_programs

    async with models, asyncio.TaskGroup() as group:
        servers = group.create_task(list_servers(models, chosen))
        without_key = [name for name in chosen if name in SHIPPED_FALLBACK.programs and not models.has_key(name)]
        _, found = await survey_programs(models.catalog, without_key)
    # The catalog knows more of a provider than its program, unless the program lists its models.
    programs = {one.provider: one for one in found if one.is_listed or one.provider in PROGRAMS_ONLY}
    return [
        _of_program(models, programs[name], is_whole)
        if name in programs
        else _listed(models, name, servers.result().get(name), is_whole)
        for name in chosen
    ]


def _of_program(models: ModelFactory, program: AgentProgram, is_whole: bool) -> _Listed:
    named = program.models if is_whole else program.models[:_SHOWN]
    entries = {name.partition(":")[2]: models.catalog.entry(models.catalog.resolve(name)) for name in named}
    return _Listed(program.provider, None, entries, len(program.models) - len(named), program)


def _listed(models: ModelFactory, provider: str, server: ServerList | None, is_whole: bool) -> _Listed:
    """The models of a server with what the catalog knows of them; of many providers the catalog's, or the first few."""
    known = models.catalog.providers[provider].models
    if server is None or server.problem or (known and not is_whole):
        return _Listed(provider, server, known)
    entries: dict[str, ModelEntry] = {}
    for served in server.models if is_whole else server.models[:_SHOWN]:
        entry = models.catalog.entry(ResolvedName(provider=provider, model=served.name))
        entries[served.name] = structs.replace(entry, window=served.window or entry.window)
    return _Listed(provider, server, entries, len(server.models) - len(entries))


def _described(models: ModelFactory, listed: _Listed) -> dict[str, Any]:
    name = listed.name
    entry = models.catalog.providers[name]
    return {
        "name": name,
        "protocol": entry.protocol,
        "base_url": models.address(name),
        "ready": models.has_key(name),
        "answered": listed.answered,
        "problem": None if listed.server is None else listed.server.problem or None,
        "key_variables": list(entry.keys),
        "key_variable": models.key_variable(name),
        "models": [_model(model, known) for model, known in listed.models.items()],
    }


def _model(name: str, entry: ModelEntry) -> dict[str, Any]:
    prices = entry.prices
    return {
        "name": name,
        "window": entry.window,
        "max_output": entry.max_output,
        "thinks": entry.thinking is not None,
        "retires": entry.retires or None,
        "dollars_per_million_input": prices.input if prices else None,
        "dollars_per_million_output": prices.output if prices else None,
    }


def _names(models: ModelFactory, chosen: set[str]) -> list[dict[str, Any]]:
    resolved = {name: models.catalog.resolve(name) for name in models.catalog.names}
    return [
        {"name": name, "model": str(named), "thinking": named.thinking}
        for name, named in resolved.items()
        if named.provider in chosen
    ]


def _state(models: ModelFactory, listed: _Listed) -> str:
    name, entry = listed.name, models.catalog.providers[listed.name]
    if listed.program is not None:
        return _program_state(listed.program)
    if entry.protocol is None:
        return f"used only through its own program, {PROGRAMS_ONLY[name]}, which is not usable here"
    if listed.server is None:
        return f"no key; set {' or '.join(entry.keys)}"
    variable = models.key_variable(name)
    said = listed.server.problem or f"{counted(len(listed.server.models), 'model')} at {models.address(name)}"
    return f"{said}; key in {variable}" if variable else said


def _program_state(program: AgentProgram) -> str:
    if program.is_listed:
        said = f"{counted(len(program.models), 'model')} through {program.name}"
    elif program.lists_models:
        said = f"{program.name} listed no models"
    else:
        said = f"{program.name} has no command that lists its models"
    return said if program.is_logged_in else f"{said}; no login found"


def _provider_lines(models: ModelFactory, listed: _Listed) -> Iterator[str]:
    yield fitted(f"{listed.name:<12} {'✓' if listed.answered else '✗'} {_state(models, listed)}")
    if listed.program is not None and not listed.program.is_logged_in:
        yield fitted(f"  {listed.program.login}.")
    for model, known in listed.models.items():
        yield fitted(_model_line(model, known))
    if listed.more:
        yield f"  and {listed.more} more: deputy models {listed.name}"


def _model_line(model: str, known: ModelEntry) -> str:
    from datetime import date

    window = f"{known.window:>9,} tokens" if known.window else f"{'window unknown':>16}"
    prices = known.prices
    cost = f"${prices.input:g} in, ${prices.output:g} out" if prices else "price unknown"
    verb = "retires" if known.retires > date.today().isoformat() else "retired"
    end = f"; {verb} on {known.retires}, then {known.successor}" if known.retires else ""
    return f"  {model:<26} {window}   {'free' if prices and not prices.input + prices.output else cost}{end}"


def _name_lines(names: list[dict[str, Any]]) -> Iterator[str]:
    if names:
        yield "\naliases"
    for entry in names:
        thinking = f" (thinking {entry['thinking']})" if entry["thinking"] else ""
        yield fitted(f"  {entry['name']:<26} {entry['model']}{thinking}")
