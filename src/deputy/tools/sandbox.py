"""Run commands in bubblewrap: no network, no home directory, only the workspace can be written."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from deputy.tools.tool_text import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


class Sandbox:
    """The sandbox of one workspace. Where it cannot be used, nothing is run."""

    def __init__(self, workspace: Workspace, environment: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._home = environment.get("HOME", "")
        self._program = shutil.which(PROGRAM, path=environment.get("PATH"))
        self._is_checked = False

    def command(self, argv: Sequence[str], directory: str) -> tuple[str, ...]:
        """The command that executes `argv` in a directory of the workspace; ToolError where there is no sandbox."""
        return (*self._prefix(), "--chdir", f"{self._workspace.top_of(directory)}/{directory}", "--", *argv)

    def check(self) -> None:
        """Start an empty command once; a ToolError says why the sandbox cannot be used on this machine."""
        import subprocess

        if self._is_checked:
            return
        command = self.command(["/bin/sh", "-c", ":"], ".")
        try:
            done = subprocess.run(command, env={}, capture_output=True, timeout=_CHECK_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _unusable(str(error)) from error
        if done.returncode:
            raise _unusable(done.stderr.decode(errors="replace").strip()[:500] or f"exit code {done.returncode}")
        self._is_checked = True

    def _prefix(self) -> Iterator[str]:
        root = self._workspace.root
        if self._program is None:
            raise ToolError(
                f"The sandbox {PROGRAM} is set in [tools.run], but it is not installed; nothing was run. "
                "A person can install bubblewrap, or remove the setting."
            )
        if not self._home or _is_within(self._home, root):
            raise ToolError(
                "The workspace has the home directory in it, so a sandbox cannot hide it; nothing was run. "
                "A person can start Deputy in a project's own directory."
            )
        yield self._program
        yield from ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
        yield from _system()
        yield from ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", _HOME)  # noqa: S108
        yield from ("--setenv", "HOME", _HOME, "--unsetenv", "XDG_RUNTIME_DIR", "--unsetenv", "TMPDIR")
        main = f"{self._workspace.main}/.git"
        if self._workspace.main != root and Path(main).is_dir():
            # A worktree needs the repository that it belongs to.
            yield from ("--ro-bind", _unlinked(self._workspace.main, ".git"), main)
        yield from ("--bind", root, root)
        if shared := self._workspace.grant.work_folder:
            place = _unlinked(self._workspace.top_of(shared), shared)
            yield from ("--bind-try", place, place)
        # git outside of the sandbox would execute the hooks and settings that a command writes there.
        yield from ("--ro-bind-try", _unlinked(root, ".git"), f"{root}/.git")
        for private in self._workspace.private_places():
            if Path(private).is_dir():
                yield from ("--tmpfs", private)
            elif Path(private).exists():
                yield from ("--ro-bind", "/dev/null", private)


def _system() -> Iterator[str]:
    """Programs and libraries, read-only, with the links of the system."""
    for path in _SYSTEM:
        if (place := Path(path)).is_symlink():
            yield from ("--symlink", str(place.readlink()), path)
        else:
            yield from ("--ro-bind-try", path, path)
    for name in _ETC:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")


def _unlinked(top: str, name: str) -> str:
    """A path without links below `top`: a command could make one, and bubblewrap would bind what it leads to."""
    place = f"{top}/{name}"
    if os.path.realpath(place) != f"{os.path.realpath(top)}/{name}":
        raise ToolError(
            f"{name!r:.200} is a symlink, which the sandbox does not follow; nothing was run. "
            "A person can replace it by what it leads to."
        )
    return place


def _is_within(path: str, root: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(root)


def _unusable(reason: str) -> ToolError:
    return ToolError(
        f"The sandbox {PROGRAM} is set in [tools.run], but it cannot be used on this machine ({reason}); "
        "nothing was run. A person can allow user namespaces, or remove the setting."
    )
