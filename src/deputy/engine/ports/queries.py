"""The read side of the journal: everything that interfaces read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from deputy.core.state import State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import TracebackType
    from typing import Self

    from deputy.core.events import Record
    from deputy.core.outcome import Outcome

FOLLOW_LIMIT = 1000
"""Records, and progress events, that one `follow` returns at most."""


class DamagedRecord(Struct, frozen=True, kw_only=True):
    """A record that is damaged or missing: skipped and reported."""

    where: str
    what: str


class LeaseHolder(Struct, frozen=True, kw_only=True):
    """The process that holds the lease of a run, or the queue whose workers will take it."""

    owner: str
    """Empty while a run of a queue waits for a worker, a message or a child."""
    is_gone: bool
    """Whether the process has certainly ended."""
    is_silent: bool
    """Whether it has sent no heartbeat for too long."""
    host: str = ""
    """The machine of the process, if several use the store."""
    queue: str = ""
    """The queue of the workers that carry out the run; empty when it stays with its process."""
    is_queued: bool = False
    """Whether the run waits for a worker."""
    is_served: bool = True
    """Whether a worker serves the queue."""

    @property
    def is_orphaned(self) -> bool:
        """Whether the run may be taken over."""
        return self.is_gone or self.is_silent


class Cursor(NamedTuple):
    """A position in the journal, over all runs."""

    generation: int
    """Changes when runs are removed or the journal is replaced: positions may then be used again."""
    record: int
    progress: int


class RecordHead(Struct, frozen=True, gc=False):
    """A record without its content."""

    run: str
    seq: int
    at: float
    kind: str
    size: int
    """The bytes of its content."""


class ProgressEvent(Struct, frozen=True, gc=False):
    """A progress event of a run; a later one has a higher number."""

    number: int
    run: str
    at: float
    """By the journal's clock."""
    body: bytes
    """A `Progress` as JSON."""


class Changes(Struct, frozen=True, kw_only=True):
    """What changed since a cursor, over all runs, in the order of the journal."""

    cursor: Cursor
    """Where the next `follow` begins."""
    runs: tuple[State, ...] = ()
    """The present states of the runs with new records, oldest run first."""
    records: tuple[RecordHead, ...] = ()
    progress: tuple[ProgressEvent, ...] = ()
    """Only once all new records were returned, so that a run is known before its progress."""
    has_more: bool = False
    """Whether the limit was reached: follow again at once."""
    is_reset: bool = False
    """Whether the cursor is no longer valid: read everything again, then follow the new cursor."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing has changed."""
        return not (self.records or self.progress or self.is_reset)


Severity: TypeAlias = Literal["warning", "error"]


class ErrorContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an error happened."""

    command: str = ""
    subagent: str = ""
    task_number: int | None = None
    session_id: str = ""
    timeout: float | None = None


class LoggedErrorRow(Struct, frozen=True, kw_only=True):
    """A row of the error log: the last occurrence of an error."""

    id: str
    first_at: float
    last_at: float
    count: int
    severity: Severity
    type: str
    code: str
    message: str
    recommendation: str
    context: ErrorContext
    trace: str = ""


class RepairedJournal(Struct, frozen=True, kw_only=True):
    """A journal after its repair: what the new one has, and what was lost."""

    kept: str
    """The folder with the damaged files."""
    runs: int
    records: int
    incomplete: tuple[str, ...]
    """The runs that lack records. They can be read; they cannot be resumed."""
    lost: tuple[str, ...]
    """The runs that are not in the new journal, because too little of them could be read."""
    unread: tuple[str, ...]
    """The tables that had more rows than could be read."""
    is_end_lost: bool
    """Whether the last commit is lost: a run that is resumed may repeat what it did last."""


class Queries(Protocol):
    """Reads the journal. Calls block, so asynchronous callers use a thread. One thread uses it at a time."""

    @property
    def location(self) -> str:
        """The path or address of the journal, for messages."""
        ...

    @property
    def damage(self) -> str:
        """The damaged rows found so far, in one line; empty when there are none."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def close(self) -> None:
        """Close the connection."""
        ...

    def now(self) -> float:
        """The time by the journal's clock."""
        ...

    def examine(self) -> list[str]:
        """Check every record and note the damage; returns the runs that lack records."""
        ...

    # --- runs ---------------------------------------------------------------------------------------------------------

    def state(self, run: str) -> State | None:
        """The state of a run; None when there is no such run."""
        ...

    def live(self) -> list[State]:
        """The runs that have not ended, oldest first."""
        ...

    def live_count(self) -> int:
        """How many runs have not ended."""
        ...

    def blocked(self) -> list[State]:
        """The runs that ended with an open question, oldest first."""
        ...

    def ended(self, limit: int) -> list[State]:
        """The runs that ended last, oldest first."""
        ...

    def ids(self) -> list[str]:
        """The ids of all runs."""
        ...

    def labelled(self, label: str) -> list[State]:
        """The runs with this label, oldest first."""
        ...

    def tree(self, root: str) -> list[State]:
        """All runs of a root session, oldest first."""
        ...

    def children(self, run: str) -> list[State]:
        """The runs that a run spawned, oldest first."""
        ...

    def descendants(self, run: str) -> list[State]:
        """All runs below a run, oldest first."""
        ...

    def holders(self, runs: Collection[str] | None = None) -> dict[str, LeaseHolder]:
        """The processes that hold the leases of these runs, or of all, by run; the death of one writes no record."""
        ...

    def addressed(self) -> list[tuple[str, str]]:
        """The live runs with untaken messages, and their topics."""
        ...

    # --- records ------------------------------------------------------------------------------------------------------

    def records(self, run: str, after: int = 0, limit: int | None = None) -> Iterator[Record | DamagedRecord]:
        """The records of a run, in order: all after a seq, or those of the next `limit` seqs.

        A DamagedRecord stands for records that are damaged or missing.
        """
        ...

    def get(self, run: str, key: str) -> Record | DamagedRecord | None:
        """The record of a run under a key."""
        ...

    def outcome(self, state: State) -> Outcome | None:
        """The outcome of a run's last round; None when it is live, or the record is damaged."""
        ...

    def progress(self, run: str) -> list[ProgressEvent]:
        """The latest progress events of a run, oldest first."""
        ...

    def recent_progress(self, limit: int) -> list[ProgressEvent]:
        """The latest progress events of all runs, oldest first."""
        ...

    def errors(self, limit: int) -> list[LoggedErrorRow]:
        """The latest errors of the error log, newest first."""
        ...

    # --- changes ------------------------------------------------------------------------------------------------------

    def cursor(self) -> Cursor:
        """The present end of the journal."""
        ...

    def follow(self, cursor: Cursor, limit: int = FOLLOW_LIMIT) -> Changes:
        """Everything that changed since a cursor, up to a limit."""
        ...
