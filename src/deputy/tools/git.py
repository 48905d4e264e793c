"""git as a child process: no hooks, no prompts, no network, no commands from a repository's settings."""

from __future__ import annotations

import os
import time
from subprocess import DEVNULL, PIPE, Popen
from typing import TYPE_CHECKING

from deputy.processes.child_process import watch
from deputy.tools.run import scrubbed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deputy.processes.child_process import StopSignal

SECONDS = 120.0
_GRACE_SECONDS = 0.5
"""Time for a stopped git to remove its locks."""
_OUTPUT_BYTES = 4 * 1024 * 1024
_ERROR_LENGTH = 300
_MOST_OVERRIDES = 500

HARMLESS = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.pager": "cat",
    "core.editor": "true",
    "core.askPass": "",
    "core.sshCommand": "false",
    "core.gitProxy": "",
    "credential.helper": "",
    "commit.gpgSign": "false",
    "diff.external": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "submodule.recurse": "false",
    "advice.detachedHead": "false",
    "user.name": "Deputy",
    "user.email": "deputy@localhost",
}
"""Settings that override those of the repository."""

RUNNING = (".clean", ".smudge", ".process", ".command", ".textconv", ".driver", ".program", ".helper")
"""Endings of settings that name a command to run."""

ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}


OUTSIDE_SUBMODULES = "--ignore-submodules=dirty"
"""An option of `status` and `diff`: git in a checked-out submodule would run the commands in its settings."""


class GitFailed(Exception):
    """git failed; the message is one line."""

    def __init__(self, code: int, message: str, output: str = "") -> None:
        self.code = code
        self.output = output
        super().__init__(message)


class GitStopped(GitFailed):
    """git was stopped, so its result is unknown."""


class Git:
    """Runs git in one directory."""

    def __init__(
        self,
        directory: str,
        environ: Mapping[str, str],
        stop: StopSignal,
        overrides: Sequence[str] = (),
        until: float | None = None,
    ) -> None:
        """`until` is the deadline of all calls, on the monotonic clock."""
        self.directory = directory
        self.overrides = overrides
        self._given = environ
        self._stop = stop
        self._until = until
        self._environ = {**scrubbed(environ), **ENVIRONMENT, **_settings(overrides)}

    def within(self, directory: str) -> Git:
        """The same in another directory, hardened against the settings there."""
        return Git(directory, self._given, self._stop, until=self._until).hardened()

    def hardened(self) -> Git:
        """The same, with every command in the repository's own settings overridden."""
        # Reading settings runs nothing.
        listed = self.run("config", "--list", "-z", "--name-only", "--show-scope").split("\0")
        own = {key for scope, key in zip(listed[::2], listed[1::2], strict=False) if scope in ("local", "worktree")}
        commands = sorted(key for key in own if key.lower().endswith(RUNNING))
        if len(commands) > _MOST_OVERRIDES:
            raise GitFailed(1, "the repository's settings name too many commands")
        return Git(self.directory, self._given, self._stop, commands, self._until)

    def run(self, *arguments: str) -> str:
        """The output of git; raises GitFailed when git fails, takes too long or prints too much."""
        output, errors = _Bounded(), _Bounded()
        try:
            child = Popen(
                ["git", *arguments],
                cwd=self.directory,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                env=self._environ,
                start_new_session=True,
            )
        except OSError as error:
            raise GitFailed(127, f"git cannot be started: {error.strerror}") from error
        seconds = SECONDS if self._until is None else max(0.0, min(SECONDS, self._until - time.monotonic()))
        with child:
            sinks = {child.stdout: output.feed, child.stderr: errors.feed}
            ended = watch(child, sinks, stop=self._stop, seconds=seconds, grace_seconds=_GRACE_SECONDS)
        if ended.how != "exited":
            raise GitStopped(1, f"git {arguments[0]} was stopped: {ended.how}")
        if ended.code:
            message = " ".join(errors.text.split()) or f"git {arguments[0]} failed"
            raise GitFailed(ended.code, message[:_ERROR_LENGTH], output.text)
        return output.text


class _Bounded:
    def __init__(self) -> None:
        self._output = bytearray()

    def feed(self, data: bytes) -> bool:
        self._output += data
        return len(self._output) <= _OUTPUT_BYTES

    @property
    def text(self) -> str:
        return os.fsdecode(bytes(self._output))


def _settings(overrides: Sequence[str]) -> dict[str, str]:
    """Settings as environment variables, which override all files and allow any character in a key."""
    values = {**dict.fromkeys(overrides, ""), **{f"{key.rpartition('.')[0]}.required": "false" for key in overrides}}
    pairs = {**values, **HARMLESS}
    numbered = {
        name: text
        for index, (key, value) in enumerate(pairs.items())
        for name, text in ((f"GIT_CONFIG_KEY_{index}", key), (f"GIT_CONFIG_VALUE_{index}", value))
    }
    return {"GIT_CONFIG_COUNT": str(len(pairs)), **numbered}
