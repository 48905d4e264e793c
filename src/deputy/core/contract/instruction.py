"""Ask for a return: the instruction at the end of a prompt, and the message that asks for a repair."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json

from deputy.core.contract.return_types import SUMMARY_MAX, ExpectedReturn
from deputy.core.errors import Error, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.contract.return_types import ContractProblem
    from deputy.core.contract.user_schema import Schema

_OPENING = """\
## The form of your answer

A program reads your final message. The message must be one JSON {value} and nothing else: no text before or after it,
no code fence, no comments. Anything else is sent back with "Return is not valid JSON".
"""

_FORM = """
It has this form:

{{
  "status": "completed" | "partial" | "failed" | "blocked",
  "summary": "…",
  "artifacts": [{{"type": "…", "path": "…", "summary": "…"}}],
{metadata}  "errors": [{{"type": "…", "message": "…", "code": "…", "recoverable": true, "recommendation": "…"}}],
  "next_steps": "…"
}}

- status: completed only if the whole task is done; partial if there is a usable result and something is missing; failed
  if there is no usable result; blocked if a person has to decide or provide something first.
- summary: 2 to 5 sentences, under 100 tokens and never over {summary_max} characters: what you did and the result.
  Details belong in files.
- artifacts: each file that you created or changed, with its path from the root of the workspace; [] if there is none.
  The files are checked on disk: list only files that you have written. The summary of an artifact is optional.
{copied}- errors: at least one unless the status is completed, else []. type is a word such as timeout, validation,
  execution or tool_unavailable; recoverable: whether a retry can help; recommendation: what to do; code is optional.
- next_steps: what should happen next; optional.
"""

_SCHEMA = """
It must match this JSON Schema:

{schema}
"""


def ask(expected: ExpectedReturn, schema: Schema | None = None, *, with_metadata: bool = True) -> str:
    """The instruction to answer in the form of the contract, with or without metadata, or of a user's schema."""
    if schema is not None:
        opening = _OPENING.format(value="value")
        return opening + _SCHEMA.format(schema=json.format(json.encode(schema.form), indent=2).decode())
    given = expected.known_metadata
    metadata = {"session_id": "…", "agent_type": "…", **given}
    fields = ", ".join(f'"{name}": {json.encode(value).decode()}' for name, value in metadata.items())
    missing = [name for name in metadata if name not in given]
    return _OPENING.format(value="object") + _FORM.format(
        metadata=f'  "metadata": {{{fields}, "duration_seconds": 0}},\n' if with_metadata else "",
        summary_max=SUMMARY_MAX,
        copied=f"- metadata: {_copied(list(given), missing)}.\n" if with_metadata else "",
    )


def _copied(given: list[str], missing: list[str]) -> str:
    parts = [f"copy {', '.join(given)} exactly as shown"] if given else []
    parts += [f"fill in {' and '.join(missing)}"] if missing else []
    return "; ".join([*parts, "duration_seconds is the time you took; optional"])


REPAIRS_DEFAULT = 1
REPAIRS_MAX = 2
INVALID_RETURN = "INVALID_RETURN"

_MESSAGE = """\
Your answer was not accepted:

{problems}

Correct these problems and send the whole answer again. Do not repeat work that is done.

{form}"""


def repairs_allowed(asked: int | None = None) -> int:
    """How often a return is sent back: once, or the number that the caller asks for, up to the maximum."""
    if asked is None:
        return REPAIRS_DEFAULT
    if isinstance(asked, bool) or not 0 <= asked <= REPAIRS_MAX:
        raise UsageError("repairs", asked, f"a return is sent back 0 to {REPAIRS_MAX} times")
    return asked


def repair_message(
    problems: Sequence[ContractProblem],
    expected: ExpectedReturn,
    schema: Schema | None = None,
    *,
    with_metadata: bool = True,
) -> str:
    """The message that asks the target to correct its return."""
    listed = "\n".join(f"{at}. {_sentence(problem)}" for at, problem in enumerate(problems, 1))
    return _MESSAGE.format(problems=listed, form=ask(expected, schema, with_metadata=with_metadata))


def may_repair(messages: Sequence[str], sent: Sequence[Sequence[str]], repairs: int) -> bool:
    """Whether a return with these problems is sent back again; a new problem has one repair more."""
    is_new = not any(set(messages) & set(earlier) for earlier in sent)
    return len(sent) < repairs or (0 < len(sent) < REPAIRS_MAX and is_new)


def invalid_return(problems: Sequence[ContractProblem], agent: str, *, repairs: int = 0) -> Error:
    """The error of a delegation whose return is still invalid after the repairs, and the agent to correct."""
    first = problems[0].message if problems else "no problem is known"
    rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    tried = {0: "", 1: " after one repair"}.get(repairs, f" after {repairs} repairs")
    return Error(
        type="validation",
        code=INVALID_RETURN,
        message=f"The return of {agent} breaks the contract{tried}: {first}{rest}.",
        recoverable=True,
        recommendation=f"Read the original text, correct {agent}, and run it again; nothing was marked as done.",
    )


def _sentence(problem: ContractProblem) -> str:
    return f"{problem.message}. {problem.remedy}".rstrip()
