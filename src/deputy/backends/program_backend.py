"""A program as a backend: whether it is installed, how it is started for a request, and its turns."""

from __future__ import annotations

import asyncio
import posixpath
import shutil
from abc import ABC, abstractmethod
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from deputy.backends import program_errors
from deputy.backends.cli.program import Invocation, json_object
from deputy.backends.program_turn import OutputReader, ProgramTurn
from deputy.engine.ports.backend import BackendResult, NotReady, Ready
from deputy.processes.current_trace import VARIABLE, current_traceparent
from deputy.processes.environment import NETWORK, TRACING, scrubbed
from deputy.processes.supervise import Command, supervise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.cli.program import Program
    from deputy.backends.program_turn import StopReasonOfProgram, TurnTasks
    from deputy.core.errors import Error
    from deputy.core.redaction import Redactor
    from deputy.engine.ports.backend import BackendRequest, Emit
    from deputy.processes.supervise import SupervisedChild

_VERSION_SECONDS = 20.0
_SETTINGS_BYTES = 256 * 1024
_VERSION_BYTES = 2000
_PARENTS = 4


class ProgramBackend(ABC):
    """A program as a backend."""

    def __init__(
        self, name: str, program: Program, environ: Mapping[str, str], *, redactor: Redactor | None = None
    ) -> None:
        self.name = name
        self.program = program
        self._environ = environ
        self._redactor = redactor
        self._found: dict[tuple[str, int] | None, Ready | NotReady] = {}

    @abstractmethod
    def turn(self, invocation: Invocation, output: OutputReader, emit: Emit) -> ProgramTurn:
        """A turn of the program."""

    async def check(self) -> Ready | NotReady:
        """Whether it is installed; cached until the program's file changes."""
        found = find(self.program, self._environ)
        if found not in self._found:
            self._found = {found: await find_installed(self.program, self._environ)}
        return self._found[found]

    async def run(self, request: BackendRequest, emit: Emit) -> BackendResult:
        """Run one turn."""
        program, ready = self.program, await self.check()
        if isinstance(ready, NotReady):
            return BackendResult(kind="failed", error=ready.error)
        invocation = invocation_of(program, request, self._environ)
        if not isinstance(invocation, Invocation):
            return BackendResult(kind="failed", error=invocation)
        try:
            with closing(OutputReader(request.spill, self._redactor)) as output:
                return await self.turn(invocation, output, emit).play(command_of(ready, invocation))
        except OSError as error:
            reason = error.strerror or str(error)
            return BackendResult(kind="failed", error=program_errors.cannot_run(program.name, reason, program.install))


class CliBackend(ProgramBackend):
    """A command-line program as a backend."""

    def __init__(self, program: Program, environ: Mapping[str, str], *, redactor: Redactor | None = None) -> None:
        super().__init__(f"cli:{program.name}", program, environ, redactor=redactor)

    def turn(self, invocation: Invocation, output: OutputReader, emit: Emit) -> ProgramTurn:
        """A turn of the program."""
        return _CliTurn(invocation, output, emit)


class _CliTurn(ProgramTurn):
    linger_seconds = 3.0

    async def talk(self, child: SupervisedChild) -> None:
        await child.feed(self._order.prompt.encode())

    async def receive(self, line: bytes) -> bool:
        fields = json_object(line)
        if fields is not None:
            self._order.program.read(fields, self._recorder)
        return fields is not None

    async def finish(self, stopping: StopReasonOfProgram, child: SupervisedChild, tasks: TurnTasks) -> None:
        program = self._order.program
        if stopping != "exited":
            child.ask(program.polite)
            await asyncio.wait({tasks.exiting}, timeout=program.grace_seconds)
            child.kill()


def invocation_of(program: Program, request: BackendRequest, environ: Mapping[str, str]) -> Invocation | Error:
    """The invocation for a request, or the error why the program must not run."""
    model = _own_name(program, request.model)
    if not isinstance(model, str):
        return model
    invocation = Invocation(program=program, request=request, model=model, environ=environ, place=_place(request))
    return _refusal(invocation) or invocation


def command_of(ready: Ready, invocation: Invocation) -> Command:
    """The command to start a program, with only the environment variables that it needs."""
    program, provider = invocation.program, _provider_of(invocation)
    also = [
        pattern
        for switch, patterns in program.variables_by.items()
        if invocation.environ.get(switch) or switch == provider
        for pattern in patterns
    ]
    environment = scrubbed(invocation.environ, (*NETWORK, *TRACING, *program.variables, *also))
    traceparent = current_traceparent()
    if traceparent is not None:
        environment[VARIABLE] = str(traceparent)
    return Command(
        argv=(ready.path, *program.arguments(invocation)),
        cwd=invocation.place,
        environment={**program.settings(invocation), **environment},
        owner=invocation.request.session_id,
        polite=program.polite,
        grace_seconds=program.grace_seconds,
    )


def _provider_of(invocation: Invocation) -> str:
    """The provider of the requested model, also when the model is named by program."""
    separator = invocation.program.separator
    own, _, name = invocation.model.partition(separator) if separator else ("", "", "")
    return own if name else invocation.request.model.partition(":")[0]


def _own_name(program: Program, model: str) -> str | Error:
    """The program's own name of a model; an error when it cannot have the model."""
    if model in program.model_names:
        return program.model_names[model]
    provider, colon, name = model.partition(":")
    if not _is_word(provider) or not _is_word(name):
        return program_errors.model_unknown(program.name, f"{model!r:.200} is not a valid name")
    if not colon:
        return model
    if provider == program.name and program.separator and program.separator in name:
        return name
    if program.providers and provider not in program.providers:
        return program_errors.model_unknown(
            program.name, f"{model!r} is not a model of {' or '.join(program.providers)}"
        )
    return f"{provider}{program.separator}{name}" if program.separator else name


def _refusal(invocation: Invocation) -> Error | None:
    program = invocation.program
    if not _is_word(invocation.session):
        return program_errors.session_gone(program.name, f"{invocation.session!r:.200} is not a valid id")
    missing = sorted(program.always - invocation.tools)
    unheld = program.cannot_hold(invocation) or (f"working without {', '.join(missing)}" if missing else "")
    if not invocation.place:
        unheld = f"the paths {invocation.request.grant.paths!r:.200}"
    return program_errors.grant_not_held(program.name, unheld) if unheld else None


def _is_word(name: str) -> bool:
    """Whether a name is safe as an argument: not mistaken for a flag."""
    return name.isprintable() and not name.startswith("-")


def _place(request: BackendRequest) -> str:
    """The workspace, or the one granted folder of it; empty when the grant is anything else."""
    match request.grant.paths:
        case (path,) if request.grant.covers(path):
            place = posixpath.normpath(posixpath.join(request.workspace, path))
            return place if Path(place).is_dir() else ""
        case _:
            return ""


async def check_installed(programs: Mapping[str, Program], environ: Mapping[str, str]) -> dict[str, Ready | NotReady]:
    """Check several programs, in parallel."""
    async with asyncio.TaskGroup() as group:
        checks = {name: group.create_task(find_installed(program, environ)) for name, program in programs.items()}
    return {name: check.result() for name, check in checks.items()}


async def find_installed(program: Program, environ: Mapping[str, str]) -> Ready | NotReady:
    """Check one program."""
    found = find(program, environ)
    if found is None:
        return NotReady(error=program_errors.not_installed(program.name, program.install))
    path, _ = found
    version = await asyncio.to_thread(_packaged_version, path, program.package) if program.package else ""
    # Without a least version the program is not run: not every program knows `--version`.
    if not version and program.least_version:
        version = await _printed_version(program, path, environ)
    if not version and program.least_version:
        error = program_errors.cannot_run(program.name, "`--version` printed nothing", program.install)
        return NotReady(error=error, path=path)
    if version and (not program.is_version(version) or numbers(version) < program.least_version):
        wanted = f"{'.'.join(map(str, program.least_version))} or later"
        return NotReady(
            error=program_errors.wrong_version(program.name, version, wanted, program.install),
            path=path,
            version=version,
        )
    return Ready(path=path, version=version, is_logged_in=_is_logged_in(program, environ))


class _Package(Struct):
    name: str = ""
    version: str = ""


def find(program: Program, environ: Mapping[str, str]) -> tuple[str, int] | None:
    """The program's file on the PATH and its time of change, which an upgrade changes."""
    path = shutil.which(program.name, path=environ.get("PATH", ""))
    with suppress(OSError):
        return None if path is None else (path, Path(path).stat().st_mtime_ns)
    return None


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of the first version in a text."""
    for word in version.replace("(", " ").split():
        pieces = word.lstrip("v").partition("-")[0].split(".")
        if len(pieces) > 1 and all(piece.isascii() and piece.isdecimal() for piece in pieces):
            return tuple(int(piece[:9]) for piece in pieces)
    return ()


def _packaged_version(path: str, package: str) -> str:
    """The version from the program's package.json; starting the program would take seconds."""
    with suppress(OSError, ValueError, RecursionError):
        for folder in list(Path(path).resolve().parents)[:_PARENTS]:
            description = folder / "package.json"
            if description.is_file() and description.stat().st_size < 1_000_000:
                described = msgspec.json.decode(description.read_bytes(), type=_Package)
                if described.name == package:
                    return described.version
    return ""


async def _printed_version(program: Program, path: str, environ: Mapping[str, str]) -> str:
    command = Command(
        argv=(path, "--version"),
        cwd="/",
        environment=scrubbed(environ, NETWORK),
        owner=f"version-of-{program.name}",
        has_input=False,
        grace_seconds=0.5,
    )
    with suppress(TimeoutError):
        async with asyncio.timeout(_VERSION_SECONDS), supervise(command) as child:
            printed = await child.stdout.read(_VERSION_BYTES)
            lines = printed.decode("utf-8", "replace").strip().splitlines()
            return lines[0][:100] if lines else ""
    return ""


def _is_logged_in(program: Program, environ: Mapping[str, str]) -> bool | None:
    if any(environ.get(key, "").strip() for key in program.keys):
        return True
    home = Path(environ.get("HOME", "/nonexistent"))
    with suppress(OSError):
        has_login = any((home / file).exists() for file in program.login_files)
        return True if has_login or any(_has_key(home / file) for file in program.key_files) else None
    return None


def _has_key(settings: Path) -> bool:
    if not settings.is_file():
        return False
    with settings.open("rb") as opened:
        return b'"apiKey"' in opened.read(_SETTINGS_BYTES)
