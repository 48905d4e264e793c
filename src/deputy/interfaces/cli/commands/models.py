"""`deputy models`: list providers and models, and which keys are set."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from deputy.interfaces.cli.console import Console, fitted, with_console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.models.catalog import ModelEntry
    from deputy.models.factory import ModelFactory

EPILOG = """\b
Examples:
  deputy models                    all providers, and which keys are missing
  deputy models anthropic --json   one provider, as JSON

Name a model as provider:model or by an alias. Models that are not listed work too. A key is read from the environment
variable shown."""


@click.command(epilog=EPILOG)
@click.argument("provider", required=False)
@with_console()
def command(console: Console, provider: str | None) -> None:
    """List providers and models, and which keys are set."""
    from deputy.core.errors import UsageError
    from deputy.models.factory import ModelFactory

    models = ModelFactory(environ=os.environ)
    known = models.catalog.providers
    if provider is not None and provider not in known:
        raise UsageError("PROVIDER", provider, f"give one of {', '.join(known)}")
    chosen = [provider] if provider is not None else list(known)
    names = _names(models, chosen)
    form = {"providers": [_described(models, name) for name in chosen], "names": names}
    console.show(form, [*(line for name in chosen for line in _provider_lines(models, name)), *_name_lines(names)])


def _described(models: ModelFactory, name: str) -> dict[str, Any]:
    entry = models.catalog.providers[name]
    return {
        "name": name,
        "protocol": entry.protocol,
        "base_url": models.address(name),
        "ready": models.has_key(name),
        "key_variables": list(entry.keys),
        "key_variable": models.key_variable(name),
        "models": [_model(model, known) for model, known in entry.models.items()],
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


def _names(models: ModelFactory, chosen: list[str]) -> list[dict[str, Any]]:
    resolved = {name: models.catalog.resolve(name) for name in models.catalog.names}
    return [
        {"name": name, "model": str(named), "thinking": named.thinking}
        for name, named in resolved.items()
        if named.provider in chosen
    ]


def _provider_lines(models: ModelFactory, name: str) -> Iterator[str]:
    from datetime import date

    entry, today = models.catalog.providers[name], date.today().isoformat()
    if entry.protocol is None:
        state = "used only through its own program"
    elif variable := models.key_variable(name):
        state = f"key in {variable}"
    elif not entry.needs_key:
        state = f"needs no key, at {models.address(name)}"
    else:
        state = f"no key; set {' or '.join(entry.keys)}"
    yield fitted(f"{name:<12} {'✓' if models.has_key(name) else '✗'} {state}")
    for model, known in entry.models.items():
        window = f"{known.window:>9,} tokens" if known.window else "     window unknown"
        prices = known.prices
        cost = f"${prices.input:g} in, ${prices.output:g} out" if prices else "price unknown"
        verb = "retires" if known.retires > today else "retired"
        end = f"; {verb} on {known.retires}, then {known.successor}" if known.retires else ""
        yield fitted(f"  {model:<26} {window}   {cost}{end}")


def _name_lines(names: list[dict[str, Any]]) -> Iterator[str]:
    if names:
        yield "\naliases"
    for entry in names:
        thinking = f" (thinking {entry['thinking']})" if entry["thinking"] else ""
        yield fitted(f"  {entry['name']:<26} {entry['model']}{thinking}")
