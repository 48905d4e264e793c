"""A journal with runs in every state, written without an engine: for the web page's tests, pictures and figures."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from msgspec import Raw, json

from deputy.core import events
from deputy.core.approval import ApprovalPart, ApprovalRequest
from deputy.core.errors import Error
from deputy.core.outcome import Artifact, Completed, Failed, Partial, Usage
from deputy.core.progress import Progress
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.core.state import ASKED, BEGUN

if TYPE_CHECKING:
    from deputy.journal.sqlite.sqlite_journal import SqliteJournal

MODEL = "anthropic:claude-sonnet-4-5"
REPORT = """## Findings

Passwords are checked in `auth/login.py`, in **one** place:

1. `check_password` compares with `hmac.compare_digest`
2. a failed attempt is *not* counted, so there is no lock-out

| file | line | risk |
|---|---|---|
| `auth/login.py` | 41 | medium |
| `auth/tokens.py` | 88 | low |

```python
if not compare_digest(given, stored):
    raise LoginFailed(user)
```
"""


class BusyJournal:
    """Writes runs; every method adds one kind of run."""

    def __init__(self, journal: SqliteJournal) -> None:
        self.journal = journal
        self._count = 0
        self._lineages: dict[str, Lineage] = {}

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"sess_{1_763_190_000 + self._count}_{kind:x<6.6}"

    async def root(self, label: str, command: str = "delegate", prompt: str = "") -> tuple[str, Any]:
        """A live top run."""
        run = self._name("root")
        lineage = self._lineages[run] = Lineage.root(run, deadline=None)
        grant = Grant(tools=frozenset({"Read", "Grep", "Glob", "Delegate"}))
        start = events.RunOpened(
            lineage=lineage,
            label=label,
            command=command,
            prompt=prompt or f"Do {label}.",
            model=MODEL,
            grant=grant,
            workspace="/home/ada/shop",
        )
        lease: Any = await self.journal.begin(run, start)
        await self.journal.append(lease, "started", events.Started(backend="native", model=MODEL))
        return run, lease

    async def child(
        self, parent: str, lease: Any, label: str, prompt: str = "", seconds: float | None = 900.0, agent: str = "scout"
    ) -> tuple[str, Any]:
        """A live subagent."""
        run = self._name("child")
        request = Request(
            session_id=run,
            target=Hop(agent, "agent"),
            prompt=prompt or f"Look at {label}.",
            caller=self._lineages[parent],
            caller_grant=Grant(),
            seconds=seconds,
        )
        requested = events.Requested(request=request, parent=parent, label=label, model=MODEL)
        child: Any = await self.journal.spawn(lease, f"spawn:{run}", run, requested)
        lineage = self._lineages[run] = request.caller.child(run, request.target, "s", now=time.time(), seconds=seconds)
        admitted = events.Admitted(lineage=lineage, grant=Grant(tools=frozenset({"Read", "Grep", "Note"})))
        await self.journal.append(child, "admission", admitted)
        await self.journal.append(child, "started", events.Started(backend="native", model=MODEL))
        return run, child

    async def turns(self, lease: Any, number: int, *, cost: float | None = 0.012, tool: str = "Read") -> None:
        """So many model calls, each with a tool call."""
        for at in range(number):
            key = f"model:{at}"
            await self.journal.append(lease, f"{key}{BEGUN}", events.ModelCallBegun(model=MODEL))
            arguments = {"path": f"src/module_{at}.py"}
            said = {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": f"I look at module {at}."},
                    {"type": "tool_call", "id": f"c{at}", "name": tool, "arguments": arguments},
                ],
            }
            usage = Usage(input=2400 + 900 * at, output=180 + 35 * (at % 5), requests=1, cost=cost)
            ended = events.ModelCallEnded(
                model=MODEL,
                message=Raw(json.encode(said)),
                usage=usage,
                context_tokens=4000 + 4100 * at,
                context_window=200_000,
            )
            await self.journal.append(lease, key, ended)
            begun = events.ToolCallBegun(tool=tool, call=f"c{at}", arguments=Raw(json.encode(arguments)))
            await self.journal.append(lease, f"tool:{at}.0{BEGUN}", begun)
            result = {"role": "tool", "content": f"def work_{at}():\n    return {at}\n", "call_id": f"c{at}"}
            done = events.ToolCallEnded(tool=tool, call=f"c{at}", message=Raw(json.encode(result)))
            await self.journal.append(lease, f"tool:{at}.0", done)

    async def note(self, lease: Any, text: str, key: str = "note:0") -> None:
        await self.journal.append(lease, key, events.Noted(content=text))

    def show(self, run: str, *progress: Progress) -> None:
        """Progress, as another process sees it."""
        for one in progress:
            self.journal.show_progress(run, json.encode(one))

    def call(self, run: str, tool: str, arguments: str) -> None:
        self.show(run, Progress(event="tool_call", label="x", tool=tool, args=arguments))

    async def approval(
        self, lease: Any, request: ApprovalRequest, key: str = "ask:0", until: float | None = None
    ) -> str:
        """A question that waits for a person."""
        from deputy.core.approval_text import headline

        asked = events.QuestionAsked(
            topic="approval", question=headline(request), request=request, digest=request.digest, until=until
        )
        await self.journal.append(lease, f"{key}{ASKED}", asked)
        return request.digest

    async def question(self, lease: Any, text: str, key: str = "ask:0") -> None:
        await self.journal.append(lease, f"{key}{ASKED}", events.QuestionAsked(topic="answer", question=text))

    async def complete(self, run: str, lease: Any, report: str = REPORT, cost: float | None = 0.05) -> None:
        usage = Usage(input=12_000, output=900, requests=4, cost=cost)
        ended = Completed(
            lineage=Lineage.root(run),
            summary="Passwords are checked in auth/login.py.",
            report=report,
            usage=usage,
            model=MODEL,
            artifacts=(Artifact(type="file", path="docs/auth.md"),),
        )
        await self.journal.finish(lease, "returned:0", events.Returned(outcome=ended))

    async def fail(self, run: str, lease: Any, message: str = "The provider refused the key.") -> None:
        error = Error(
            type="auth", code="AUTH", message=message, recoverable=False, recommendation="Set ANTHROPIC_API_KEY again."
        )
        ended = Failed(lineage=Lineage.root(run), summary=message, errors=(error,))
        await self.journal.finish(lease, "returned:0", events.Returned(outcome=ended))

    async def stop_early(self, run: str, lease: Any) -> None:
        error = Error(
            type="timeout",
            code="TIMEOUT",
            message="The time limit of 900 s was reached.",
            recoverable=True,
            recommendation="Resume it, or give it more time.",
        )
        ended = Partial(
            lineage=Lineage.root(run),
            summary="Three of five modules are read.",
            errors=(error,),
            report="Three modules use `eval`.",
        )
        await self.journal.finish(lease, "returned:0", events.Returned(outcome=ended))


def command_request(command: str, label: str = "tester", *, can_always: bool = True) -> ApprovalRequest:
    """The approval of a command."""
    parts = (ApprovalPart(name="command", text=command), ApprovalPart(name="seconds", text="120"))
    return ApprovalRequest(
        tool="Run",
        title="Run a command",
        parts=parts,
        risk="high",
        label=label,
        folder="/home/ada/shop",
        can_always=can_always,
    )


def diff_request(lines: int = 300) -> ApprovalRequest:
    """The approval of an edit with a long diff."""
    body = ["@@ -1,300 +1,300 @@"]
    for at in range(lines // 3):
        body += [
            f" def unchanged_{at}(order):",
            f"-    return order.total * {at}",
            f"+    return round(order.total * {at}, 2)",
        ]
    parts = (
        ApprovalPart(name="path", text="shop/prices.py"),
        ApprovalPart(name="file", text="9,214 bytes, SHA-256 " + "5e" * 32),
        ApprovalPart(name="diff", text="\n".join(body)),
    )
    return ApprovalRequest(
        tool="Edit", title="Change a file", parts=parts, risk="high", label="fixer", folder="/home/ada/shop"
    )
