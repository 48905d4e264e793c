"""What a target is told about the form of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json

from deputy.core.contract.return_types import SUMMARY_MAX, ExpectedReturn

if TYPE_CHECKING:
    from deputy.core.contract.user_schema import Schema

_OPENING = """\
## The form of your answer

A program reads your final message. It has to be one JSON {value} and nothing else: no sentence before or after it,
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

- status: completed only if all of it is done; partial if something usable is there and something is missing; failed if
  nothing usable came out; blocked if a person has to decide or provide something first.
- summary: 2 to 5 sentences, under 100 tokens and never over {summary_max} characters: what you did and what came out.
  Details belong in files.
- artifacts: each file that you made or changed, its path given from the root of the workspace; [] if there is none.
  They are looked for, so name no file that you have not written. The summary in it may be left out.
- metadata: {copied}.
- errors: at least one unless the status is completed, else []. type is a word such as timeout, validation, execution or
  tool_unavailable; recoverable says whether trying again can help; recommendation says what to do; code is optional.
- next_steps: what should happen next; may be left out.
"""

_SCHEMA = """
It has to match this JSON Schema:

{schema}
"""


def ask(expected: ExpectedReturn, schema: Schema | None = None) -> str:
    """The instruction that goes at the end of a prompt whose answer must have the form of the contract."""
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
    parts = [f"copy {', '.join(given)} exactly as they stand here"] if given else []
    parts += [f"fill in {' and '.join(missing)}"] if missing else []
    return "; ".join([*parts, "duration_seconds is how long you took and may be left out"])
