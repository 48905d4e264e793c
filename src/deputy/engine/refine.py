"""The director–evaluator loop: the evaluator's feedback goes back to the director until the work is accepted."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import UNSET, Raw, json, structs

from deputy.core.errors import Error, passed_up, remedy
from deputy.core.events import Joined, Requested, Resumed, Spawned, Started, StepEnded, ValueDrawn
from deputy.core.fallback import NATIVE
from deputy.core.outcome import Completed, Failed, Partial, shortened
from deputy.core.refinement import (
    VERDICT_SCHEMA,
    AgentEvaluator,
    Evaluator,
    Refinement,
    Round,
    ScriptEvaluator,
    ScriptOutput,
    Verdict,
    best_round,
    ended,
    verdict_of_report,
    verdict_of_script,
)
from deputy.core.request import GrantRequest, Request, task_hop
from deputy.core.task import MAX_OUTPUT_TOKENS, TaskOptions
from deputy.engine.prompts import prompt
from deputy.engine.untrusted import wrap_untrusted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.core.events import Record, RunOpened
    from deputy.core.outcome import Outcome
    from deputy.core.refinement import Ending
    from deputy.engine.ports import RunContext
    from deputy.engine.services import Services

REFINE = "refine"
DIRECTOR, EVALUATOR = "director", "evaluator"
_ROUND = "round"


class _Stop(NamedTuple):
    """Why the loop ended, and the errors of a child that failed."""

    why: Ending
    errors: tuple[Error, ...] = ()


async def refine(run: RunContext, start: RunOpened, services: Services) -> Outcome:
    """Run rounds of making and judging until the work is accepted or a limit is reached; keeps the best round."""
    if start.arguments is UNSET:
        raise TypeError("a refinement needs arguments")
    call = json.decode(start.arguments, type=Refinement)
    with services.tracking(run):
        # The number of rounds already limits its spawns.
        await services.open_ledger(run, start.grant.budget, None, counts_own=False)
        await run.record("started", Started(backend=NATIVE, model=start.model))
        rounds, stop = await _Loop(run, start, call, services).run()
    return _outcome(run, rounds, stop)


def rounds_of(records: Iterable[Record]) -> list[Round]:
    """The rounds in a run's records."""
    return [
        json.decode(record.event.result, type=Round)
        for record in records
        if isinstance(record.event, StepEnded) and record.event.step == _ROUND and record.event.result is not UNSET
    ]


def ending_of(rounds: Sequence[Round], limit: int) -> Ending:
    """Why a loop with these rounds ended."""
    return ended(rounds, limit) or "stopped"


class _Loop:
    """The loop; in a later round of its run it continues where the earlier one stopped."""

    def __init__(self, run: RunContext, start: RunOpened, call: Refinement, services: Services) -> None:
        self._run = run
        self._start = start
        self._call = call
        self._services = services
        self._before = rounds_of(run.history)
        spawned = (record for record in run.history if isinstance(record.event, Spawned))
        known = {record.key.rpartition("/")[2]: record.event for record in spawned}
        found = known.get(DIRECTOR)
        self._director = found.child if isinstance(found, Spawned) else None
        self._said = _said(run.history)
        self._is_unjudged = _is_unjudged(run.history, self._director)
        """Whether an earlier round stopped before the director's work was judged."""

    async def run(self) -> tuple[list[Round], _Stop]:
        """Run rounds until the loop ends."""
        rounds: list[Round] = []
        while True:
            number = len(self._before) + len(rounds) + 1
            last = next(reversed((*self._before, *rounds)), None)
            made = await self._made(number, last)
            if not isinstance(made, Completed):
                return [*self._before, *rounds], _Stop("stopped", passed_up(made.errors, made.session_id))
            verdict, judge = await self._judged(number, made.report)
            one = Round(
                number=number,
                session_id=made.session_id,
                work=made.report,
                verdict=verdict,
                evaluation_id="" if judge is None else judge.session_id,
            )
            await self._run.record(f"{_ROUND}:{number}", StepEnded(step=_ROUND, result=Raw(json.encode(one))))
            rounds.append(one)
            if judge is not None and not isinstance(judge, Completed):
                return [*self._before, *rounds], _Stop("stopped", passed_up(judge.errors, judge.session_id))
            why = ended(rounds, self._call.rounds)
            if why is not None:
                return [*self._before, *rounds], _Stop(why)

    async def _made(self, number: int, last: Round | None) -> Outcome:
        """The director's work; all rounds share its conversation."""
        if self._director is None:
            task = prompt(DIRECTOR).format(task=self._start.prompt)
            tools = None if self._call.tools is None else frozenset(self._call.tools)
            asked = await self._asked(
                DIRECTOR,
                DIRECTOR,
                task,
                self._start.model,
                GrantRequest(tools=tools),
                TaskOptions(max_output_tokens=MAX_OUTPUT_TOKENS),
            )
            self._director = await self._run.spawn(DIRECTOR, asked)
        else:
            words = self._feedback(None if self._is_unjudged else last)
            self._is_unjudged = False
            # Without feedback the completed work stands and is judged.
            await self._run.restart_child(_restart_key(number), self._director, words, force=words is not None)
        return await self._run.join(f"{_ROUND}:{number}:made", self._director)

    def _feedback(self, last: Round | None) -> str | None:
        parts = [self._said] if self._said else []
        self._said = ""
        if last is not None:
            text = wrap_untrusted(
                last.verdict.feedback or "It is not good enough.", EVALUATOR, self._services.world.random_string
            )
            parts.insert(
                0, f"The evaluator did not accept your work. Improve it and answer with the complete work.\n\n{text}"
            )
        return "\n\n".join(parts) or None

    async def _judged(self, number: int, work: str) -> tuple[Verdict, Outcome | None]:
        """The verdict on a round, and the evaluator's outcome if it is an agent."""
        evaluator: Evaluator = self._call.evaluator
        match evaluator:
            case ScriptEvaluator():
                return verdict_of_script(await self._scripted(number, work, evaluator)), None
            case AgentEvaluator():
                task = prompt(EVALUATOR).format(
                    task=self._start.prompt,
                    criteria=evaluator.criteria,
                    work=wrap_untrusted(work, DIRECTOR, self._services.world.random_string),
                )
                key = f"{_ROUND}:{number}:{EVALUATOR}"
                model = evaluator.model or self._start.model
                asked = await self._asked(
                    key, EVALUATOR, task, model, GrantRequest(), TaskOptions(schema=VERDICT_SCHEMA)
                )
                outcome = await self._run.join(f"{_ROUND}:{number}:judged", await self._run.spawn(key, asked))
                if isinstance(outcome, Completed):
                    return verdict_of_report(outcome.report), outcome
                return Verdict(success=False, feedback=f"The evaluator gave no verdict: {outcome.summary}"), outcome

    async def _scripted(self, number: int, work: str, evaluator: ScriptEvaluator) -> ScriptOutput:
        if self._services.scripts is None:
            raise TypeError("an evaluator script needs the scripts port")
        execute = partial(self._services.scripts.run, seconds=evaluator.seconds, owner=self._run.run)
        key = f"{_ROUND}:{number}:script"
        return await self._run.value(key, ScriptOutput, execute, evaluator.argv, work, step="script")

    async def _asked(
        self, key: str, label: str, task: str, model: str, wanted: GrantRequest, options: TaskOptions
    ) -> Requested:
        request = Request(
            session_id=await self._run.new_id(f"{key}:id"),
            target=task_hop(label),
            prompt=task,
            caller=self._run.lineage,
            caller_grant=self._start.grant,
            wanted=wanted,
            provider=model.partition(":")[0],
            is_counted=False,
        )
        options = structs.replace(options, routing=self._start.routing)
        return Requested(request=request, label=label, model=model, options=options)


def _restart_key(number: int) -> str:
    return f"{_ROUND}:{number}:again"


def _is_unjudged(history: Iterable[Record], director: str | None) -> bool:
    """Whether the director's last work has neither a verdict nor a restart after it."""
    is_unjudged, judged = False, 0
    for record in history:
        match record.event:
            case Joined(child=child) if child == director:
                is_unjudged = True
            case StepEnded(step=step) if step == _ROUND:
                is_unjudged, judged = False, judged + 1
            case ValueDrawn() if record.key.endswith(_restart_key(judged + 1)):
                is_unjudged = False
            case _:
                continue
    return is_unjudged


def _said(history: Iterable[Record]) -> str:
    said = [record.event.message for record in history if isinstance(record.event, Resumed)]
    if not said or said[-1] is UNSET:
        return ""
    words: Any = json.decode(said[-1])
    return words if isinstance(words, str) else ""


# --- how it ended -----------------------------------------------------------------------------------------------------


def _outcome(run: RunContext, rounds: Sequence[Round], stop: _Stop) -> Outcome:
    state = run.state
    best = best_round(rounds)
    count = f"{len(rounds)} round{'s' * (len(rounds) != 1)}"
    fields: dict[str, Any] = {
        "lineage": run.lineage,
        "report": "" if best is None else best.work,
        "backend": NATIVE,
        "model": state.model or None,
        "duration_seconds": state.seconds_worked(run.now()),
    }
    if stop.why == "success":
        return Completed(**fields, summary=f"Accepted after {count}.")
    errors = stop.errors or (_not_accepted(stop.why, rounds, run.run),)
    fields |= {"errors": errors, "next_steps": remedy(errors)}
    if best is None:
        return Failed(**fields, summary=shortened(f"No work was produced: {errors[0].message}"))
    return Partial(**fields, summary=shortened(f"Not accepted after {count}: {errors[0].message}"))


def _not_accepted(why: Ending, rounds: Sequence[Round], run: str) -> Error:
    text = {
        "limit": ("ROUNDS_SPENT", f"The evaluator accepted none of {len(rounds)} rounds."),
        "no_change": ("NO_CHANGE", "The director repeated work that the evaluator does not accept."),
    }
    code, message = text.get(why, ("STOPPED", "The loop stopped before its end."))
    return Error(
        type="refinement",
        code=code,
        message=message,
        recoverable=True,
        recommendation=f"Use the best round, or continue with: deputy resume {run}",
    )
