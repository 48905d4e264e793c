"""Run commands in bubblewrap: no network, no home directory, only the workspace can be written."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import stat
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deputy.tools.tool_text import ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from deputy.tools.workspace import Workspace

PROGRAM = "bwrap"
SANDBOXED = f"{PROGRAM}: no network, no home directory, only the workspace can be written"
_HOME = "/tmp/home"  # noqa: S108  inside the sandbox, where /tmp is new and empty
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")
_ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "environment", "fonts", "gitconfig", "group", "hosts",
    "java", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf", "os-release",
    "passwd", "pki", "profile", "profile.d", "protocols", "services", "ssl", "terminfo", "timezone",
)  # fmt: skip
"""What programs need of /etc; the rest of it may have secrets that root can read."""
_CHECK_SECONDS = 10.0
_POLL_SECONDS = 0.02
_SEEN = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC


class SandboxedCommand(NamedTuple):
    """A command in the sandbox, and the open descriptors that it needs."""

    argv: tuple[str, ...]
    descriptors: tuple[int, ...]


class Sandbox:
    """The sandbox of one workspace. Where it cannot be used, nothing is run."""

    def __init__(self, workspace: Workspace, environment: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._home = environment.get("HOME", "")
        self._program = shutil.which(PROGRAM, path=environment.get("PATH"))
        self._is_checked = False

    @asynccontextmanager
    async def command(self, argv: Sequence[str], directory: str, seconds: float) -> AsyncGenerator[SandboxedCommand]:
        """A command to run during the block, in a directory of the workspace; ToolError where there is no sandbox.

        What bubblewrap binds is opened here and given as descriptors: another command that runs in the workspace
        cannot replace it by a link. It can create what is not there yet, so then this one runs alone.
        """
        self._refuse()
        with ExitStack() as closing:
            lock = os.open(self._workspace.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            closing.callback(os.close, lock)
            await _lock(lock, fcntl.LOCK_SH, seconds)
            mounts = _Mounts(closing)
            if not self._mount(mounts):
                await _lock(lock, fcntl.LOCK_EX, seconds)
                mounts = _Mounts(closing)
                self._mount(mounts)
            yield self._wrapped(argv, directory, mounts)

    async def check(self, seconds: float = _CHECK_SECONDS) -> None:
        """Start an empty command once; a ToolError says why the sandbox cannot be used on this machine."""
        if self._is_checked:
            return
        async with self.command(["/bin/sh", "-c", ":"], ".", seconds) as command:
            await asyncio.to_thread(_try, command)
        self._is_checked = True

    def _refuse(self) -> None:
        if self._program is None:
            raise ToolError(
                f"The sandbox {PROGRAM} is set in [tools.run], but it is not installed; nothing was run. "
                "A person can install bubblewrap, or remove the setting."
            )
        if not self._home or _is_within(self._home, self._workspace.root):
            raise ToolError(
                "The workspace has the home directory in it, so a sandbox cannot hide it; nothing was run. "
                "A person can start Deputy in a project's own directory."
            )

    def _wrapped(self, argv: Sequence[str], directory: str, mounts: _Mounts) -> SandboxedCommand:
        assert self._program is not None  # noqa: S101  it is refused before
        options = [
            self._program, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", *_system(),
            "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", _HOME,  # noqa: S108
            "--setenv", "HOME", _HOME, "--unsetenv", "XDG_RUNTIME_DIR", "--unsetenv", "TMPDIR", *mounts.options,
            "--chdir", f"{self._workspace.top_of(directory)}/{directory}", "--",
        ]  # fmt: skip
        return SandboxedCommand((*options, *argv), tuple(mounts.descriptors))

    def _mount(self, mounts: _Mounts) -> bool:
        """Add what is seen of the workspace; returns whether everything that is protected in it is there."""
        root, main = self._workspace.root, self._workspace.main
        if main != root:
            # A worktree needs the repository that it belongs to, and the work folder that all worktrees share.
            mounts.bind("--ro-bind-fd", main, [".git"])
            if shared := self._workspace.grant.work_folder:
                mounts.bind("--bind-fd", main, shared.split("/"))
        if self._workspace.repository:
            # That of a worker is not in the main workspace, which is a worktree too.
            mounts.bind("--ro-bind-fd", self._workspace.repository, [])
        mounts.bind("--bind-fd", root, [])
        # git outside of the sandbox would execute the hooks and settings that a command writes there.
        is_whole = mounts.bind("--ro-bind-fd", root, [".git"])
        for parts in self._workspace.private_parts():
            # A mount cannot be renamed, so what is private stays where it is hidden.
            for at in range(1, len(parts)):
                is_whole &= mounts.bind("--bind-fd", root, parts[:at])
            is_whole &= mounts.hide(root, parts)
        return is_whole


class _Mounts:
    """Options of bubblewrap, and the open places that they name."""

    def __init__(self, closing: ExitStack) -> None:
        self.options: list[str] = []
        self.descriptors: list[int] = []
        self._closing = closing

    def bind(self, option: str, top: str, parts: Sequence[str]) -> bool:
        """Bind a place where it is; returns whether it is there."""
        descriptor = self._open(top, parts)
        if descriptor is None:
            return False
        self.options += (option, str(descriptor), "/".join((top, *parts)))
        self.descriptors.append(descriptor)
        return True

    def hide(self, top: str, parts: Sequence[str]) -> bool:
        """Put something empty over a place; returns whether it is there."""
        descriptor = self._open(top, parts)
        if descriptor is None:
            return False
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        self.options += ("--tmpfs",) if is_directory else ("--ro-bind", "/dev/null")
        self.options.append("/".join((top, *parts)))
        return True

    def _open(self, top: str, parts: Sequence[str]) -> int | None:
        """A descriptor of a place below `top` that is reached without a link; None if nothing is there."""
        place = os.open(top, _SEEN)
        self._closing.callback(os.close, place)
        for at, part in enumerate(parts, 1):
            try:
                place = os.open(part, _SEEN, dir_fd=place)
            except (FileNotFoundError, NotADirectoryError):
                return None
            self._closing.callback(os.close, place)
            if stat.S_ISLNK(os.fstat(place).st_mode):
                raise ToolError(
                    f"{'/'.join(parts[:at])!r:.200} is a symlink, which the sandbox does not follow; nothing was run. "
                    "A person can replace it by what it leads to."
                )
        return place


async def _lock(descriptor: int, kind: int, seconds: float) -> None:
    """Lock a workspace against commands that must run alone in it, or for one of them."""
    try:
        async with asyncio.timeout(seconds):
            while not _is_locked(descriptor, kind):  # noqa: ASYNC110  another process may hold it
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise ToolError(
            f"Another command works in this workspace, and did not end within {seconds:g} s; nothing was run. "
            "Call again when it has ended."
        ) from None
    except OSError as error:
        raise _unusable(f"its directory cannot be locked: {error.strerror}") from error


def _is_locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try(command: SandboxedCommand) -> None:
    import subprocess

    try:
        done = subprocess.run(
            command.argv,
            env={},
            capture_output=True,
            timeout=_CHECK_SECONDS,
            check=False,
            pass_fds=command.descriptors,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _unusable(str(error)) from error
    if done.returncode:
        raise _unusable(done.stderr.decode(errors="replace").strip()[:500] or f"exit code {done.returncode}")


def _system() -> Iterator[str]:
    """Programs and libraries, read-only, with the links of the system."""
    for path in _SYSTEM:
        if (place := Path(path)).is_symlink():
            yield from ("--symlink", str(place.readlink()), path)
        else:
            yield from ("--ro-bind-try", path, path)
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _is_within(path: str, root: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(root)


def _unusable(reason: str) -> ToolError:
    if "--bind-fd" in reason or "--ro-bind-fd" in reason:
        return ToolError(
            f"The sandbox {PROGRAM} is set in [tools.run], but this version cannot bind descriptors ({reason}); "
            "nothing was run. A person can update bubblewrap (0.10, or the security update of the distribution)."
        )
    return ToolError(
        f"The sandbox {PROGRAM} is set in [tools.run], but it cannot be used on this machine ({reason}); "
        "nothing was run. A person can allow user namespaces, or remove the setting."
    )
