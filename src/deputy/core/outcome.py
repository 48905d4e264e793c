"""Outcomes: exactly one of six kinds, with everything that a caller needs to continue."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, cast, get_args

from msgspec import UNSET, Struct, UnsetType

from deputy.core.errors import Error
from deputy.core.limits import added, cost_text
from deputy.core.request import Lineage
from deputy.core.subtask.context_settings import PassedContext

SUMMARY_LENGTH = 500
OutcomeWord: TypeAlias = Literal["completed", "partial", "failed", "blocked", "cancelled", "rejected"]
OUTCOME_WORDS: tuple[OutcomeWord, ...] = get_args(OutcomeWord)
"""The status words of results, events, views and JSON, in the order in which they are counted."""


class Usage(Struct, frozen=True, kw_only=True, gc=False):
    """The usage of model calls; the cost is in US dollars, None (null) if one price is unknown."""

    input: int = 0
    """Input tokens, cached ones included."""
    output: int = 0
    """Output tokens."""
    cached: int = 0
    """Input tokens that the provider read from its cache."""
    requests: int = 0
    """Model calls."""
    cost: float | None = 0.0
    """In US dollars; None if a price is unknown."""
    estimated: bool = False
    """Whether a part is an estimate, because a report was missing or implausible."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            requests=self.requests + other.requests,
            cost=added(self.cost, other.cost),
            estimated=self.estimated or other.estimated,
        )

    @property
    def cost_text(self) -> str:
        """The cost for people; empty if no request was made."""
        return cost_text(self.cost) if self.requests or self.cost != 0 else ""


NO_USAGE = Usage()


def used_text(usage: Usage) -> str:
    """Tokens and cost for people; `~` marks an estimate."""
    cost = f" cost={usage.cost_text}" if usage.cost_text else ""
    cached = f" cached={usage.cached:,}" if usage.cached else ""
    return f"{'~' * usage.estimated}in={usage.input:,} out={usage.output:,}{cached}{cost}"


class Artifact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that a delegation made or changed."""

    type: str
    path: str
    summary: str | UnsetType = UNSET


class Fallback(Struct, frozen=True, kw_only=True):
    """A change from one model or backend to the next, and its reason."""

    left: str
    taken: str
    reason: str


class Ending(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="status", gc=False):
    """The fields of every outcome."""

    lineage: Lineage
    """Its place in the tree: session id, depth, path and deadline."""
    summary: str
    """The first sentence of substance; 1 to 500 characters."""
    report: str = ""
    """The final text; of an unfinished run what it had written so far."""
    notes: tuple[str, ...] = ()
    """The findings that it wrote down while it worked."""
    artifacts: tuple[Artifact, ...] = ()
    """The files that it made or changed."""
    branch: str = ""
    """The git branch with its changes, if it worked in a worktree."""
    errors: tuple[Error, ...] = ()
    """Why it is not completed: at least one error, unless it is completed or cancelled."""
    warnings: tuple[str, ...] = ()
    next_steps: str = ""
    """What to do next, if that is known."""
    usage: Usage = NO_USAGE
    """Tokens, requests and cost of all its rounds."""
    model: str | None = None
    """The model that answered."""
    backend: str | None = None
    """What executed it: `native`, `acp:…`, `cli:…` or `inline`."""
    fallbacks: tuple[Fallback, ...] = ()
    """The changes to another model or backend, with their reasons."""
    is_isolated: bool = True
    """Whether it had a conversation of its own."""
    duration_seconds: float = 0.0
    """The time of all its rounds."""
    passed: PassedContext | None = None
    """The context that a subtask was given."""
    value: Any = None
    """The report of a completed task with a schema, as that type; the library sets it, and the journal never has it."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.summary) <= SUMMARY_LENGTH:
            raise ValueError(f"a summary has 1 to {SUMMARY_LENGTH} characters, this one has {len(self.summary)}")

    @property
    def session_id(self) -> str:
        """The session id of the delegation."""
        return self.lineage.session_id

    @property
    def label(self) -> str:
        """The label of its task."""
        from deputy.core.task import cleaned_label

        return cleaned_label(self.lineage.path[-1].name.removeprefix("task:"))

    @property
    def status(self) -> OutcomeWord:
        """The stored name of the kind."""
        return cast("OutcomeWord", self.__struct_config__.tag)

    def _repr_markdown_(self) -> str:
        """The outcome in a notebook."""
        from deputy.core.results import outcomes_markdown

        return outcomes_markdown([cast("Outcome", self)])


class _Shortcoming(Ending, frozen=True, kw_only=True, omit_defaults=True):
    """An outcome with at least one error."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.errors:
            raise ValueError(f"a {self.status} outcome carries at least one error")


class Completed(Ending, frozen=True, kw_only=True, tag="completed"):
    """All of the work is done."""


class Partial(_Shortcoming, frozen=True, kw_only=True, tag="partial"):
    """A limit was reached: the results so far, and the run can be resumed."""


class Failed(_Shortcoming, frozen=True, kw_only=True, tag="failed"):
    """The work could not be done."""


class Blocked(_Shortcoming, frozen=True, kw_only=True, tag="blocked"):
    """A person must answer a question before the work can continue."""

    question: str = ""


class Cancelled(Ending, frozen=True, kw_only=True, tag="cancelled"):
    """The run was cancelled."""


class Rejected(_Shortcoming, frozen=True, kw_only=True, tag="rejected"):
    """The guard refused it before anything was started or spent."""

    @property
    def code(self) -> str:
        """The error code."""
        code = self.errors[0].code
        return "" if code is UNSET else code

    @property
    def remedy(self) -> str:
        """One sentence that a model can act on."""
        return self.errors[0].recommendation


Outcome: TypeAlias = Completed | Partial | Failed | Blocked | Cancelled | Rejected


def shortened(text: str, length: int = SUMMARY_LENGTH) -> str:
    """The text, cut with `…` if it is too long for a summary."""
    return text if len(text) <= length else f"{text[: length - 1].rstrip()}…"


_READ = 20_000
"""The characters of a report in which its summary is searched."""


def first_sentence(report: str) -> str:
    """The first sentence of substance: no heading, label, rule, table or code, unless there is nothing else."""
    import re

    head = report[:_READ].strip()
    if head[:1] in ("{", "["):
        return shortened(" ".join(head.split()))
    # A heading is underlined, begins with # or is a line in bold; a line that ends with a colon announces something.
    skipped = re.compile(r"#{1,6}(\s|$)|(\*\*|__)[^*_]++(\*\*|__):?$|[-=*_~\s]*$|\||<!--|.*:(\*\*|__)?$")
    mark = re.compile(r"(?:>\s*|[-*+\u2022]\s+(?:\[[ x]\]\s+)?|\d{1,3}[.)]\s+)+")
    lines, is_code = head.splitlines(), False
    for number, line in enumerate(lines):
        text = line.strip()
        is_fence = text.startswith(("```", "~~~"))
        is_code ^= is_fence
        under = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if is_fence or is_code or skipped.match(text) or (under and not under.strip("=-") and len(under) > 2):
            continue
        marked = mark.match(text)
        paragraph = [text if marked is None else text[marked.end() :]]
        for more in map(str.strip, lines[number + 1 :]):
            if skipped.match(more) or mark.match(more) or more.startswith(("```", "~~~")):
                break
            paragraph.append(more)
        return shortened(_sentence(" ".join(paragraph)))
    return shortened(next((plain for line in lines if (plain := line.strip(" #*_:`~"))), ""))


_LONGEST_ABBREVIATION = 8
"""The characters of the longest one, and one before it."""


def _sentence(text: str) -> str:
    import re

    text = text.replace("**", "").replace("__", "")
    for end in re.finditer(r"""[.!?][)"'`\]]*(?=\s+[^a-z\s])""", text):
        # Only the last word is read: a text of abbreviations is then read in linear time.
        before = text[max(0, end.end() - _LONGEST_ABBREVIATION) : end.end()]
        if not re.search(r"\b(?:e\.g|i\.e|etc|vs|cf|ca|no|fig|approx)\.$", before, re.IGNORECASE):
            return text[: end.end()]
    return text


def is_exhausted(outcome: Outcome) -> bool:
    """Whether the run ended because its context was full."""
    return isinstance(outcome, Partial) and outcome.errors[0].type == "context_exhausted"


def how_to_answer(run: str) -> str:
    """The remedy for a question."""
    return f'Answer it: deputy resume {run} --answer "…"'


def how_to_resume_call(run: str) -> str:
    """The remedy for a call with cancelled tasks."""
    return f"Continue the incomplete tasks: deputy resume {run}"
