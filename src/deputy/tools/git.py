"""git as a child process: no hooks, no prompts, no network, no commands from a repository's settings."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

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

_OWN_SCOPES = ("local", "worktree")
_ALL_SCOPES = (*_OWN_SCOPES, "global", "system")

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
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """`until` is the deadline of all calls, on the monotonic clock; `variables` are git's own, such as GIT_DIR."""
        self.directory = directory
        self.overrides = overrides
        self._given = environ
        self._stop = stop
        self._until = until
        self._variables = variables or {}
        self._environ = {**scrubbed(environ), **ENVIRONMENT, **_settings(overrides), **self._variables}

    def within(self, directory: str) -> Git:
        """The same in another directory, hardened against the settings there."""
        return Git(directory, self._given, self._stop, until=self._until, variables=self._variables).hardened()

    def using(self, **variables: str) -> Git:
        """The same with further variables of git."""
        given = {**self._variables, **variables}
        return Git(self.directory, self._given, self._stop, self.overrides, self._until, given)

    def hardened(self, *, also_users: bool = False) -> Git:
        """The same, with every command in the repository's own settings overridden; `also_users`: in all settings."""
        # Reading settings runs nothing.
        listed = self.run("config", "--list", "-z", "--name-only", "--show-scope").split("\0")
        scopes = _ALL_SCOPES if also_users else _OWN_SCOPES
        own = {key for scope, key in zip(listed[::2], listed[1::2], strict=False) if scope in scopes}
        commands = sorted(key for key in own if key.lower().endswith(RUNNING))
        if len(commands) > _MOST_OVERRIDES:
            raise GitFailed(1, "the repository's settings name too many commands")
        return Git(self.directory, self._given, self._stop, commands, self._until, self._variables)

    def run(self, *arguments: str, given: str | None = None, most: int = _OUTPUT_BYTES) -> str:
        """The output of git; raises GitFailed when git fails, takes too long or prints too much.

        `given` is its standard input; `most` the bytes that it may print.
        """
        output, errors = _Bounded(most), _Bounded(_OUTPUT_BYTES)
        with ExitStack() as opened:
            source: IO[bytes] | int = DEVNULL
            if given is not None:
                # A file, not a pipe: git may print before it has read everything.
                source = opened.enter_context(TemporaryFile())
                source.write(os.fsencode(given))
                source.seek(0)
            try:
                child = Popen(
                    ["git", *arguments],
                    cwd=self.directory,
                    stdin=source,
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
    def __init__(self, most: int) -> None:
        self._output = bytearray()
        self._most = most

    def feed(self, data: bytes) -> bool:
        self._output += data
        return len(self._output) <= self._most

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
