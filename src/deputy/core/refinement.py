"""The rules of the director–evaluator loop: when it stops, and which round is the best."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from msgspec import Struct, json

from deputy.core.contract import Parsed, parse
from deputy.core.contract.return_parser import find_objects
from deputy.core.foreign_text import kept_apart
from deputy.core.outcome import shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_ROUNDS = 5
MOST_ROUNDS = 50
EVALUATOR_SECONDS = 300.0
FEEDBACK_CHARACTERS = 20_000
_KEYS = ("success", "feedback")
_SUCCESS = '"success"'
_BROKEN = f"{{{_SUCCESS}:"
"""Stands for a truncated object, which may have been a verdict."""

Ending: TypeAlias = Literal["success", "limit", "no_change", "stopped"]


class ScriptOutput(Struct, frozen=True, kw_only=True):
    """The output of a script: the notes of a script's result."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


class Verdict(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The verdict of an evaluator on one round: the notes of an evaluation."""

    success: bool
    feedback: str = ""
    score: float | None = None
    details: Any = None
    script: ScriptOutput | None = None


class Round(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The work of one round, and its verdict."""

    number: int
    session_id: str
    work: str
    verdict: Verdict
    evaluation_id: str = ""


class AgentEvaluator(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="agent"):
    """An agent that judges by criteria; without a model it uses the director's."""

    criteria: str = "The work does the task completely and correctly."
    model: str | None = None


class ScriptEvaluator(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="script"):
    """A program that reads the work and judges it by its exit code or by JSON."""

    argv: tuple[str, ...]
    seconds: float = EVALUATOR_SECONDS


Evaluator: TypeAlias = AgentEvaluator | ScriptEvaluator


class Refinement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of a director–evaluator loop."""

    evaluator: Evaluator
    rounds: int = MAX_ROUNDS
    tools: tuple[str, ...] | None = None
    """The director's tools; None means the read-only ones."""


VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "success": {"type": "boolean"},
        "feedback": {"type": "string"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "details": {"type": "string"},
    },
    "required": ["success", "feedback"],
    "additionalProperties": False,
}


def verdict_of_report(report: str) -> Verdict:
    """The verdict in an agent's report: JSON, alone or between prose. An unreadable report is no success."""
    parsed = parse(report, "lenient", keys=_KEYS)
    if isinstance(parsed, Parsed) and (found := _verdict(parsed.value)) is not None:
        return found
    return Verdict(success=False, feedback=_feedback(report) or "The evaluator returned an empty report.")


def verdict_of_script(script: ScriptOutput) -> Verdict:
    """The verdict of a script: the last JSON verdict that it prints, else its exit code.

    A failed script is never a success, nor is an unreadable verdict.
    """
    ended = f"The script ended with exit code {script.exit_code}."
    found = _verdict_in(script.stdout.strip())
    if found is None:
        said = script.stdout.strip() or script.stderr.strip()
        found = Verdict(success=True, feedback=_feedback(said) or ended)
    return Verdict(
        success=found.success and script.exit_code == 0,
        feedback=found.feedback or _feedback(script.stderr.strip()) or (ended if script.exit_code else ""),
        score=found.score,
        details=found.details,
        script=script,
    )


def _verdict_in(printed: str) -> Verdict | None:
    """The last verdict in a script's output; no success if it is unreadable, None if there is none."""
    said, end = "", 0
    for span in find_objects(printed):
        end = span.end
        found = printed[span.start : end] if span.is_whole else _BROKEN
        said = found if _SUCCESS in found else said
    if said == _BROKEN or _begins_object(printed[end:].lstrip()):
        return _unread(printed, "it is not JSON")
    if not said:
        return None
    parsed = parse(said, "lenient", keys=_KEYS)
    if not isinstance(parsed, Parsed):
        return _unread(printed, parsed.message)
    return _verdict(parsed.value) or _unread(printed, f"{_SUCCESS} must be true or false")


def _begins_object(printed: str) -> bool:
    last = printed[printed.rfind("\n{") + 1 :]
    return last.startswith("{") and last[1:].lstrip()[:1] in ("", '"', "'")


def _unread(printed: str, why: str) -> Verdict:
    return Verdict(success=False, feedback=_feedback(f"The script's verdict cannot be read: {why}. Output:\n{printed}"))


def _verdict(value: object) -> Verdict | None:
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    notes = fields.get("notes")
    if "success" not in fields and isinstance(notes, dict):
        fields = cast("dict[str, Any]", notes)
    success, feedback, score = fields.get("success"), fields.get("feedback", ""), fields.get("score")
    if not isinstance(success, bool):
        return None
    is_number = isinstance(score, int | float) and not isinstance(score, bool)
    return Verdict(
        success=success,
        feedback=_feedback(feedback if isinstance(feedback, str) else json.encode(feedback).decode()),
        score=float(cast("float", score)) if is_number else None,
        details=fields.get("details"),
    )


def ended(rounds: Sequence[Round], limit: int = MAX_ROUNDS) -> Ending | None:
    """Why the loop stops; None if it continues."""
    if not rounds:
        return None
    last = rounds[-1]
    if last.verdict.success:
        return "success"
    if len(rounds) > 1 and last.work.split() == rounds[-2].work.split():
        return "no_change"
    return "limit" if len(rounds) >= limit else None


def best_round(rounds: Sequence[Round]) -> Round | None:
    """The best round: a success first, then the highest score, then the latest."""
    return max(rounds, key=_worth, default=None)


def refinement_dict(rounds: Sequence[Round], ending: Ending) -> dict[str, Any]:
    """All rounds as JSON, each with its work and its evaluation in the form of a subtask result."""
    best = best_round(rounds)
    return {
        "ending": ending,
        "best": None if best is None else best.number,
        "rounds": [
            {
                "round": one.number,
                "session_id": one.session_id,
                "content": one.work,
                "evaluation": {
                    "content": one.verdict.feedback,
                    "status": "COMPLETE",
                    "notes": verdict_notes(one.verdict, one.evaluation_id),
                },
            }
            for one in rounds
        ],
    }


def verdict_notes(verdict: Verdict, session_id: str = "") -> dict[str, Any]:
    """The notes of an evaluation; a script's contain its output."""
    notes: dict[str, Any] = {"success": verdict.success, "feedback": verdict.feedback}
    for name in ("score", "details", "script"):
        if getattr(verdict, name) is not None:
            notes[name] = getattr(verdict, name)
    return {**notes, "session_id": session_id} if session_id else notes


def refinement_markdown(rounds: Sequence[Round], ending: Ending) -> str:
    """All rounds as Markdown, with the work of the best round at the end."""
    best = best_round(rounds)
    parts = [f"## Refinement: {_ENDINGS[ending]} after {len(rounds)} round{'s' * (len(rounds) != 1)}"]
    for one in rounds:
        score = "" if one.verdict.score is None else f" (score {one.verdict.score:g})"
        mark = "✓ accepted" if one.verdict.success else "✗ not accepted"
        parts += [f"### Round {one.number} {mark}{score}", kept_apart(one.verdict.feedback, _TITLES) or "(no feedback)"]
    if best is not None:
        parts += [f"## Best: round {best.number}", kept_apart(best.work, _TITLES)]
    return "\n\n".join(parts) + "\n"


_TITLES = ("Refinement:", "Round ", "Best:")
_ENDINGS: dict[Ending, str] = {
    "success": "accepted",
    "limit": "not accepted",
    "no_change": "no change",
    "stopped": "stopped",
}


def _worth(one: Round) -> tuple[bool, float, int]:
    score = one.verdict.score
    return one.verdict.success, float("-inf") if score is None else score, one.number


def _feedback(text: str) -> str:
    return shortened(text, FEEDBACK_CHARACTERS)
