"""Every name that the journal and its neighbours store: kinds of events, statuses, fields, topics, keys of steps.

They are listed in tests/corpus/stored_names.txt by what is on disk alone, so that renaming a class, a function or a
module never changes the list. A change of it is a change of the stored format.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from msgspec import Struct, inspect

from deputy.core import events
from deputy.core.contract.evidence import FileFact
from deputy.core.conversation import AssistantMessage, ToolMessage, UserMessage
from deputy.core.errors import Error
from deputy.core.refinement import Refinement, Round, ScriptOutput
from deputy.core.state import State
from deputy.engine import call, subtasks, worktree
from deputy.engine.ports import BackendResult
from deputy.project_tasks import task_file
from deputy.tools import delegate

STORED_NAMES = Path(__file__).parents[1] / "corpus" / "stored_names.txt"

TOPICS = (events.CANCEL, events.ANSWER, events.APPROVAL)

KEYS = (
    r"admission",
    r"approval",
    r"cancel_requested:N",
    r"changed_files",
    r"claim",
    r"continue:N",
    r"delivered:N",
    r"director",
    r"evidence:N",
    r"fallback:N",
    r"fallback:ready",
    r"fallback:BACKEND:approval",
    r"final_turn:N",
    r"final_turn:N:model",
    r"handover:N",
    r"model:N",
    r"new_conversation",
    r"program:N",
    r"program:N:lost",
    r"program:N:note",
    r"program:N:retry",
    r"question:N",
    r"repair:N",
    r"repaired:N",
    r"requested",
    r"resume:approval",
    r"resumed",
    r"resumed:N",
    r"returned:N",
    r"round:N",
    r"round:N:again",
    r"round:N:evaluator",
    r"round:N:evaluator:id",
    r"round:N:judged",
    r"round:N:made",
    r"round:N:script",
    r"sent_back:N",
    r"started",
    r"started:N",
    r"task",
    r"task.N",
    r"task.N:joined",
    r"task.N:restart",
    r"task:ids.N",
    r"task:model_availability",
    r"tool:N.N",
    r"tool:N.N:agents",
    r"tool:N.N:answer",
    r"tool:N.N:approval",
    r"tool:N.N:ids",
    r"tool:N.N:model_availability",
    r"tool:N.N:noted",
    r"tool:N.N:planned",
    r"tool:N.N.N",
    r"tool:N.N.N:joined",
    r"tool:N.N.N:ranked",
    r"validated:N",
    r"worktree",
    r"worktree:approval",
    r"worktree:done",
)
"""The keys of records within one round of a run; N is a number. `.begun` and `.asked` mark beginnings and questions."""


def stored_names() -> Iterator[str]:
    """One line for each struct that is stored, under the first place at which it is reached, and each other name."""
    yield from (f"topic {topic}" for topic in TOPICS)
    yield from (f"key {key}" for key in KEYS)
    seen: set[type] = set()
    for event in sorted(get_args(events.Known), key=lambda kind: str(kind.__struct_config__.tag)):
        yield from _fields(f"event {event.__struct_config__.tag}", event, seen)
    others: dict[str, Any] = {
        "state": State,
        "tasks.json": task_file._Content,
        "message of a person": UserMessage,
        "message of a model": AssistantMessage,
        "message of tools": ToolMessage,
        "turn of a program": BackendResult,
        "arguments of a call": call.FanOut,
        "arguments of a refinement": Refinement,
        "result of worktree": worktree.WorktreeOpened,
        "result of worktree:done": worktree.WorktreeChanges,
        "result of evidence": FileFact,
        "result of claim": Error,
        "result of planned": subtasks.Planned,
        "result of planned, without a template": subtasks.NoTemplate,
        "result of planned, with problems": subtasks.Unusable,
        "result of agents": delegate.FoundAgent,
        "result of round": Round,
        "result of script": ScriptOutput,
    }
    for name, kind in others.items():
        yield from _fields(name, kind, seen)


def _fields(name: str, kind: type[Struct], seen: set[type]) -> Iterator[str]:
    seen.add(kind)
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    tagged = [f"{info.tag_field}={info.tag}"] if info.tag is not None else []
    yield f"{name}: {' '.join([*tagged, *(field.encode_name for field in info.fields)])}"
    for field in info.fields:
        for inner in _structs(field.type):
            if inner not in seen:
                tag = inner.__struct_config__.tag
                yield from _fields(f"{name}.{field.encode_name}" + (f" {tag}" if tag else ""), inner, seen)


def _structs(info: object) -> Iterator[type[Struct]]:
    match info:
        case inspect.StructType(cls=kind):
            yield kind
        case inspect.UnionType(types=types):
            for one in types:
                yield from _structs(one)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item) | inspect.SetType(item_type=item):
            yield from _structs(item)
        case inspect.FrozenSetType(item_type=item):
            yield from _structs(item)
        case inspect.TupleType(item_types=items):
            for one in items:
                yield from _structs(one)
        case inspect.DictType(key_type=key, value_type=value):
            yield from _structs(key)
            yield from _structs(value)
        case _:
            pass
