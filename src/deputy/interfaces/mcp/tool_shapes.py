"""The shapes of the server's tools: one struct for the arguments and one for the result of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, field, json

from deputy.core.detect.found_request import RequestJson
from deputy.core.outcome import Usage
from deputy.core.results import ResultsJson
from deputy.core.state import Status
from deputy.core.task import BudgetArguments, ResultForm

if TYPE_CHECKING:
    from collections.abc import Sequence

RunStatusWord: TypeAlias = Status | Literal["interrupted", "cancelling"]

# --- arguments --------------------------------------------------------------------------------------------------------


class RunArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of DelegateStatus and DelegateCancel."""

    session_id: Annotated[
        str, Meta(min_length=1, max_length=200, description="The session_id from DelegateStart or from a result.")
    ]


class ResultArguments(RunArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of DelegateResult."""

    wait: Annotated[float, Meta(ge=0, le=3600, description="Seconds to wait for the end.")] = 30
    result_form: ResultForm = field(default="markdown", name="return")


class ResumeArguments(RunArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of DelegateResume."""

    answer: (
        Annotated[str, Meta(min_length=1, description="The answer to its question, or a further message.")] | None
    ) = None
    budget: BudgetArguments = BudgetArguments()
    model: Annotated[str, Meta(min_length=1, description="Another model, if its own cannot be used.")] | None = None


class DetectArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of Detect."""

    text: Annotated[str, Meta(max_length=1_000_000, description="The text to search.")]


class NoArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of Agents."""


# --- results ----------------------------------------------------------------------------------------------------------


class DelegateResults(ResultsJson, frozen=True, kw_only=True):
    """The results of all tasks of a call."""

    notice: str
    next: str | UnsetType = UNSET
    """How to answer the subagents that ask."""


class SubagentStatus(Struct, frozen=True, kw_only=True):
    """The status of one subagent."""

    label: str
    session_id: str
    status: RunStatusWord
    turns: int
    tool_calls: int
    notes: int
    under_way: tuple[str, ...]
    usage: Usage
    question: str | UnsetType = UNSET


class RunStatusOutput(Struct, frozen=True, kw_only=True):
    """The status of a run and its subagents."""

    session_id: str
    status: RunStatusWord
    tasks: tuple[SubagentStatus, ...]
    next: str
    """What to do now."""
    question: str | UnsetType = UNSET
    page: str | UnsetType = UNSET
    """Where a person can follow and answer it, while `deputy web` serves its page."""


class FoundRequests(Struct, frozen=True, kw_only=True):
    """The delegation requests of a text."""

    requests: tuple[RequestJson, ...]


class Remark(Struct, frozen=True, kw_only=True):
    """A warning or problem at a place in a file."""

    path: str
    line: int | None
    message: str


class ListedAgent(Struct, frozen=True, kw_only=True):
    """An agent definition."""

    name: str
    description: str
    tools: tuple[str, ...] | None
    """None: it inherits them."""
    model: str | None
    path: str
    source: str
    warnings: tuple[Remark, ...]


class ListedAgents(Struct, frozen=True, kw_only=True):
    """The agent definitions found, and the files that are none."""

    agents: tuple[ListedAgent, ...]
    problems: tuple[Remark, ...]


def output_schema(kinds: Sequence[type[Struct]]) -> dict[str, Any]:
    """The JSON Schema of a tool whose result is one of these structs."""
    references, parts = json.schema_components(kinds, ref_template="#/$defs/{name}")
    if len(kinds) > 1:
        return {"type": "object", "anyOf": list(references), "$defs": parts}
    whole = parts.pop(kinds[0].__name__)
    return {**whole, "$defs": parts} if parts else whole
