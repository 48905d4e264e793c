"""The instruction about the form of the answer, at the end of a prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json

from deputy.core.contract.return_types import SUMMARY_MAX, ExpectedReturn

if TYPE_CHECKING:
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
  "metadata": {{{metadata}}},
  "errors": [{{"type": "…", "message": "…", "code": "…", "recoverable": true, "recommendation": "…"}}],
  "next_steps": "…"
}}

- status: completed only if the whole task is done; partial if there is a usable result and something is missing; failed
  if there is no usable result; blocked if a person has to decide or provide something first.
- summary: 2 to 5 sentences, under 100 tokens and never over {summary_max} characters: what you did and the result.
  Details belong in files.
- artifacts: each file that you created or changed, with its path from the root of the workspace; [] if there is none.
  The files are checked on disk: list only files that you have written. The summary of an artifact is optional.
- metadata: {copied}.
- errors: at least one unless the status is completed, else []. type is a word such as timeout, validation, execution or
  tool_unavailable; recoverable: whether a retry can help; recommendation: what to do; code is optional.
- next_steps: what should happen next; optional.
"""

_SCHEMA = """
It must match this JSON Schema:

{schema}
"""


def ask(expected: ExpectedReturn, schema: Schema | None = None) -> str:
    """The instruction to answer in the form of the contract, or of a user's schema."""
    if schema is not None:
        opening = _OPENING.format(value="value")
        return opening + _SCHEMA.format(schema=json.format(json.encode(schema.form), indent=2).decode())
    given = _given(expected)
    metadata = {"session_id": "…", "agent_type": "…", **given}
    fields = ", ".join(f'"{name}": {json.encode(value).decode()}' for name, value in metadata.items())
    missing = [name for name in metadata if name not in given]
    return _OPENING.format(value="object") + _FORM.format(
        metadata=f'{fields}, "duration_seconds": 0',
        summary_max=SUMMARY_MAX,
        copied=_copied(list(given), missing),
    )


def _given(expected: ExpectedReturn) -> dict[str, object]:
    given = {
        "session_id": expected.session_id,
        "agent_type": expected.agent_type,
        "delegation_depth": expected.depth,
        "delegation_path": expected.path or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _copied(given: list[str], missing: list[str]) -> str:
    parts = [f"copy {', '.join(given)} exactly as shown"] if given else []
    parts += [f"fill in {' and '.join(missing)}"] if missing else []
    return "; ".join([*parts, "duration_seconds is the time you took; optional"])
