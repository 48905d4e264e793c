"""Refinement calls of a program: their arguments and their result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET, Raw, Struct, json

from deputy.core.events import RunOpened
from deputy.core.outcome import Outcome
from deputy.core.refinement import MAX_ROUNDS, AgentEvaluator, Ending, Refinement, Round, best_round
from deputy.engine.refine import ending_of, rounds_of
from deputy.interfaces.validation import check_prompt, check_refinement, check_tools

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from deputy.core.refinement import Evaluator
    from deputy.wiring import Runtime


class Refined(Struct, frozen=True, kw_only=True):
    """The result of a refinement: its outcome, whose report is the best round's work, and all rounds."""

    outcome: Outcome
    rounds: tuple[Round, ...]
    ending: Ending

    @property
    def best(self) -> Round | None:
        """The round that is kept."""
        return best_round(self.rounds)


def arguments_of(
    task: str,
    evaluator: Evaluator | str,
    *,
    rounds: int,
    tools: Sequence[str] | None,
    known: Collection[str],
    workspace: Path,
) -> Raw:
    """Check the arguments of a refinement; a str as evaluator is the criteria of an agent evaluator."""
    check_prompt(task)
    judge = AgentEvaluator(criteria=evaluator) if isinstance(evaluator, str) else evaluator
    check_refinement(judge, rounds, workspace)
    check_tools(tools or (), known, "tools")
    return Raw(json.encode(Refinement(evaluator=judge, rounds=rounds, tools=None if tools is None else tuple(tools))))


async def refined(of: Runtime, session_id: str) -> Refined:
    """Wait for the end of a refinement, and return it with all rounds."""
    outcome = await of.engine.result(session_id)
    records = await of.journal.records(session_id)
    call = next(record.event.arguments for record in records if isinstance(record.event, RunOpened))
    limit = MAX_ROUNDS if call is UNSET else json.decode(call, type=Refinement).rounds
    rounds = tuple(rounds_of(records))
    return Refined(outcome=outcome, rounds=rounds, ending=ending_of(rounds, limit))
