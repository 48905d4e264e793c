# pyright: basic
"""Processes that run `deputy`, forked from one that has imported it: real processes, without a second of imports each.

`Popen` and `run` are those of `subprocess`. `python -m deputy` and `python SCRIPT.py` are forked; another command, and
one whose environment changes how Python starts, is executed as usual. A shell or a library that starts `deputy` itself
is given `forked_deputy()`.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import fcntl
import json
import os
import runpy
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from pathlib import Path
from typing import Any, NoReturn
from uuid import uuid4

NOT_PRELOADED = (
    "deputy.__main__",
    "deputy.integrations",
    "deputy.models.pydantic_ai",
    "deputy.observe.otel",
    "deputy.processes.reaper",
    "deputy.testing",
)
WARM_UP = (
    "delegate --task a=look --yes",
    "run look --yes --json",
    "ps --all",
    "ps --all --json",
)
_SUSPECT = "Authorization: Bearer made-up, password=made-up\n"
_SIZE = struct.Struct("I")
_STATUS = struct.Struct("i")


class Popen(subprocess.Popen[Any]):
    """A process; with `terminal`, its standard input becomes the terminal of a session of its own."""

    def __init__(
        self, args: Any, *, terminal: bool = False, ignores: signal.Signals | None = None, **options: Any
    ) -> None:
        self._prepared = {"terminal": terminal, "ignores": int(ignores) if ignores else 0}
        self._status: int | None = None
        super().__init__(args, start_new_session=terminal, preexec_fn=lambda: _prepare(self._prepared), **options)

    def _execute_child(self, args: Any, *rest: Any) -> None:
        cwd, env, read, write, error = rest[4], rest[5], rest[9], rest[12], rest[14]
        ours = dict(os.environ) if env is None else env
        argv = _forked_arguments([os.fspath(word) for word in args], ours)
        if argv is None:
            super()._execute_child(args, *rest)  # pyright: ignore[reportAttributeAccessIssue]
            return
        order = {**self._prepared, "argv": argv, "cwd": os.fspath(cwd or "."), "env": ours}
        given = [fd if fd != -1 else standard for standard, fd in enumerate((read, write, error))]
        self.pid, self._status = _server().fork(order, given)
        self._child_created = True
        self._close_pipe_fds(*rest[9:15])  # pyright: ignore[reportAttributeAccessIssue]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            return super()._try_wait(wait_flags)  # pyright: ignore[reportAttributeAccessIssue]
        if wait_flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        status = os.read(self._status, _STATUS.size)
        assert status, "the fork server is gone"
        os.close(self._status)
        return self.pid, _STATUS.unpack(status)[0]

    def _internal_poll(self, *arguments: Any, **more: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*arguments, **more)  # pyright: ignore[reportAttributeAccessIssue]
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid:
                self._handle_exitstatus(status)  # pyright: ignore[reportAttributeAccessIssue]
        return self.returncode


def run(
    args: Any, *, input: Any = None, capture_output: bool = False, timeout: float = 60, check: bool = False, **more: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end."""
    if input is not None:
        more["stdin"] = subprocess.PIPE
    if capture_output:
        more["stdout"] = more["stderr"] = subprocess.PIPE
    with Popen(args, **more) as process:
        try:
            output, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    ended = subprocess.CompletedProcess(args, process.returncode, output, errors)
    if check:
        ended.check_returncode()
    return ended


def forked_deputy() -> tuple[str, ...]:
    """A command for `deputy` that a shell or another program can start; it needs all three standard streams."""
    # Isolated and without packages, Python starts in a third of the time.
    return (sys.executable, "-I", "-S", str(Path(__file__).with_name("forked_deputy.py")), _server().address)


def _prepare(prepared: dict[str, Any]) -> None:
    """Signals as on a new terminal: the tests' own process may ignore Ctrl-C, or that its terminal was closed."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if prepared["ignores"]:
        signal.signal(prepared["ignores"], signal.SIG_IGN)
    if prepared["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _forked_arguments(args: list[str], env: dict[str, str]) -> list[str] | None:
    """The script, empty for `-m deputy`, and its arguments; None for a command that only a new process can run."""
    changed = {name for name in {*env, *os.environ} if env.get(name) != os.environ.get(name)}
    if args[0] != sys.executable or any(name.startswith(("PYTHON", "LD_", "LC_", "LANG")) for name in changed):
        return None
    if args[1:3] == ["-m", "deputy"]:
        return ["", *args[3:]]
    return args[1:] if args[1].endswith(".py") else None


class _Server:
    """The process that forks; it ends with the last process that has this object, forked ones included."""

    def __init__(self) -> None:
        self.address = f"deputy-fork-server-{uuid4().hex}"
        self._socket, theirs = socket.socketpair()
        with theirs, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{self.address}")
            listener.listen(128)
            passed = theirs.fileno(), listener.fileno()
            command = [sys.executable, __file__, *map(str, passed)]
            self._process = subprocess.Popen(command, pass_fds=passed, stdin=subprocess.DEVNULL)

    def fork(self, order: dict[str, Any], given: list[int]) -> tuple[int, int]:
        """Fork with these standard streams; the process's id, and where its status will be written."""
        body = json.dumps(order).encode("utf-8", "surrogateescape")
        reading, writing = os.pipe()
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(f"\0{self.address}")
            socket.send_fds(asking, [_SIZE.pack(len(body))], [*given, writing])
            os.close(writing)
            asking.sendall(body)
            answer = asking.recv(_SIZE.size, socket.MSG_WAITALL)
        assert answer, "the fork server could not import what it preloads"
        return _SIZE.unpack(answer)[0], reading


_started: list[_Server] = []


def _server() -> _Server:
    if not _started:
        _started.append(_Server())
    return _started[0]


# --- in the process that forks ----------------------------------------------------------------------------------------


def _serve(control: socket.socket, listener: socket.socket) -> dict[str, Any]:
    """Fork on demand and write how each child ended; in a child, what it is to run."""
    ended: dict[int, tuple[int, int]] = {}
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(listener, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd in ended:
                poll.unregister(fd)
                pid, status = ended.pop(fd)
                with contextlib.suppress(OSError):
                    os.write(status, _STATUS.pack(os.waitpid(pid, 0)[1]))
                os.close(status)
                os.close(fd)
                continue
            if fd == control.fileno():
                sys.exit()
            asking = listener.accept()[0]
            head, ancillary, _, _ = asking.recvmsg(_SIZE.size, socket.CMSG_SPACE(16))
            fds = array.array("i", ancillary[0][2] if ancillary else b"")
            size = _SIZE.unpack(head)[0] if head else 0
            body = asking.recv(size, socket.MSG_WAITALL)
            if not head or len(body) < size:
                # The process that asked was killed before it had sent all.
                for given in fds:
                    os.close(given)
                asking.close()
                continue
            pid = os.fork()
            if not pid:
                # Closed below, by number.
                for ours in {control, listener, asking}:
                    ours.detach()
                return _become(json.loads(body.decode("utf-8", "surrogateescape")), list(fds))
            for given in fds[:3]:
                os.close(given)
            watched = os.pidfd_open(pid)
            ended[watched] = pid, fds[3]
            poll.register(watched, select.POLLIN)
            with contextlib.suppress(ConnectionError):
                asking.sendall(_SIZE.pack(pid))
            asking.close()


def _become(order: dict[str, Any], given: list[int]) -> dict[str, Any]:
    """Make a forked process what a new one would be."""
    # Above the standard streams first: one of those given may itself be 0, 1 or 2.
    for standard, fd in enumerate([fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in given[:3]]):
        os.dup2(fd, standard)
    os.closerange(3, 256)
    if order["terminal"]:
        os.setsid()
    _prepare(order)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        old = getattr(sys, f"__{name}__")
        fresh: Any = os.fdopen(fd, mode, encoding=old.encoding, errors=old.errors)
        if mode == "w":
            by_line = name == "stderr" or os.isatty(fd)
            fresh.reconfigure(line_buffering=by_line, write_through=old.write_through)
        setattr(sys, name, fresh)
        setattr(sys, f"__{name}__", fresh)
    return order


def main() -> NoReturn:
    import gc
    import importlib
    import pkgutil

    import deputy
    import deputy.__main__ as program

    control, listener = (socket.socket(fileno=int(number)) for number in sys.argv[1:3])
    for module in pkgutil.walk_packages(deputy.__path__, "deputy."):
        if not module.name.startswith(NOT_PRELOADED):
            importlib.import_module(module.name)
    for name in ("rich.live", "rich.markdown"):
        importlib.import_module(name)
    _warm_up()
    gc.collect()
    gc.freeze()
    order = _serve(control, listener)
    script, *arguments = order["argv"]
    sys.argv = [script or program.__file__, *arguments]
    sys.path[0] = str(Path(script).parent) if script else order["cwd"]
    try:
        if script:
            runpy.run_path(script, run_name="__main__")
        else:
            program.main()
    except SystemExit as ended:
        _leave(ended)
    _leave(SystemExit(0))


def _warm_up() -> None:
    """Run a few commands in this process: the patterns and decoders that each would compile are then there for all."""
    from deputy.core.redaction import Redactor
    from deputy.interfaces.cli import deputy

    Redactor().redact(_SUSPECT)
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        kept = dict(os.environ)
        os.environ.clear()
        os.environ.update({"PATH": kept["PATH"], "HOME": folder, "DEPUTY_MODEL": "offline:scout"})
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere), contextlib.chdir(folder):
            for command in WARM_UP:
                deputy.main(shlex.split(command), prog_name="deputy", standalone_mode=False)
        os.environ.clear()
        os.environ.update(kept)


def _leave(ended: SystemExit) -> NoReturn:
    """Exit; without taking all modules apart where no other thread could show a mistake in how that is done."""
    if threading.active_count() == 1 and isinstance(ended.code, int):
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code)
    raise ended


if __name__ == "__main__":
    main()
