"""The supervisor script: runs one program, and kills everything it started when it exits or the parent process dies.

It is a separate process, so it survives the death of its parent. As a child subreaper it is the parent of all orphans
below it, also of those that fork twice, leave the group or clear the environment. It has a socket to its parent, the
leash: a byte is a signal for the program, the end of the stream ends everything, and the exit status is sent back.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

_SET_PARENT_DEATH_SIGNAL, _SET_DUMPABLE, _SET_CHILD_SUBREAPER = 1, 4, 36
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT)
_KILL_SECONDS = 5.0
_PAUSE_SECONDS = 0.005
_CANNOT_RUN = 127


def main() -> None:
    """Run the program in the arguments after leash, run and home; send its exit status once all descendants are gone.

    Run and home are in the command line for processes below: a child can clear its environment, but not its parents.
    """
    # Other processes of this user must not read our environment and memory.
    _control(_SET_DUMPABLE, 0)
    leash = int(sys.argv[1])
    os.set_inheritable(leash, False)
    _control(_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, _heard)
    program, problem = _start(sys.argv[4:])
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    status = _watch(leash, woken, program)
    status = _end_all(program, status)
    _emit(leash, f"failed {problem}" if problem else _ended(status))
    os._exit(0)


def _heard(_number: int, _frame: object) -> None:
    """The wakeup descriptor does the work; without a handler the signal would be ignored."""


def _start(argv: list[str]) -> tuple[int, int]:
    """The program's process id, and the errno when it could not be run."""
    reading, writing = os.pipe()
    reaper = os.getpid()
    program = os.fork()
    if program == 0:
        try:
            os.setpgid(0, 0)
            # Ignored signals are inherited, for example from a shell's background job.
            for number in _DEAF_TO:
                signal.signal(number, signal.SIG_DFL)
            _control(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
            if os.getppid() == reaper:
                os.execv(argv[0], argv)
        except OSError as error:
            os.write(writing, str(error.errno).encode())
        os._exit(_CANNOT_RUN)
    os.close(writing)
    problem = os.read(reading, 16)
    os.close(reading)
    return program, int(problem or b"0")


def _watch(leash: int, woken: int, program: int) -> int | None:
    """The program's status once it has exited; None when the leash was closed before."""
    while True:
        ready, _, _ = select.select([leash, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            status = _reap(program)
            if status is not None:
                return status
        if leash in ready:
            try:
                asked = os.read(leash, 64)
            except OSError:
                asked = b""
            if not asked:
                return None
            for number in asked:
                _send(-program, number)


def _end_all(program: int, status: int | None) -> int | None:
    """Kill descendants until none is left: a subreaper without children has no descendants."""
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        for pid in _descendants(os.getpid()):
            _send(pid, signal.SIGKILL)
        try:
            found = _reap(program)
        except ChildProcessError:
            break
        status = found if status is None else status
        time.sleep(_PAUSE_SECONDS)
    return status


def _reap(program: int) -> int | None:
    """Reap all dead children; the program's status if it is among them."""
    status: int | None = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            if status is None:
                raise
            return status
        if pid == 0:
            return status
        if pid == program:
            status = ended


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _send(target: int, number: int) -> None:
    try:
        os.kill(target, number)
    except (OSError, ValueError):
        pass


def _control(option: int, value: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _ended(status: int | None) -> str:
    return "unknown" if status is None else f"exited {os.waitstatus_to_exitcode(status)}"


def _emit(leash: int, words: str) -> None:
    try:
        os.write(leash, words.encode())
    except OSError:
        pass


if __name__ == "__main__":
    main()
