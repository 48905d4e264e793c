"""A bare repository of ours in the home: it packs snapshots for the store, and unpacks what the store has."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deputy.core.errors import WorkspaceError
from deputy.engine.ports.workspaces import Bundle
from deputy.tools.git import Git, GitFailed, GitStopped

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from deputy.engine.ports.workspaces import Bundles
    from deputy.processes.child_process import StopSignal

HAVE = "refs/deputy/have"
"""One ref per commit whose files are all here."""
PART_BYTES = 4 * 1024 * 1024
MOST_LINKS = 32
"""A chain of bundles is not longer: a worker that has none of them fetches all."""
MOST_PACKS = 40
_ID = re.compile(r"[0-9a-f]{32}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
NO_SETTINGS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
"""Settings of this machine, such as filters, have no effect on files of another."""


class GitMirror:
    """A bare repository; one process at a time changes it."""

    def __init__(self, path: Path, environ: Mapping[str, str], stop: StopSignal, alternates: str = "") -> None:
        self.path = path
        variables = {"GIT_DIR": str(path), **NO_SETTINGS}
        if alternates:
            variables["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = alternates
        self._environ = environ
        self._stop = stop
        self._variables = variables

    @cached_property
    def git(self) -> Git:
        """git in it; commands in its settings are not run, since agents can write them."""
        return Git(str(self.path), self._environ, self._stop, variables=self._variables).hardened()

    def make(self, object_format: str) -> None:
        """Make it if it is not there; one whose making was killed is made anew."""
        if (self.path / "made").exists():
            return
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(mode=0o700, parents=True)
        plain = {name: value for name, value in self._variables.items() if name in NO_SETTINGS}
        git = Git(str(self.path), self._environ, self._stop, variables=plain)
        git.run("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}", "--", str(self.path))
        (self.path / "made").touch()

    def has(self, commit: str) -> bool:
        """Whether a commit and its files are here."""
        return bool(self._have(commit))

    def tree_of(self, commit: str) -> str:
        """The tree of a commit."""
        return self.git.run("rev-parse", "--verify", "--quiet", f"{commit}^{{tree}}").strip()

    def keep(self, commit: str) -> None:
        """Note that a commit is here with its files."""
        self.git.run("update-ref", f"{HAVE}/{commit}", commit)

    def _have(self, commit: str) -> str:
        if not is_commit(commit):
            return ""
        try:
            return self.git.run("rev-parse", "--verify", "--quiet", f"{HAVE}/{commit}^{{tree}}").strip()
        except GitStopped:
            raise
        except GitFailed:
            return ""

    # --- to the store -------------------------------------------------------------------------------------------------

    def put(
        self, bundles: Bundles, repository: str, tip: str, below: Bundle | None, branch: str = "", head: str = ""
    ) -> Bundle | None:
        """Store the commits after those of another bundle; None if that bundle is gone."""
        self.keep(tip)
        with TemporaryDirectory(prefix="bundle-", dir=self.path.parent) as temporary:
            file = Path(temporary) / "bundle"
            without = () if below is None else (f"^{below.tip}",)
            self.git.run("bundle", "create", "--quiet", str(file), f"{HAVE}/{tip}", *without)
            size = file.stat().st_size
            bundle = Bundle(
                repository=repository,
                tip=tip,
                needs="" if below is None else below.tip,
                branch=branch,
                head=head,
                parts=tuple(part_name(part) for part in _parts(file)),
                size=size,
                links=0 if below is None else below.links + 1,
                whole_size=size if below is None else below.whole_size,
                thin_size=0 if below is None else below.thin_size + size,
            )
            return bundle if bundles.put(bundle, _parts(file)) else None

    # --- from the store -----------------------------------------------------------------------------------------------

    def fetch(self, bundles: Bundles, repository: str, tip: str, location: str) -> None:
        """Fetch a commit and what it builds upon, as far as it is not here."""
        for bundle in reversed(list(self._lacking(bundles, repository, tip, location))):
            with TemporaryDirectory(prefix="bundle-", dir=self.path.parent) as temporary:
                file = Path(temporary) / "bundle"
                with file.open("wb") as target:
                    for name in bundle.parts:
                        target.write(_content(bundles, name, bundle, location))
                self.git.run("bundle", "unbundle", str(file))
            self.keep(bundle.tip)
        if sum(1 for _ in (self.path / "objects/pack").glob("*.pack")) > MOST_PACKS:
            self.git.run("repack", "-a", "-d", "--quiet")

    def _lacking(self, bundles: Bundles, repository: str, tip: str, location: str) -> Iterator[Bundle]:
        """The bundles that are not here, from the top down."""
        for _ in range(2 * MOST_LINKS):
            if not tip or self.has(tip):
                return
            found = bundles.find(repository, tip) if is_commit(tip) else None
            if found is None:
                raise _missing(f"the snapshot {tip[:12]}", location)
            yield found
            tip = found.needs
        raise _missing(f"the beginning of {tip[:12]}", location)


def is_commit(name: str) -> bool:
    """Whether a name from the store is the hash of a commit."""
    return _COMMIT.fullmatch(name) is not None


def check_id(repository: str) -> str:
    """The id of a repository from the journal, which becomes part of a path."""
    if _ID.fullmatch(repository) is None:
        raise WorkspaceError(
            f"The journal names a repository {repository[:40]!r}, which is no id of one", "Submit the work again."
        )
    return repository


def part_name(content: bytes) -> str:
    """The hash of a part, by which it is stored."""
    return blake2b(content, digest_size=32).hexdigest()


def _parts(file: Path) -> Iterator[bytes]:
    with file.open("rb") as source:
        while part := source.read(PART_BYTES):
            yield part


def _content(bundles: Bundles, name: str, bundle: Bundle, location: str) -> bytes:
    content = bundles.part(name)
    if content is None or part_name(content) != name:
        raise _missing(f"a part of {bundle.tip[:12]}, or has a damaged one", location)
    return content


def _missing(what: str, location: str) -> WorkspaceError:
    return WorkspaceError(
        f"The store {location} lacks {what}",
        "It was removed by hand or lost in a restore. Submit the work again from the machine that has the files.",
    )


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Let one process at a time work on a repository of ours."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def explained(doing: str, place: Path) -> Generator[None]:
    """Errors of git and of the disk, in plain words with what to do."""
    try:
        yield
    except GitStopped as error:
        raise WorkspaceError(f"{doing}: {error}", "Try again.") from error
    except GitFailed as error:
        raise _explained(doing, place, str(error), error.code) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise _explained(doing, place, "No space left" if full else str(error), 0) from error


def _explained(doing: str, place: Path, text: str, code: int) -> WorkspaceError:
    if code == 127:
        return WorkspaceError(
            f"{doing}: git is not installed on {os.uname().nodename}",
            "Install git 2.31 or newer there, then try again.",
        )
    if "No space left" in text or "quota exceeded" in text.lower():
        return WorkspaceError(
            f"{doing}: the disk of {place} on {os.uname().nodename} is full",
            "Free some space there, or set DEPUTY_HOME to a larger disk; then try again.",
        )
    if "missing blob" in text or "promisor" in text or "could not fetch" in text:
        return WorkspaceError(
            f"{doing}: the repository is a partial clone and lacks some files ({text})",
            "Fetch them: git fetch --refetch --no-filter; then try again.",
        )
    return WorkspaceError(f"{doing}: git failed: {text}", "Correct what git names, then try again.")
