"""What all commands share: options, output as text or JSON, exit codes, FILE arguments, and the journal to read."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from deputy.core.errors import StorageError, UnknownRun, UsageError
from deputy.core.limits import IN_DOLLARS, MAX_COST, Budget
from deputy.core.request import ALLOWABLE
from deputy.interfaces.cli.completers import complete_model, complete_run
from deputy.interfaces.safe_text import print_error
from deputy.interfaces.text_lines import outgoing_json, plain, terminal_width

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.engine.ports import Observer
    from deputy.engine.ports.queries import Queries

NOTHING_FOUND, PARTIAL, REJECTED, CANCELLED = 3, 4, 6, 130
_CODES = {"completed": 0, "failed": 1, "partial": PARTIAL, "blocked": 5, "rejected": REJECTED, "cancelled": CANCELLED}
_LIMIT_BYTES = 64 * 1024 * 1024

_DIRECTORY = click.Path(exists=True, file_okay=False)
_CAPS = ("cost", "tokens", "requests")
_BUDGET = "give dollars, like 0.50, or any of cost, tokens and requests, like cost=0.50,tokens=100000,requests=20"


def _read_budget(_context: click.Context, _option: click.Parameter, text: str | None) -> Budget | None:
    """The caps in a text like `0.50`, `$0.50` or `cost=0.50,tokens=100000,requests=20`."""
    if text is None:
        return None
    caps: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.rpartition("=")
        name = name.strip() or "cost"
        try:
            cap = float(value.strip().removeprefix("$")) if name == "cost" else int(value)
        except ValueError:
            cap = 0
        if name not in _CAPS or name in caps:
            # The name alone: with its value, redaction takes `token=5` for a secret.
            raise UsageError("--budget", name, _BUDGET)
        if not 0 < cap < float("inf"):
            raise UsageError(f"--budget {name}", value, _BUDGET)
        caps[name] = cap
    if caps.get("cost", 0) > MAX_COST:
        raise UsageError("--budget", text, f"{IN_DOLLARS}; write tokens like tokens=100000")
    return Budget(**caps)


def _read_timeout(_context: click.Context, _option: click.Parameter, seconds: float | None) -> float | None:
    if seconds is not None and not seconds > 0:
        raise UsageError("--timeout", seconds, "give a number of seconds above 0")
    return seconds


def _read_names(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


_OPTIONS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "model": (
        ("--model",),
        {
            "metavar": "M",
            "shell_complete": complete_model,
            "help": "provider:model or an alias; a task's own model wins.",
        },
    ),
    "workspace": (("--workspace",), {"default": ".", "type": _DIRECTORY, "help": "The folder that subagents see."}),
    "budget": (
        ("--budget",),
        {
            "metavar": "CAPS",
            "callback": _read_budget,
            "help": "The most it may use: dollars, like 0.50, or cost=0.50,tokens=100000,requests=20.",
        },
    ),
    "timeout": (
        ("--timeout",),
        {
            "type": float,
            "metavar": "SECONDS",
            "callback": _read_timeout,
            "help": "Time limit, up to the maximum.",
        },
    ),
    "tools": (
        ("--tools",),
        {"metavar": "A,B", "callback": _read_names, "help": "The tools, instead of the read-only ones."},
    ),
    "allow": (
        ("--allow",),
        {
            "multiple": True,
            "type": click.Choice(ALLOWABLE),
            "help": "A tool beside the read-only ones; repeat it for more.",
        },
    ),
    "yes": (("-y", "--yes"), {"is_flag": True, "help": "Approve everything without asking."}),
    "no_fallback": (
        ("--no-fallback",),
        {"is_flag": True, "help": "Never try another model or backend when one fails."},
    ),
    "no_inline": (("--no-inline",), {"is_flag": True, "help": "Never fall back to the session's own model."}),
    "here": (("--here",), {"is_flag": True, "help": "Run in this process, although the store has workers."}),
    "worker": (("--worker",), {"metavar": "LABEL", "help": "Let workers with this label run it (deputy worker)."}),
    "web": (("--web",), {"is_flag": True, "help": "Also open the web page; questions can be answered there."}),
    "events": (("--events",), {"metavar": "FILE|-", "help": "Write events as JSON lines."}),
}


LIMIT_OPTIONS = ("budget", "timeout", "tools")
"""The options that limit what a run may use."""
SPAWN_OPTIONS = ("model", "workspace", *LIMIT_OPTIONS, "yes", "no_fallback", "no_inline", "events", "here", "worker")
"""The options of commands that start subagents."""


class RunOptions(Struct, frozen=True, kw_only=True):
    """The options of commands that start or continue runs."""

    model: str | None = None
    workspace: str | None = "."
    budget: Budget | None = None
    timeout: float | None = None
    tools: tuple[str, ...] | None = None
    allow: tuple[str, ...] = ()
    yes: bool = False
    no_fallback: bool = False
    no_inline: bool = False
    events: str | None = None
    web: bool = False
    here: bool = False
    worker: str | None = None


class Console:
    """The output of one command: JSON with --json, else text; messages for people go to standard error."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def show(self, form: Any, text: str | Iterable[str]) -> None:
        """Print the result: the form as JSON, or the text."""
        if self.as_json:
            show_json(form)
        else:
            show(text if isinstance(text, str) else "\n".join(text))

    def not_found(self, text: str) -> int:
        """Print why there is nothing to do; return the exit code."""
        warn(text)
        if self.as_json:
            show_json(error_dict("not_found", text, NOTHING_FOUND))
        return NOTHING_FOUND


def with_console(json_help: str = "Print JSON.") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add --json to a command and pass it a Console; an int that it returns is the exit code."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @click.option("--json", "as_json", is_flag=True, help=json_help)
        @wraps(function)
        def command(*, as_json: bool, **arguments: Any) -> None:
            console = Console(as_json=as_json)
            try:
                code = function(console, **arguments)
            except UnknownRun as error:
                code = console.not_found(print_error(error))
                _name_store()
            if code:
                click.get_current_context().exit(code)

        return command

    return decorate


def _name_store() -> None:
    """Say which store was searched: another terminal may use another one."""
    from deputy.journal.home import home_path
    from deputy.stores import find_store

    store = find_store(home_path())
    if not store.is_local:
        warn(f"searched {store.name}. Another store is named by DEPUTY_STORE; without it the journal is in your home.")


def with_run_options(*names: str, **texts: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add these shared options to a command and pass them as `options`; `texts` replaces the help of some."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def command(*arguments: Any, **given: Any) -> Any:
            options = RunOptions(**{name: given.pop(name) for name in names})
            return function(*arguments, options=options, **given)

        for name in reversed(names):
            flags, settings = _OPTIONS[name]
            own: dict[str, Any] = {"help": texts[name]} if name in texts else {}
            command = click.option(*flags, name, **{**settings, **own})(command)
        return command

    return decorate


def run_argument(*, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the argument `run`: an id, the beginning of its random part, a label, or `last`."""
    metavar = "ID" if required else "[ID]"
    return click.argument("run", metavar=metavar, required=required, callback=_find_run, shell_complete=complete_run)


def _find_run(context: click.Context, _option: click.Parameter, name: str | None) -> str | None:
    if name is None or name.startswith("sess_") or context.resilient_parsing:
        return name
    from deputy.interfaces.run_names import find_run

    with read_journal() as queries:
        return name if queries is None else find_run(queries, name)


def check_model(model: str, workspace: str) -> None:
    """Raise unless `--model` names a known model."""
    from deputy.config import load_catalog
    from deputy.models.catalog import read_catalog
    from deputy.models.factory import ModelFactory

    try:
        ModelFactory(environ=os.environ, catalog=read_catalog(load_catalog(workspace))).check(model)
    except UsageError as error:
        raise UsageError("--model", model, error.expected) from error


def log_observer() -> Observer | None:
    """The observer that prints log lines, if -v, --log-level or DEPUTY_LOG asks for them."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_root().obj


# --- output -----------------------------------------------------------------------------------------------------------


def show(text: str) -> None:
    """Print text that may come from a model, a file or another agent."""
    click.echo(plain(text))


def show_json(value: Any) -> None:
    """Print a value as indented JSON with secrets redacted: the form of every `--json`."""
    click.echo(outgoing_json(value, indent=2))


def error_dict(kind: str, message: str, code: int) -> dict[str, Any]:
    """An error as JSON: what a command with --json prints instead of its result."""
    return {"error": {"type": kind, "message": message, "exit_code": code}}


def note(text: str) -> None:
    """Print a message for people, at a terminal wrapped at words."""
    text = plain(text)
    if sys.stderr.isatty():
        from deputy.interfaces.view.terminal_painter import terminal_size

        width = max(20, terminal_size()[0])
        text = "\n".join(fitted(line, width) for line in text.split("\n"))
    click.echo(text, err=True)


def warn(text: str) -> None:
    """Print a message of Deputy itself: an error, a warning, or what to do next."""
    note(f"deputy: {text}")


def fitted(line: str, width: int | None = None) -> str:
    """The line, wrapped at words when it is wider than the terminal."""
    import textwrap

    width = width or terminal_width()
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip(" "))]
    text = " ".join(plain(line).split())
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 run`, `2 runs`, `3 corrections`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """The exit code: 0 when all completed, 4 when some are usable, else the code of the failure."""
    from deputy.core.results import overall

    return _CODES[overall(outcomes)]


# --- input ------------------------------------------------------------------------------------------------------------


def read_source(path: str, *, limit_bytes: int = _LIMIT_BYTES, field: str = "FILE") -> bytes:
    """Read a regular file, or standard input for `-`; a UsageError names the field."""
    content = _read_stdin(limit_bytes, field) if path == "-" else _read_file(path, limit_bytes, field)
    if len(content) > limit_bytes:
        raise UsageError(field, path, f"it is larger than the limit of {limit_bytes // 1024 // 1024} MiB")
    return content


def read_text(path: str, *, limit_bytes: int = _LIMIT_BYTES, field: str = "FILE") -> str:
    """Read it as text: UTF-8 with or without a BOM; invalid bytes are replaced."""
    return read_source(path, limit_bytes=limit_bytes, field=field).decode("utf-8-sig", errors="replace")


def argument_or_stdin(given: str | None, name: str) -> str:
    """The text of an argument, by default read from standard input; a UsageError when it is blank."""
    text = read_text("-") if given is None else given
    if not text.strip():
        raise UsageError(name, text, f"give the {name.lower()} as an argument, or on standard input")
    return text


def _read_stdin(limit_bytes: int, field: str) -> bytes:
    stdin = getattr(sys, "stdin", None)
    if stdin is None:
        raise UsageError(field, "-", "standard input is closed; give a file")
    return stdin.buffer.read(limit_bytes + 1)


def _read_file(path: str, limit_bytes: int, field: str) -> bytes:
    try:
        # O_NONBLOCK: opening a FIFO without a writer would block forever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(
            field, path, f"cannot read it: {error.strerror}; give a readable file, or - for stdin"
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(field, path, "it is not a regular file; give a file, or - for stdin")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(limit_bytes + 1)


# --- the journal ------------------------------------------------------------------------------------------------------


@contextmanager
def open_journal() -> Generator[Queries | None]:
    """Open the journal in this user's home, or yield None where there is none; creates nothing."""
    from deputy.journal.home import home_path
    from deputy.stores import open_queries

    queries = open_queries(home_path())
    if queries is None:
        yield None
        return
    with queries:
        is_shown = _warn_of_damage(queries)
        expire_overdue(queries)
        kill_orphaned(queries)
        try:
            yield queries
        finally:
            # Damage is also found while records are read.
            if not is_shown:
                _warn_of_damage(queries)


@contextmanager
def read_journal() -> Generator[Queries | None]:
    """Open the journal only to read it: damage is an error, and no overdue run is ended."""
    from deputy.journal.home import home_path
    from deputy.stores import open_queries

    queries = open_queries(home_path(), is_checked=False)
    with nullcontext() if queries is None else queries:
        yield queries


@contextmanager
def open_run(run: str) -> Generator[tuple[Queries, State]]:
    """Open the journal and find a run in it; UnknownRun when it is not there."""
    with open_journal() as queries:
        state = None if queries is None else queries.state(run)
        if queries is None or state is None:
            raise UnknownRun(run)
        yield queries, state


def _warn_of_damage(queries: Queries) -> bool:
    if queries.damage:
        warn(f"{queries.location}: {queries.damage}; showing what can still be read")
    return bool(queries.damage)


def expire_overdue(queries: Queries) -> float:
    """End runs past their deadline, of any process, and deny approvals past theirs; mostly this only reads.

    Returns the seconds until the next deadline.
    """
    from deputy.journal.home import home_path
    from deputy.journal.registry import out_of_time

    found = out_of_time(queries, queries.now())
    if not found.late and not found.unanswered:
        return found.next_seconds
    from deputy.journal.expire import expire_overdue, expire_unanswered
    from deputy.processes.orphans import environment_tag, kill_orphans
    from deputy.stores import find_store

    store = find_store(home_path())
    try:
        if found.unanswered:
            expire_unanswered(store, found.unanswered)
        ended = expire_overdue(store, found.late) if found.late else []
    except StorageError as error:
        warn(f"cannot end overdue runs: {print_error(error)}")
        return found.next_seconds
    kill_orphans(*(environment_tag(state.run) for state in ended))
    return found.next_seconds


def kill_orphaned(queries: Queries) -> None:
    """Kill programs whose Deputy process has died."""
    from deputy.journal.registry import orphaned

    if runs := orphaned(queries):
        from deputy.processes.orphans import environment_tag, kill_orphans

        kill_orphans(*map(environment_tag, runs))
