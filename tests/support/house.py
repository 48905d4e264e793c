"""A whole Deputy in a temporary folder, with models that say what a test tells them to."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from deputy.core.events import Record, RunOpened, ToolCallEnded
from deputy.core.limits import Budget
from deputy.core.model_script import ModelScript
from deputy.core.request import Grant, Lineage
from deputy.core.task import Task
from deputy.engine.call import DELEGATE, RUN, FanOut
from deputy.interfaces.questions import answer_to, find_pending
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.models.script_model import ScriptModel
from deputy.options import DeputyOptions
from deputy.wiring import open_runtime

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path

    from deputy.core.approval import Choice
    from deputy.core.model_script import ScriptedConversation
    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.testing import ProviderServer

ALL = frozenset({"Read", "Grep", "Glob", "Edit", "Write", "Run", "Delegate", "Subtask"})


async def approve(runtime: Any, run: str, choice: Choice = "yes") -> None:
    """Answer the approval that a run waits for, or will in a moment."""
    while (asking := await find_pending(runtime.journal, run)) is None:  # noqa: ASYNC110  it is in the journal
        await asyncio.sleep(0.002)
    sent = answer_to(asking, choice, digest=asking.digest, now=time.time())
    await runtime.engine.send(sent.run, "approval", sent.decision, key=sent.key)


async def _never_asked(question: Any) -> bool:
    raise AssertionError("the runtime asked instead of suspending the run")


class House:
    """What tests hold on to: files, the model's script, and what was seen."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workspace = root / "workspace"
        self.home = root / "home"
        self.workspace.mkdir()
        self.seen: list[Progress] = []
        self._news = asyncio.Event()
        self._script = root / "script.json"

        self.model = f"script:{self._script}"
        self._monkeypatch = monkeypatch
        self._scripted: list[ScriptModel] = []
        self.given: dict[str, ScriptModel] = {}

    def use(self, provider: ProviderServer, model: str = "anthropic:claude-sonnet-4-5") -> None:
        """Ask this provider, over its socket."""
        for name, value in provider.environ.items():
            self._monkeypatch.setenv(name, value)
        self.model = model

    def script(self, *conversations: ScriptedConversation, strict: bool = True) -> None:
        """Have this said, by one model for all runtimes; unless it is not strict, every turn must be asked for."""
        script = ModelScript(conversations=conversations)
        model = ScriptModel(script, name=self.model)
        self.given[self.model] = model
        if strict:
            self._scripted.append(model)

    def check(self) -> None:
        """Fail when a turn of a script was never asked for."""
        assert [turn for model in self._scripted for turn in model.unasked()] == []

    @asynccontextmanager
    async def open(self, window: int | None = None, *, can_ask: bool = False, **options: Any) -> AsyncGenerator[Any]:
        how = {name: options.pop(name) for name in ("tools", "fsync", "ranker", "suspend_seconds") if name in options}
        given: dict[str, Any] = {
            "workspace": self.workspace,
            "home": self.home,
            "models": self.given,
            "approval": "granted",
        }
        async with open_runtime(
            DeputyOptions(**{**given, **options}, answer=_never_asked if can_ask else None),
            watch=self._watch,
            windows={} if window is None else {self.model: window},
            **how,
        ) as runtime:
            yield runtime

    async def delegate(
        self, *tasks: Task, concurrency: int = 2, budget: Budget | None = None, **options: Any
    ) -> list[Outcome]:
        """The outcomes of these tasks, in their order."""
        async with self.open(**options) as runtime:
            run = await self.begin(runtime, *tasks, concurrency=concurrency, budget=budget)
            self.whole = await runtime.engine.result(run)
            spawned = sorted(await runtime.journal.descendants(run), key=lambda state: state.requested_at)
            by_label = {state.label: await runtime.engine.outcome(state.run, state.round) for state in spawned}
            return [by_label[task.label] for task in tasks]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something that is watched has happened."""
        while not is_so():
            self._news.clear()
            await self._news.wait()

    def _watch(self, progress: Progress) -> None:
        self.seen.append(progress)
        self._news.set()

    async def begin(
        self,
        runtime: Any,
        *tasks: Task,
        concurrency: int = 2,
        budget: Budget | None = None,
        tools: frozenset[str] = frozenset(),
        seconds: float | None = None,
    ) -> str:
        run = await runtime.engine.new_id()
        lineage = Lineage.root(run, deadline=None if seconds is None else time.time() + seconds)
        arguments = msgspec.Raw(msgspec.json.encode(FanOut(tasks=tasks, concurrency=concurrency)))
        grant = Grant(tools=ALL | tools, budget=budget or Budget())
        start = RunOpened(lineage=lineage, model=self.model, command=DELEGATE, arguments=arguments, grant=grant)
        await runtime.engine.submit(run, start)
        return run

    async def run(self, prompt: str, **options: Any) -> Outcome:
        """What a parent agent makes of a prompt."""
        async with self.open(**options) as runtime:
            return await runtime.engine.result(await self.start_parent(runtime, prompt))

    async def start_parent(self, runtime: Any, prompt: str) -> str:
        run = await runtime.engine.new_id()
        start = RunOpened(
            lineage=Lineage.root(run), model=self.model, command=RUN, prompt=prompt, grant=Grant(tools=ALL)
        )
        await runtime.engine.submit(run, start)
        return run

    def records(self, session_id: str) -> list[Record]:
        """What is written about a run."""
        reader = SqliteQueries.open(self.home)
        assert reader is not None
        with reader:
            return [record for record in reader.records(session_id) if isinstance(record, Record)]

    def results(self, outcome: Outcome) -> list[str]:
        """What tools told the model, call by call."""
        return self.results_of(outcome.session_id)

    def results_of(self, session_id: str) -> list[str]:
        """The same of a run by its id."""
        records = self.records(session_id)
        ended = {record.key: record.event for record in records if isinstance(record.event, ToolCallEnded)}
        in_order = sorted(ended, key=lambda key: [int(number) for number in key.removeprefix("tool:").split(".")])
        messages = [ended[key].message for key in in_order]
        return [msgspec.json.decode(message)["content"] for message in messages if message is not msgspec.UNSET]

    def resume(self, session_id: str, answer: str | None = None, **more: Any) -> Outcome:
        """The outcome of another round."""

        async def go() -> Outcome:
            async with self.open() as runtime:
                await runtime.engine.resume(session_id, answer, **more)
                return await runtime.engine.result(session_id)

        return asyncio.run(go())

    def one(self, task: Task | None = None, **options: Any) -> Outcome:
        """The outcome of a single delegation."""
        return asyncio.run(self.delegate(task or Task(label="scout", prompt="Look around."), **options))[0]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[House]:
    house = House(tmp_path, monkeypatch)
    yield house
    house.check()
