"""How a delegation ended: exactly one of six kinds, with everything a caller needs to go on from."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import UNSET, Struct, UnsetType

from deputy.core.errors import Error
from deputy.core.request import Lineage
from deputy.core.subtask.passed_context import PassedContext

SUMMARY_LENGTH = 500


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """What model calls used; cost in billionths of a dollar, None as soon as one price is unknown."""

    input: int = 0
    output: int = 0
    cached: int = 0
    requests: int = 0
    cost: int | None = 0
    estimated: bool = False
    """Whether some of it is our own estimate, because a report was missing or not plausible."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            requests=self.requests + other.requests,
            cost=None if self.cost is None or other.cost is None else self.cost + other.cost,
            estimated=self.estimated or other.estimated,
        )


NO_USAGE = Usage()


class Artifact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that the work left behind."""

    type: str
    path: str
    summary: str | UnsetType = UNSET


class Fallback(Struct, frozen=True, kw_only=True):
    """A step from one model or backend to the next, and why it was taken."""

    left: str
    taken: str
    reason: str


class Ending(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="status", gc=False):
    """What every outcome carries, whatever its kind."""

    lineage: Lineage
    summary: str
    report: str = ""
    notes: tuple[str, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    branch: str = ""
    """The branch that has what was changed, where it worked in a worktree of its own."""
    errors: tuple[Error, ...] = ()
    warnings: tuple[str, ...] = ()
    """What its caller should know and what did not keep it from its work."""
    next_steps: str = ""
    usage: Usage = NO_USAGE
    model: str | None = None
    backend: str | None = None
    fallbacks: tuple[Fallback, ...] = ()
    is_isolated: bool = True
    duration_seconds: float = 0.0
    passed: PassedContext | None = None
    """What it was given of its parent's context, where it is a subtask."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.summary) <= SUMMARY_LENGTH:
            raise ValueError(f"a summary has 1 to {SUMMARY_LENGTH} characters, this one has {len(self.summary)}")

    @property
    def session_id(self) -> str:
        """The delegation that ended."""
        return self.lineage.session_id

    @property
    def status(self) -> str:
        """The kind of ending, as JSON and the command line name it."""
        return str(self.__struct_config__.tag)


class _Shortcoming(Ending, frozen=True, kw_only=True, omit_defaults=True):
    """An ending that must say what kept the work from being done."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.errors:
            raise ValueError(f"a {self.status} outcome carries at least one error")


class Completed(Ending, frozen=True, kw_only=True, tag="completed"):
    """All of the work is done."""


class Partial(_Shortcoming, frozen=True, kw_only=True, tag="partial"):
    """A limit was hit: what was found so far is here, and the rest can be resumed."""


class Failed(_Shortcoming, frozen=True, kw_only=True, tag="failed"):
    """The work could not be done."""


class Blocked(_Shortcoming, frozen=True, kw_only=True, tag="blocked"):
    """A person must answer before the work can go on."""

    question: str = ""


class Cancelled(Ending, frozen=True, kw_only=True, tag="cancelled"):
    """Somebody stopped it."""


class Rejected(_Shortcoming, frozen=True, kw_only=True, tag="rejected"):
    """It was refused before anything was spawned or spent."""

    @property
    def code(self) -> str:
        """The machine-readable reason."""
        code = self.errors[0].code
        return "" if code is UNSET else code

    @property
    def remedy(self) -> str:
        """One sentence that a model can act on."""
        return self.errors[0].recommendation


Outcome: TypeAlias = Completed | Partial | Failed | Blocked | Cancelled | Rejected


def shortened(text: str, length: int = SUMMARY_LENGTH) -> str:
    """Text as a summary can hold it: cut with `…` when it is too long."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


def how_to_answer(run: str) -> str:
    """What a person who reads a question can do about it."""
    return f'Answer it: deputy resume {run} --answer "…"'


def how_to_resume_call(run: str) -> str:
    """What a person can do about a call of which something was cancelled."""
    return f"Go on with what is not complete: deputy resume {run}"
