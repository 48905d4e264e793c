"""Run a program under a supervisor: its streams, its exit status, and the end of everything it started."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex
from subprocess import DEVNULL, PIPE, STDOUT, Popen
from typing import IO, TYPE_CHECKING

from msgspec import Struct

from deputy.processes.ancestry import supervisor_arguments
from deputy.processes.orphans import TAG, environment_tag, kill_orphans

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

GRACE_SECONDS = 1.5
_SETTLE_SECONDS = 6.0
"""Longer than the reaper tries to kill; usually it takes milliseconds."""
_STREAM_BYTES = 64 * 1024
_REAPER = str(Path(__file__).with_name("reaper.py"))


class Command(Struct, frozen=True, kw_only=True):
    """A program to run, and how to end it."""

    argv: tuple[str, ...]
    """The program by its full path, and its arguments."""
    cwd: str
    environment: Mapping[str, str]
    owner: str
    """The session id of its run; orphans are found by it."""
    has_input: bool = True
    """Whether its input is written; else it is empty."""
    merges_errors: bool = False
    """Whether stderr goes to stdout."""
    polite: signal.Signals = signal.SIGTERM
    """The signal that asks it to end."""
    grace_seconds: float = GRACE_SECONDS
    """How long it may take to end."""
    stream_bytes: int = _STREAM_BYTES
    """The read buffer of each stream."""
    descriptors: tuple[int, ...] = ()
    """Open descriptors that it gets, under the same numbers."""


class ExitStatus(Struct, frozen=True, kw_only=True):
    """The exit code of a program (negative: a signal), or why it never ran."""

    code: int | None = None
    """None when it never ran, or when the reaper died."""
    errno: int = 0
    """The errno when it could not be run."""


class SupervisedChild:
    """A running program."""

    def __init__(
        self,
        reaper: Popen[bytes],
        leash: socket.socket,
        stdin: asyncio.StreamWriter | None,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self._reaper = reaper
        self._leash = leash
        self._exit: asyncio.Future[ExitStatus] | None = None

    @property
    def reaper(self) -> int:
        """The process id of its reaper."""
        return self._reaper.pid

    async def exited(self) -> ExitStatus:
        """Wait until the program has exited and everything it started is gone."""
        if self._exit is None:
            self._exit = asyncio.ensure_future(self._receive())
        return await asyncio.shield(self._exit)

    def ask(self, number: signal.Signals) -> None:
        """Send the program's group a signal."""
        with suppress(OSError):
            self._leash.send(bytes([number]))

    def kill(self) -> None:
        """Have the reaper kill the program and everything it started."""
        with suppress(OSError):
            self._leash.shutdown(socket.SHUT_WR)

    async def feed(self, data: bytes) -> None:
        """Write its input and close it; a program may end without reading all of it."""
        if self.stdin is None:
            return
        with suppress(ConnectionError):
            self.stdin.write(data)
            await self.stdin.drain()
            self.stdin.close()

    async def end(self, polite: signal.Signals, grace_seconds: float) -> None:
        """Ask it to end, wait for the grace period, then kill; bounded, also when cancelled."""
        try:
            if not self._is_over:
                self.ask(polite)
                await self._wait(grace_seconds)
        finally:
            self.kill()
            try:
                await self._wait(_SETTLE_SECONDS)
            finally:
                if not self._is_over:
                    self._reaper.kill()
                self._reaper.wait()

    @property
    def _is_over(self) -> bool:
        return self._exit is not None and self._exit.done()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited()

    async def _receive(self) -> ExitStatus:
        text = b""
        with suppress(OSError):
            while data := await asyncio.get_running_loop().sock_recv(self._leash, 64):
                text += data
        match text.split():
            case [b"exited", code]:
                return ExitStatus(code=int(code))
            case [b"failed", number]:
                return ExitStatus(errno=int(number))
            case _:
                return ExitStatus()


@asynccontextmanager
async def supervise(command: Command) -> AsyncGenerator[SupervisedChild]:
    """Run a program during the block; afterwards nothing that it started is left, even if this process dies."""
    tag = f"{environment_tag(command.owner)}{token_hex(8)}"
    ours, theirs = socket.socketpair()
    try:
        with theirs:
            reaper = _reaper(command, tag, theirs.fileno())
    except BaseException:
        ours.close()
        raise
    transports: list[asyncio.BaseTransport] = []
    child: SupervisedChild | None = None
    try:
        child = await _connected(reaper, ours, command.stream_bytes, transports)
        yield child
    finally:
        try:
            if child is not None:
                await child.end(command.polite, command.grace_seconds)
        finally:
            _close(reaper, ours, transports)
            await asyncio.shield(asyncio.to_thread(kill_orphans, tag))


def _reaper(command: Command, tag: str, leash: int) -> Popen[bytes]:
    text = supervisor_arguments(command.owner, command.environment)
    return Popen(
        [sys.executable, "-I", "-S", _REAPER, str(leash), *text, *command.argv],
        cwd=command.cwd,
        env={**command.environment, TAG: tag},
        stdin=PIPE if command.has_input else DEVNULL,
        stdout=PIPE,
        stderr=STDOUT if command.merges_errors else PIPE,
        pass_fds=(leash, *command.descriptors),
        start_new_session=True,
    )


async def _connected(
    reaper: Popen[bytes], leash: socket.socket, limit: int, transports: list[asyncio.BaseTransport]
) -> SupervisedChild:
    stdin = None if reaper.stdin is None else await _writer(reaper.stdin, transports)
    stdout = await _reader(_pipe(reaper.stdout), limit, transports)
    stderr = _nothing() if reaper.stderr is None else await _reader(reaper.stderr, limit, transports)
    leash.setblocking(False)
    return SupervisedChild(reaper, leash, stdin, stdout, stderr)


async def _reader(pipe: IO[bytes], limit: int, transports: list[asyncio.BaseTransport]) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=limit)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    transports.append(transport)
    return reader


def _nothing() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_eof()
    return reader


async def _writer(pipe: IO[bytes], transports: list[asyncio.BaseTransport]) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
    )
    transports.append(transport)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise TypeError("Popen has no pipe for a stream opened as PIPE")
    return pipe


def _close(reaper: Popen[bytes], leash: socket.socket, transports: list[asyncio.BaseTransport]) -> None:
    """Close the streams, and kill a reaper that was never connected."""
    for transport in transports:
        if not transport.is_closing():
            transport.abort() if isinstance(transport, asyncio.WriteTransport) else transport.close()
    leash.close()
    if reaper.returncode is None:
        for pipe in (reaper.stdin, reaper.stdout, reaper.stderr):
            if pipe is not None:
                pipe.close()
        reaper.kill()
        reaper.wait()
