"""A snapshot of a workspace, as the journal names it."""

from __future__ import annotations

from msgspec import Struct


class Snapshot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files of a workspace at submit, as a commit in the store. It has no path of any machine."""

    repository: str
    """The id of the repository."""
    commit: str
    folder: str = ""
    """The workspace below the top of its repository."""
    head: str = ""
    """The commit that was checked out in the user's repository; empty if there was none."""
