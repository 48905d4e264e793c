"""A parent that hands three tasks over by its Delegate tool, carried out by the whole product, and what must hold.

The real loop, tools, wire and journal; only the provider is ours, on a real socket in the same process. Variants: ok;
early (a request goes out before what was done is durable); again (a tool that must not be repeated is declared so).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp  # noqa: F401  loaded before the forks, which else would each load it
from invariants import (
    check_claims,
    check_done,
    check_ended,
    check_records,
    check_transcripts,
    check_tree,
    records_below,
)

from deputy import Deputy
from deputy.core.errors import StorageFailed
from deputy.core.events import ModelCallEnded, Record, ToolCallBegun
from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedConversation, ScriptedTurn
from deputy.core.state import replay
from deputy.engine.ports import ToolTraits
from deputy.engine.recover import shown_status
from deputy.journal.registry import list_runs
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.models import anthropic  # noqa: F401  the same
from deputy.runtime.context import DurableRunContext
from deputy.testing import ProviderServer
from deputy.tools.function_tool import FunctionTool, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deputy.core.outcome import Outcome
    from deputy.core.state import State
    from deputy.testing.provider import ProviderRequest

    Tell = Callable[[str], object]

LABELS = ("one", "two", "three")
PROMPT = "have three things done"
DONE = "All three are done."
TURNS = {"root": 2} | dict.fromkeys(LABELS, 4)
"""How many model calls each of them takes when nothing fails."""
_OFTEN = 1000


def run(home: str, variant: str, tell: Tell) -> None:
    """Carry the delegation out, or on from where it was left; tell what goes out into the world."""
    if variant == "early":
        DurableRunContext.durable = _never_mind
    workspace = Path(home).with_name("workspace")
    workspace.mkdir(exist_ok=True)
    (workspace / "file.txt").write_text("a line\n")
    # Nothing that a user of this machine has set up plays a part.
    os.environ["HOME"] = os.environ["XDG_CONFIG_HOME"] = str(workspace)
    root = _known(Path(home), tell)
    with ProviderServer(_script(), strict=False) as provider:
        provider.asked = _Telling(tell)
        os.environ.update(provider.environ)
        asyncio.run(_execute(Path(home), workspace, root, _acting(variant, tell), tell))


async def _execute(home: Path, workspace: Path, root: str, act: FunctionTool, tell: Tell) -> None:
    async with Deputy("anthropic:claude-sonnet-4-5", workspace=workspace, home=home, tools=[act]) as deputy:
        if not root:
            session_id = await deputy.start(PROMPT)
            tell(f"stands {session_id}")
            outcome = await deputy.outcome(session_id)
        else:
            session_id, outcome = root, await _gone_on(deputy, await deputy.state(root))
        below = await _below(deputy, session_id)
        outcomes = {state.label: await (_gone_on(deputy, state) if root else _end(deputy, state)) for state in below}
        await deputy.delivered(session_id)
        tell("delivered root")
        for ended in (outcome, *outcomes.values()):
            if ended.status != "completed":
                is_storage = any(error.type == "storage" for error in ended.errors)
                raise StorageFailed(str(home), ended.summary) if is_storage else AssertionError(ended)


async def _below(deputy: Deputy, root: str) -> list[State]:
    with SqliteQueries.open(deputy._runtime.folder) as reader:
        return reader.descendants(root)


async def _end(deputy: Deputy, state: State) -> Outcome:
    return await deputy.outcome(state.run)


async def _gone_on(deputy: Deputy, state: State) -> Outcome:
    """How a run ends when it is resumed, unless it has completed."""
    return await (_end(deputy, state) if state.status == "completed" else deputy.resume(state.run))


def _known(home: Path, tell: Tell) -> str:
    """The run at the top, if there is one; tells how many model calls of each need not be paid for again."""
    reader = SqliteQueries.open(home)
    if reader is None:
        return ""
    with reader:
        states = [standing.state for standing in list_runs(reader, ended=100)]
        for state in states:
            tell(f"known {_label(state)} {_answers(list(reader.records(state.run)))}")
    return next((state.run for state in states if state.parent is None), "")


def _label(state: State) -> str:
    return state.label if state.parent else "root"


def _answers(records: list) -> int:
    return sum(isinstance(record, Record) and isinstance(record.event, ModelCallEnded) for record in records)


def _acting(variant: str, tell: Tell) -> FunctionTool:
    """A tool with an effect, which must not have it twice."""

    async def act(label: str) -> str:
        """Do it."""
        tell(f"did {label} 3")
        return "done"

    return tool(traits=ToolTraits(repeatable=variant == "again", needs_approval=False))(act)


class _Telling(list):
    """The requests that came: each is told before it is answered."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def append(self, asked: ProviderRequest) -> None:
        super().append(asked)
        label = next((label for label in LABELS if f"work of {label}" in asked.opening), "root")
        self._tell(f"asked {label} {asked.answered}")


def _script() -> ModelScript:
    tasks = [{"label": label, "prompt": f"work of {label}", "tools": ["Read", "act"]} for label in LABELS]
    return ModelScript(
        conversations=(
            *(
                _talk(
                    f"work of {label}",
                    _turn("", Note={"content": _note(label)}, Read={"path": "file.txt"}),
                    _turn("On it. " * 300, Read={"path": "file.txt"}),
                    _turn("", act={"label": label}),
                    _turn(_report(label)),
                )
                for label in LABELS
            ),
            _talk(PROMPT, _turn("", Delegate={"tasks": tasks, "concurrency": 3}), _turn(DONE)),
        )
    )


def _talk(when: str, *turns: ScriptedTurn) -> ScriptedConversation:
    # The last is sent again to a run that is resumed after it.
    return ScriptedConversation(when=when, turns=(*turns, *[turns[-1]] * 4), times=_OFTEN)


def _turn(text: str, **calls: Mapping[str, object]) -> ScriptedTurn:
    made = tuple(ScriptedCall(name=name, arguments=dict(given)) for name, given in calls.items())
    return ScriptedTurn(text=text, calls=made)


def _note(label: str) -> str:
    return f"{label} has seen it"


def _report(label: str) -> str:
    return f"{label} is done. " + " ".join(map(str, range(770)))


async def _never_mind(_: DurableRunContext) -> None:
    """Wait for nothing."""


# --- what must hold ---------------------------------------------------------------------------------------------------


def check(home: str, variant: str, acks: list[str], complete: bool, damaged: str, tell: Tell) -> list[str]:
    """The invariants that do not hold."""
    problems = check_done(acks) + _check_paid_once(acks)
    reader = SqliteQueries.open(Path(home))
    if reader is None:
        return [*problems, "the journal has gone"] if any(ack.startswith("stands") for ack in acks) else problems
    with reader:
        tops = [one.state for one in list_runs(reader, ended=100) if one.state.parent is None]
        if len(tops) > 1:
            return [*problems, f"begun {len(tops)} times"]
        if not tops:
            return [*problems, f"lost: {acks}"] if acks else problems
        root = tops[0].run
        found = records_below(reader, root)
        for name, records in found.items():
            problems += check_records(reader, name, records)
        problems += (
            check_claims(Path(home)) + _check_shown(reader) + check_tree(found, root) + check_transcripts(Path(home))
        )
        by_label = {_label(reader.state(name)): list(records) for name, records in found.items()}
        problems += _check_promises(by_label, acks)
        if complete:
            problems += check_ended(reader, Path(home), list(found)) + _check_results(reader, list(found))
    return problems


def _check_shown(reader: SqliteQueries) -> list[str]:
    """No process is at work any more, and that is what is shown."""
    shown = [(_label(standing.state), shown_status(standing)) for standing in list_runs(reader)]
    return [f"{label} is shown as {status}" for label, status in shown if status != "interrupted"]


def _check_paid_once(acks: list[str]) -> list[str]:
    """A model call that was on record when a process began is not made again by it."""
    known: dict[str, int] = {}
    problems = []
    for ack in acks:
        word, label, *rest = ack.split()
        if word == "known":
            known[label] = int(rest[0])
        elif word == "asked" and int(rest[0]) < known.get(label, 0):
            problems.append(f"paid twice: answer {rest[0]} of {label}, of which {known[label]} were known")
    return problems


def _check_promises(found: Mapping[str, list[Record]], acks: list[str]) -> list[str]:
    """What went out into the world went out when all before it was on record."""
    problems = []
    for ack in acks:
        word, label, *rest = ack.split()
        records = found.get(label, [])
        if word in ("asked", "did") and (not records or _answers(records) < int(rest[0])):
            problems.append(f"lost: {ack}, and {_answers(records)} answers are on record")
        if word == "did" and not any(isinstance(r.event, ToolCallBegun) and r.event.tool == "act" for r in records):
            problems.append(f"lost: {ack}")
        if word == "delivered" and not replay(records).is_settled:
            problems.append(f"lost: {ack}")
    return problems


def _check_results(reader: SqliteQueries, names: list[str]) -> list[str]:
    """All came to what they come to when nothing fails."""
    problems = [] if len(names) == 1 + len(LABELS) else [f"{len(names)} runs in the end"]
    for name in names:
        state = reader.state(name)
        label = _label(state)
        outcome = reader.get(name, f"returned:{state.round}").event.outcome
        if (outcome.status, outcome.report.strip()) != ("completed", DONE if label == "root" else _report(label)):
            problems.append(f"{label} came to {outcome.status}: {outcome.report[:80]!r}")
        # Who was resumed after trouble with storage was told that the calls of that turn were not made.
        if not state.round and outcome.notes != (() if label == "root" else (_note(label),)):
            problems.append(f"{label} noted {outcome.notes}")
        if not state.round and state.usage.requests != TURNS[label]:
            problems.append(f"{label} used {state.usage}")
    return problems
