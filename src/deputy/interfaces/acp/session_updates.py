"""The updates that an ACP client gets about a session, folded from the records and events of its run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, json

from deputy.backends.cli.program import Fields, part
from deputy.core.conversation import ToolResult
from deputy.core.events import (
    FellBack,
    Joined,
    ModelCallEnded,
    Resumed,
    RunOpened,
    Spawned,
    ToolCallBegun,
    ToolCallEnded,
)
from deputy.core.messages import INTERRUPTED_CALL, messages_in
from deputy.core.progress import retry_text, shown_arguments
from deputy.core.state import BEGUN
from deputy.core.task import DELEGATE, DelegateCall, read_call
from deputy.engine.tool_calls import tool_key
from deputy.engine.untrusted import unwrap_untrusted
from deputy.interfaces.text_lines import one_line
from deputy.interfaces.view.progress_table import ProgressTable, heading, text_of
from deputy.processes.outgoing import outgoing_json, outgoing_text, process_redactor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deputy.core.events import Record
    from deputy.core.messages import MessageCall
    from deputy.core.progress import Progress

KINDS = {
    "Read": "read", "Grep": "search", "Glob": "search", "Edit": "edit", "Write": "edit", "Run": "execute",
    "WebFetch": "fetch", "WebSearch": "fetch", "Note": "think",
}  # fmt: skip
"""The protocol's kind of each tool; any other is `other`."""
_MOST_OUTPUT = 20_000
_PLAN_WIDTH = 120
_MODEL = "model:"


class SessionUpdates:
    """Folds records and events into updates. Each update is sent once; records come before later events."""

    def __init__(self, run: str, folder: Path) -> None:
        self.run = run
        self.seq = 0
        """The sequence number of the last record."""
        self.shown = ""
        """The text of this turn so far."""
        self._folder = folder
        self._redactor = process_redactor()
        self._streamed = ""
        """The streamed text of the current model call."""
        self._ahead = ""
        """Text that was sent from records; the events that repeat it come later."""
        self._open: dict[str, None] = {}
        """Tool calls without a result."""
        self._tables: dict[str, ProgressTable] = {}
        """The subagents of each Delegate call."""
        self._changed: dict[str, None] = {}
        """The Delegate calls whose subagents have changed."""
        self._delegated: dict[str, str] = {}
        """The Delegate call of each subagent."""
        self._tasks: dict[str, str] = {}
        """The task of each subagent, by the key of its record."""
        self._plan: dict[str, dict[str, str]] = {}
        """The tasks of all Delegate calls, by the keys of their records."""

    # --- records ------------------------------------------------------------------------------------------------------

    def on_record(self, record: Record, *, is_replay: bool = False) -> Iterator[Fields]:
        """The updates of the next record; a replay also repeats what the user said."""
        self.seq = record.seq
        key = record.key
        match record.event:
            case RunOpened(prompt=prompt) if is_replay:
                yield _chunk("user_message_chunk", outgoing_text(prompt))
            case Resumed(message=Raw() as message) if is_replay:
                for said in messages_in(message, "user"):
                    yield _chunk("user_message_chunk", outgoing_text(said.content))
            case ModelCallEnded() as ended:
                yield from self._on_model(key, ended)
            case ToolCallBegun():
                yield _tool(key.removesuffix(BEGUN), status="in_progress")
            case ToolCallEnded(message=Raw() as message) if key in self._open:
                yield from self._on_result(key, message)
            case Spawned(child=child) if (call := key.rpartition(".")[0]) in self._open:
                self._delegated[child], self._tasks[child] = call, key
                yield _tool(call, status="in_progress")
                yield from self._planned(child, "in_progress")
            case Joined(child=child):
                yield from self._planned(child, "completed")
            case FellBack(fallback=fallback):
                yield _chunk("agent_thought_chunk", outgoing_text(f"{fallback.taken}: {fallback.reason}\n\n"))
            case _:
                return

    def close(self) -> Iterator[Fields]:
        """The updates at the end of a turn: calls that will get no result, and a new turn without text."""
        self._changed.clear()
        for call in tuple(self._open):
            yield _tool(call, status="failed", content=_content(INTERRUPTED_CALL))
        self._open.clear()
        self.shown = self._streamed = self._ahead = ""

    def _on_model(self, key: str, ended: ModelCallEnded) -> Iterator[Fields]:
        for call in tuple(self._open):
            # Malformed calls are answered without a record.
            yield _tool(call, status="failed")
        self._open.clear()
        before, _, turn = key.rpartition(_MODEL)
        for said in () if ended.message is UNSET else messages_in(ended.message, "assistant"):
            text = self._redactor.redact(said.content)
            if text.startswith(self._streamed):
                self._ahead += text[len(self._streamed) :]
                yield from self._say(text[len(self._streamed) :])
            for index, call in enumerate(() if said.tool_calls is UNSET or not turn.isdigit() else said.tool_calls):
                # The answer of a model call begins the next turn.
                yield from self._on_call(f"{before}{tool_key(int(turn) + 1, index)}", call)
        self._streamed = ""
        if ended.context_tokens is not None and ended.context_window:
            yield {"sessionUpdate": "usage_update", "used": ended.context_tokens, "size": ended.context_window}

    def _on_call(self, key: str, call: MessageCall) -> Iterator[Fields]:
        arguments = part({"arguments": call.arguments}, "arguments")
        self._open[key] = None
        title = f"{call.name} {shown_arguments(arguments, self._redactor)}".rstrip()
        path = arguments.get("path")
        more: Fields = {}
        if call.name == DELEGATE and isinstance(wanted := read_call(arguments), DelegateCall):
            title = heading(len(wanted.tasks))
            self._tables[key] = ProgressTable([task.label for task in wanted.tasks])
            for index, task in enumerate(wanted.tasks):
                content = one_line(f"{task.label}: {task.prompt}", _PLAN_WIDTH)
                self._plan[f"{key}.{index}"] = {"content": content, "priority": "medium", "status": "pending"}
        elif isinstance(path, str) and "\0" not in path:
            more["locations"] = [{"path": str(self._folder / path)}]
        yield {
            "sessionUpdate": "tool_call",
            "toolCallId": key,
            "title": outgoing_text(title),
            "kind": KINDS.get(call.name, "other"),
            "status": "pending",
            "rawInput": json.decode(outgoing_json(arguments)),
            **more,
        }
        if key in self._tables:
            yield self._whole_plan()

    def _on_result(self, key: str, message: Raw) -> Iterator[Fields]:
        del self._open[key]
        self._changed.pop(key, None)
        self._tables.pop(key, None)
        is_error = json.decode(message, type=ToolResult).is_error
        text = outgoing_text("".join(unwrap_untrusted(said.content) for said in messages_in(message, "tool")))
        cut = text if len(text) <= _MOST_OUTPUT else f"{text[:_MOST_OUTPUT]}\n… {len(text) - _MOST_OUTPUT:,} more"
        yield _tool(key, status="failed" if is_error else "completed", content=_content(cut))

    def _planned(self, child: str, status: str) -> Iterator[Fields]:
        entry = self._plan.get(self._tasks.get(child, ""))
        if entry is not None and entry["status"] != status:
            entry["status"] = status
            yield self._whole_plan()

    def _whole_plan(self) -> Fields:
        return {"sessionUpdate": "plan", "entries": [dict(entry) for entry in self._plan.values()]}

    # --- events -------------------------------------------------------------------------------------------------------

    def on_progress(self, progress: Progress, now: float) -> Iterator[Fields]:
        """The updates of the next event; those of subagents are kept for `tables`."""
        if progress.session_id != self.run:
            call = self._delegated.get(progress.session_id) or self._delegated.get(progress.parent)
            if call is not None and (table := self._tables.get(call)) is not None:
                self._delegated[progress.session_id] = call
                table.emit(progress, now)
                self._changed[call] = None
            return
        match progress.event:
            case "text":
                yield from self._on_text(progress.content or "")
            case "retry":
                self._streamed = ""
                yield _chunk("agent_thought_chunk", f"{retry_text(progress)}\n\n")
            case "warning":
                yield _chunk("agent_thought_chunk", f"{progress.content or ''}\n\n")
            case _:
                return

    def tables(self, now: float) -> Iterator[Fields]:
        """The subagents that have changed, as the content of their Delegate calls."""
        for call in self._changed:
            lines = (text_of(spans) for spans in self._tables[call].lines(now))
            yield _tool(call, status="in_progress", content=_content("\n".join(lines)))
        self._changed.clear()

    def _on_text(self, text: str) -> Iterator[Fields]:
        if self._ahead.startswith(text):
            self._ahead = self._ahead[len(text) :]
            return
        new = text.removeprefix(self._ahead) if self._ahead and text.startswith(self._ahead) else text
        self._ahead = ""
        self._streamed += new
        yield from self._say(new)

    def _say(self, text: str) -> Iterator[Fields]:
        if text:
            self.shown += text
            yield message(text)


def message(text: str) -> Fields:
    """A piece of the agent's answer."""
    return _chunk("agent_message_chunk", text)


def text_block(text: str) -> Fields:
    """A text as a content block."""
    return {"type": "text", "text": text}


def _chunk(kind: str, text: str) -> Fields:
    return {"sessionUpdate": kind, "content": text_block(text)}


def _content(text: str) -> list[Fields]:
    return [{"type": "content", "content": text_block(text)}]


def _tool(call: str, **fields: Any) -> Fields:
    return {"sessionUpdate": "tool_call_update", "toolCallId": call, **fields}
