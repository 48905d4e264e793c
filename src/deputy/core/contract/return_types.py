"""The types of the contract: the expected return, the return, its problems."""

from typing import Generic, Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from deputy.core.errors import Error
from deputy.core.outcome import SUMMARY_LENGTH, Artifact

Status = Literal["completed", "partial", "failed", "blocked"]
Mode = Literal["strict", "lenient"]

STATUSES: tuple[Status, ...] = ("completed", "partial", "failed", "blocked")
SUMMARY_MAX = SUMMARY_LENGTH
SUMMARY_LONG = 400

T = TypeVar("T")


class ExpectedReturn(Struct, frozen=True, kw_only=True):
    """What the caller knows about the delegation; None and () are not compared."""

    session_id: str | None = None
    agent_type: str | None = None
    depth: int | None = None
    path: tuple[str, ...] = ()
    """From the top down, ending with the target, as the registry has it."""
    workspace: str | None = None
    """The absolute path that contains every artifact."""
    elapsed_seconds: float | None = None


class Metadata(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which delegation a return belongs to."""

    session_id: str
    agent_type: str
    delegation_depth: int | UnsetType = UNSET
    delegation_path: tuple[str, ...] | UnsetType = UNSET
    duration_seconds: float | UnsetType = UNSET


class Return(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A valid return; only `check` makes one from foreign data."""

    status: Status
    summary: str
    artifacts: tuple[Artifact, ...]
    metadata: Metadata
    errors: tuple[Error, ...] = ()
    next_steps: str | UnsetType = UNSET


class ContractProblem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A violation of the contract; the wording of the message is stable."""

    rule: str
    message: str
    remedy: str = ""
    """What to do, for people and models."""


class CheckedReturn(Struct, Generic[T], frozen=True, kw_only=True):
    """The result of a check; `return_` is set exactly when there are no problems."""

    return_: T | None
    problems: tuple[ContractProblem, ...] = ()
    warnings: tuple[str, ...] = ()
    liberties: tuple[str, ...] = ()

    @property
    def is_valid(self) -> bool:
        """Whether the return may be used."""
        return not self.problems
