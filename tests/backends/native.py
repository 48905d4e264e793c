"""Our own loop as a backend: an assignment becomes a delegation, its outcome an end."""

from __future__ import annotations

from contextlib import asynccontextmanager

import msgspec

from deputy.client import Deputy
from deputy.core.conversation import TextDelta, TokenUsage, ToolCall
from deputy.core.events import ModelCallEnded, ToolCallBegun, ToolCallEnded
from deputy.core.model_script import ModelScript, ScriptedConversation
from deputy.core.task import Task
from deputy.engine.ports import BackendResult, BackendSession, Ready
from deputy.engine.ports.backend import ToolUse
from deputy.testing import ProviderServer

KINDS = {"completed": "answered", "blocked": "asked", "partial": "limited", "failed": "failed"}
READS = ("Read", "Grep", "Glob")


class NativeBackend:
    """Carries assignments out by delegating them here."""

    name = "native"

    def __init__(self, deputy: Deputy) -> None:
        self.deputy = deputy

    async def check(self):
        return Ready()

    async def run(self, assignment, emit):
        if assignment.resume is not None:
            outcome = await self.deputy.resume(assignment.resume.id, assignment.message)
        else:
            tools = tuple(sorted(assignment.grant.tools))
            task = Task(
                label="case", prompt=assignment.prompt, tools=tools, timeout=assignment.seconds, isolation="none"
            )
            [outcome] = await self.deputy.delegate([task])
        return await self._end(outcome, emit)

    async def _end(self, outcome, emit):
        records = await self.deputy._runtime.journal.records(outcome.session_id)
        start = max((at for at, record in enumerate(records) if type(record.event).__name__ == "Resumed"), default=0)
        uses, input_tokens, output_tokens, cached = [], 0, 0, 0
        for record in records[start:]:
            match record.event:
                case ModelCallEnded(usage=usage, message=message):
                    input_tokens += usage.input
                    output_tokens += usage.output
                    cached += usage.cached
                    emit(TokenUsage(input_tokens=usage.input, output_tokens=usage.output))
                    if message is not msgspec.UNSET:
                        parts = msgspec.json.decode(message)["parts"]
                        emit(TextDelta(text="".join(part.get("text", "") for part in parts)))
                        for part in parts:
                            if "name" in part:
                                emit(ToolCall(id=part["id"], name=part["name"], arguments=part["arguments"]))
                case ToolCallEnded(tool=tool, message=message):
                    is_error = "not" in str(msgspec.json.decode(message)) and tool not in READS
                    denied = tool not in READS and not record.event.changed
                    uses.append(ToolUse(name=tool, may_write=tool not in READS, is_denied=denied, is_error=is_error))
                case ToolCallBegun():
                    continue
                case _:
                    continue
        return BackendResult(
            kind=KINDS[outcome.status],
            text=outcome.report,
            error=outcome.errors[0] if outcome.status in ("partial", "failed") else None,
            usage=msgspec.structs.replace(
                outcome.usage, input=input_tokens, output=output_tokens, cached=cached, cost=None
            ),
            own_session=BackendSession(id=outcome.session_id),
            is_resumable=True,
            tools_used=tuple(uses),
        )


class NativeStage:
    """Plays cases with our own loop, over a provider on a socket."""

    model = "anthropic:claude-sonnet-4-5"

    def __init__(self, home, monkeypatch) -> None:
        self.home, self.monkeypatch = home, monkeypatch

    @asynccontextmanager
    async def open(self, case, workspace):
        script = ModelScript(conversations=(ScriptedConversation(turns=case.turns),))
        async with ProviderServer(script, strict=False) as server:
            for name, value in {**server.environ, "HOME": str(self.home)}.items():
                self.monkeypatch.setenv(name, value)
            async with Deputy(self.model, workspace=workspace, home=self.home / "home", fallback=False) as deputy:
                yield NativeBackend(deputy)
