"""Deputy as a library: delegate, watch, answer, resume and cancel from your own program."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self, TypeVar

from msgspec import Raw, json, structs

from deputy.core.approval import backend_parts, spawn_request
from deputy.core.errors import UnknownRun, Unquoted, UsageError
from deputy.core.events import APPROVAL, ResumeChanges
from deputy.core.limits import Budget
from deputy.core.refinement import MAX_ROUNDS
from deputy.core.request import ALWAYS_GRANTED, Grant
from deputy.core.results import Outcomes
from deputy.core.state import why_not_claimed
from deputy.core.task import ALL_TOOLS, DELEGATING_TOOLS, Task
from deputy.core.task import DELEGATE as DELEGATE_TOOL
from deputy.engine.call import DELEGATE, RUN, FanOut
from deputy.engine.refine import REFINE
from deputy.interfaces import cancel_tree, resume_policy
from deputy.interfaces.background import cause_of
from deputy.interfaces.call_results import arguments_of, redacted_outcome, refined, results_of
from deputy.interfaces.cancel_tree import AwaitedCalls
from deputy.interfaces.event_stream import Broadcaster
from deputy.interfaces.model_selection import ModelSelection
from deputy.interfaces.nesting import refuse_below_run
from deputy.interfaces.notify import Notifier
from deputy.interfaces.placed_calls import PlacedCalls
from deputy.interfaces.questions import QuestionDispatcher, all_asking, answer_to, find_pending
from deputy.interfaces.resolve_agents import AgentResolver
from deputy.interfaces.run_submission import RunSubmitter
from deputy.interfaces.task_sync import sync_tasks
from deputy.interfaces.validation import as_tasks, check_concurrency, check_id, check_prompt
from deputy.options import DeputyOptions, takes
from deputy.tools.function_tool import as_tool
from deputy.tools.mcp_servers import PREFIX
from deputy.wiring import Runtime, open_runtime

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Collection, Sequence

    from deputy.core.approval import Answerer, ApprovalRequest, Question
    from deputy.core.approval import Choice as ApprovalChoice
    from deputy.core.errors import Error
    from deputy.core.events import Record
    from deputy.core.outcome import Outcome
    from deputy.core.progress import Progress
    from deputy.core.refinement import Evaluator
    from deputy.core.results import Result
    from deputy.core.state import State
    from deputy.interfaces.call_results import Refined
    from deputy.interfaces.questions import PendingApproval
    from deputy.interfaces.resume_policy import Answer
    from deputy.project_tasks.orchestrator import CommandContext

_ASK_SECONDS = 0.002
_R = TypeVar("_R")


class Deputy:
    """Delegates work to subagents; use it with `async with`.

    Calls that need approval are granted, unless `approval` says otherwise or the configuration refuses. With `answer`,
    that function decides approvals and answers the questions of subagents.
    """

    @takes(DeputyOptions)
    def __init__(self, options: DeputyOptions) -> None:
        self._options = options
        self._settings = options.settings
        self._tools = tuple(map(as_tool, options.tools))
        self._own = frozenset(one.name for one in self._tools)
        self._known = ALL_TOOLS | ALWAYS_GRANTED | self._own
        self._grant = Grant(tools=frozenset(options.allow) | self._own, budget=options.budget or Budget())
        self._stack = AsyncExitStack()
        self._opened: Runtime | None = None
        self._is_closed = False
        self._waiting = AwaitedCalls()
        self._stopped: dict[str, frozenset[str]] = {}
        """By resumed run: the runs below it that were interrupted too, and continue when it ends."""
        self._schemas: dict[str, list[object]] = {}
        """By call: the schemas of its tasks, as the program gave them."""
        self._going_on = asyncio.Lock()
        self._watching = Broadcaster(options.watch)
        self.notify_problems: list[str] = []
        """Why the user's notify program failed, once for each time."""

    async def __aenter__(self) -> Self:
        if self._opened is not None or self._is_closed:
            found = Unquoted("a Deputy that was opened before")
            raise UsageError("Deputy", found, "create a new one for each `async with`")
        if self._settings.notify:
            notifier = Notifier(self._settings.notify, self._watching.emit, self.notify_problems)
            self._watching.notifier = await self._stack.enter_async_context(notifier)
        runtime = open_runtime(self._options, tools=self._tools, watch=self._watching.emit)
        self._opened = await self._stack.enter_async_context(runtime)
        self.models = ModelSelection(self._opened, self._options)
        """Which model and backend a task uses, and what that can cost; once this Deputy is open."""
        self.placed = await self._stack.enter_async_context(PlacedCalls(self._opened, self._watching.emit))
        """The runs that workers carry out for this Deputy; once it is open."""
        self.submitter = RunSubmitter(self._opened, self._options, self.models, self.placed)
        if self._options.answer is not None:
            await self.pass_questions(self._options.answer)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._opened is not None:
            await self._waiting.end(self._opened.engine)
        self._watching.close()
        try:
            await self._stack.aclose()
        except BaseExceptionGroup as raised:
            raise cause_of(raised) from None
        finally:
            self._opened, self._is_closed = None, True

    # --- start work ---------------------------------------------------------------------------------------------------

    async def delegate(self, tasks: Sequence[Task | str], *, concurrency: int | None = None) -> Outcomes:
        """Give each task to a subagent; the outcomes are in the order of the tasks. A text is the prompt of a task."""
        session_id = await self.start(as_tasks(tasks), concurrency=concurrency)
        results = await self._await_call(session_id, self.results(session_id))
        return Outcomes(result.outcome for result in results)

    async def run(
        self,
        prompt: str,
        *,
        agent: str | None = None,
        tools: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Outcome:
        """Run a parent agent with every tool, including Delegate, or only `tools`; `agent` names a definition."""
        check_prompt(prompt)
        session_id = await self.start(prompt, agent=agent, tools=tools, timeout=timeout)
        return await self._await_call(session_id, self.outcome(session_id))

    async def refine(
        self,
        task: str,
        evaluator: Evaluator | str,
        *,
        rounds: int = MAX_ROUNDS,
        tools: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> Refined:
        """Repeat work and evaluation until the result is accepted; a text as evaluator is an agent's criteria.

        The budget and `timeout` cover all rounds. The director has read-only tools unless `tools` names others.
        """
        session_id = await self.start_refining(task, evaluator, rounds=rounds, tools=tools, timeout=timeout)
        return await self._await_call(session_id, self.refined(session_id))

    async def start_refining(
        self,
        task: str,
        evaluator: Evaluator | str,
        *,
        rounds: int = MAX_ROUNDS,
        tools: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> str:
        """Start a refinement without waiting for it; return the session id."""
        arguments = arguments_of(
            task, evaluator, rounds=rounds, tools=tools, known=self._known, workspace=self._options.root
        )
        # Without a given limit, the rounds limit a refinement.
        seconds = None if timeout is None else self._settings.seconds(REFINE, timeout)
        return await self._submit({}, command=REFINE, prompt=task, arguments=arguments, seconds=seconds)

    async def refined(self, session_id: str) -> Refined:
        """Wait for the end of a refinement, and return all its rounds."""
        return await refined(self._runtime, session_id, redact=self._options.redact)

    async def start(
        self,
        work: str | Sequence[Task | str],
        *,
        concurrency: int | None = None,
        must_ask: bool = False,
        notes: str = "",
        approval_timeout_seconds: float | None = None,
        agent: str | None = None,
        tools: Sequence[str] | None = None,
        timeout: float | None = None,
        session_id: str = "",
    ) -> str:
        """Start a prompt or many tasks without waiting for them; return the session id.

        With `must_ask`, the tasks wait for one approval: by the `answer` callback, `approve`, or `deputy approve ID`.
        The approval shows `notes`. After `approval_timeout_seconds` it counts as denied. `agent`, `tools` and `timeout`
        are those of a prompt; tasks name their own. `session_id` names a prompt's run; it is from `new_session_id`.
        """
        if isinstance(work, str):
            return await self._start_prompt(work, agent, tools, timeout, session_id)
        concurrency = self._settings.concurrency if concurrency is None else concurrency
        check_concurrency(concurrency)
        given = as_tasks(work)
        resolved, more = await self._resolver.prepare(given)
        await self.models.check_costs(resolved, self._grant.budget)
        tasks = tuple(
            structs.replace(task, timeout=self._settings.seconds(DELEGATE, task.timeout)) for task in resolved
        )
        fan_out = FanOut(
            tasks=tasks,
            concurrency=concurrency,
            must_ask=must_ask,
            cost=await self.models.max_cost(tasks) if must_ask else "",
            notes=notes,
            approval_timeout_seconds=approval_timeout_seconds,
            is_counted=self._options.policy is not None,
        )
        model = await self.models.default(tasks)
        session_id = await self._submit(more, command=DELEGATE, model=model, arguments=Raw(json.encode(fan_out)))
        if any(task.schema is not None for task in given):
            self._schemas[session_id] = [task.schema for task in given]
        if must_ask:
            await self._until_it_asks(session_id)
        return session_id

    async def preview(
        self, tasks: Sequence[Task], *, concurrency: int, notes: str = "", grant: Grant | None = None
    ) -> ApprovalRequest:
        """The approval request for these tasks, to show it without asking."""
        paths = tuple(dict.fromkeys(path for task in tasks for path in task.context))
        return spawn_request(
            tasks,
            tool=DELEGATE_TOOL,
            model=await self.models.default(tasks),
            cost=await self.models.max_cost(tasks),
            concurrency=concurrency,
            files=await self._runtime.services.files.open(self._grant).digests(paths),
            more=backend_parts(notes),
            grant=grant or self._grant,
        )

    async def resolve_tasks(self, tasks: Sequence[Task], *, may_scout: bool = False) -> tuple[Task, ...]:
        """The tasks with the tools, models and limits of their agents; `may_scout` is that of `models.default`."""
        resolved = await self._resolver.resolve(tasks)
        if may_scout:
            await self.models.default(resolved, may_scout=True)
        await self.models.check_costs(resolved, self._grant.budget)
        return resolved

    async def outcome(self, session_id: str) -> Outcome:
        """Wait for the outcome of a run, and of the interrupted runs below it that continue with it."""
        check_id(session_id)
        outcome = await self._runtime.engine.result(session_id)
        await self.placed.caught_up(session_id)
        if session_id in self._stopped:
            async with self._going_on:
                try:
                    if await resume_policy.needs_resume(self._runtime, session_id, self._stopped.get(session_id, ())):
                        await self.resume_run(session_id)
                finally:
                    self._stopped.pop(session_id, None)
            outcome = await self._runtime.engine.result(session_id)
        return redacted_outcome(outcome) if self._options.redact else outcome

    async def results(self, session_id: str) -> tuple[Result, ...]:
        """Wait for the end of a call, and return the result of each task, in the order of the tasks."""
        whole = await self.outcome(session_id)
        state = await self.state(session_id)
        schemas = self._schemas.get(session_id, ())
        results = await results_of(self._runtime, state, whole, schemas, redact=self._options.redact)
        for index, result in enumerate(results):
            # Observers got no `started` event of a parent, so they get no `completed` event.
            if state.parent is not None or result.outcome.session_id != session_id:
                self._watching.emit_end(index, len(results), result)
        return results

    async def resume(
        self, session_id: str, answer: Answer = None, *, budget: Budget | None = None, model: str | None = None
    ) -> Outcome:
        """Continue a run that ended or was interrupted, with a further message or the answer to its question.

        When several subagents ask, `answer` maps their session ids to answers. `budget` replaces caps on the use of
        all rounds, and `model` the model of the run and of the tasks that are resumed with it.
        """
        await self.resume_run(session_id, answer, budget=budget, model=model)
        return await self._await_call(session_id, self._finished(session_id))

    async def resume_run(
        self,
        session_id: str,
        answer: Answer = None,
        *,
        budget: Budget | None = None,
        model: str | None = None,
        request: ApprovalRequest | None = None,
        approval_timeout_seconds: float | None = None,
    ) -> None:
        """Continue a run without waiting for its end; with `request`, a run that ended waits for that approval."""
        state = await self.state(session_id)
        await self._check_place(state)
        changes = ResumeChanges(budget=budget or Budget(), model="" if model is None else model)
        await resume_policy.check_changes(self._runtime, self.models, state, changes, self._grant.budget)
        # The task of an ended command must be released before the command claims it again.
        await self._sync_tasks()
        before = await resume_policy.stopped_before(self._runtime, state)
        await resume_policy.resume_run(self._runtime, state, answer, changes, request, approval_timeout_seconds)
        if before:
            self._stopped[session_id] = before
        if await resume_policy.has_workers(self._runtime, session_id):
            self.placed.follow(session_id)
        if request is not None:
            await self._until_it_asks(session_id)

    async def tools_of(self, session_id: str) -> frozenset[str]:
        """The tools that a run was granted."""
        return await resume_policy.tools_of(self._runtime, await self.state(session_id))

    async def not_allowed(self, tools: Collection[str]) -> tuple[str, ...]:
        """The tools among `tools` that exceed this Deputy's grant."""
        others = frozenset(tools) - self._grant.tools - ALWAYS_GRANTED - DELEGATING_TOOLS
        served = await self._runtime.servers.named([name for name in others if name.startswith(PREFIX)])
        return tuple(sorted(others - self._resolver.allowed(served)))

    async def resume_suspended(self, session_id: str) -> bool:
        """Continue a run that no process works on; return whether it was such a run."""
        await self._check_place(await self.state(session_id))
        return await self._runtime.engine.ensure_running(session_id)

    async def finish_call(self, session_id: str) -> None:
        """After a run has ended, update its call and the project's task."""
        await resume_policy.finish_caller(self._runtime, session_id)
        await self._sync_tasks()

    async def questions(self, session_id: str) -> tuple[Question, ...]:
        """The open questions of a run, or of the tasks of a call."""
        return await resume_policy.questions(self._runtime, await self.state(session_id))

    async def ensure_not_running(self, session_id: str) -> None:
        """Raise when another process works on the run."""
        await resume_policy.ensure_not_running(self._runtime, session_id)

    async def is_running(self, session_id: str) -> bool:
        """Whether a process is running this run."""
        return await resume_policy.is_running(self._runtime, session_id)

    async def why_not_claimed(self, session_id: str) -> Error | None:
        """Why a resumed command did not start: its project task could not be claimed."""
        state = await self.state(session_id)
        return why_not_claimed(await self._runtime.journal.records(session_id), state.round)

    async def unfinished(self, session_id: str) -> tuple[tuple[str, State | None], ...]:
        """The labels of a call's tasks that are not completed, each with its state if it has started."""
        return await resume_policy.remaining_tasks(self._runtime, await self.state(session_id))

    async def state(self, session_id: str) -> State:
        """The state of a run."""
        check_id(session_id)
        state = await self._runtime.engine.get(session_id)
        if state is None:
            raise UnknownRun(session_id)
        return state

    async def records(self, session_id: str, after: int = 0) -> Sequence[Record]:
        """The records of a run after this sequence number."""
        return await self._runtime.journal.records(session_id, after)

    async def asking(self, session_id: str, *, key: str = "") -> PendingApproval | None:
        """The approval that a run, or a run below it, waits for: key, digest and request."""
        return await find_pending(self._runtime.journal, session_id, key)

    async def approvals(self, session_id: str) -> tuple[PendingApproval, ...]:
        """All approvals that a run and the runs below it wait for."""
        return tuple(await all_asking(self._runtime.journal, session_id))

    async def approve(
        self, session_id: str, choice: ApprovalChoice = "yes", *, digest: str = "", key: str = ""
    ) -> bool:
        """Answer the approval that a run waits for; return False when it does not wait, or another answer came first.

        A yes must name the digest of the request (`asking`); another digest is a UsageError. A late yes is a no.
        """
        refuse_below_run("Deputy.approve")
        asking = await find_pending(self._runtime.journal, session_id, key)
        if asking is None:
            return False
        answer = answer_to(asking, choice, digest=digest, now=self._runtime.services.world.now())
        return await self._runtime.engine.send(answer.run, APPROVAL, answer.decision, key=answer.key)

    async def cancel(self, session_id: str) -> bool:
        """Stop a run and everything below it; return whether any of it was active or waited for a person."""
        check_id(session_id)
        return await cancel_tree.stop(self._runtime, session_id)

    async def wait_until_finished(self, session_id: str) -> None:
        """Wait until every run below a run has finished; `cancel` only requests it."""
        await cancel_tree.wait_until_finished(self._runtime, session_id)

    async def delivered(self, session_id: str) -> None:
        """Mark the result of a run as delivered; until then it is not pruned."""
        await self._runtime.engine.deliver(session_id, "caller")

    async def pass_questions(self, answer: Answerer) -> None:
        """Pass the questions of runs to this function; one that waits until it is cancelled only shows them."""
        questions = QuestionDispatcher(self._runtime.engine, answer)
        self._watching.questions = await self._stack.enter_async_context(questions)

    def command_context(self) -> CommandContext:
        """The context of task commands: see `deputy.project_tasks.orchestrator`."""
        from deputy.config import load_command_agents
        from deputy.project_tasks.orchestrator import CommandContext
        from deputy.project_tasks.task_file import TaskFile
        from deputy.tools.git_merge import branch_changes

        return CommandContext(
            engine=self._runtime.engine,
            agents=self._runtime.agents,
            tasks=TaskFile(self._options.root),
            settings=self._settings,
            workspace=self._options.root,
            choose_model=self.models.for_command,
            ensure_usable=self.models.ensure_usable,
            budget=self._grant.budget,
            routing=self._options.routing,
            approval=self._runtime.services.approval,
            changes=lambda branch: asyncio.to_thread(branch_changes, str(self._options.root), os.environ, branch),
            preview=lambda task, grant: self.preview((task,), concurrency=1, grant=grant),
            sync_tasks=self._sync_tasks,
            agents_by_command=load_command_agents(str(self._options.root)),
            nesting=self.submitter.nesting,
        )

    async def new_session_id(self) -> str:
        """A new session id."""
        return await self._runtime.engine.new_id()

    def events(self) -> AsyncIterator[Progress]:
        """The events of subagents as they happen, until this Deputy is closed or you leave the loop."""
        return self._watching.events()

    # --- internals ----------------------------------------------------------------------------------------------------

    @property
    def _runtime(self) -> Runtime:
        if self._opened is None:
            found = Unquoted("a closed Deputy" if self._is_closed else "a Deputy that is not open")
            raise UsageError("Deputy", found, "use it inside `async with Deputy(...) as deputy:`")
        return self._opened

    @property
    def _resolver(self) -> AgentResolver:
        of = self._runtime
        return AgentResolver(
            of.agents, of.servers, grant=self._grant, own=self._own, every=ALL_TOOLS, known=self._known
        )

    async def _start_prompt(
        self, prompt: str, agent: str | None, tools: Sequence[str] | None, timeout: float | None, session_id: str
    ) -> str:
        """Start a parent agent; given tools and a given time limit replace those of its definition."""
        check_prompt(prompt)
        role = await self._resolver.role(agent, "agent")
        seconds = self._settings.seconds(RUN, role.seconds if timeout is None and role is not None else timeout)
        how: dict[str, Any] = {"command": RUN, "prompt": prompt, "seconds": seconds, "session_id": session_id}
        if tools is None:
            return await self._submit(await self._runtime.servers.every(), role=role, **how)
        names = await self._resolver.named(tools)
        role = None if role is None else structs.replace(role, tools=names)
        return await self.submitter.submit(structs.replace(self._grant, tools=names), role=role, **how)

    async def _until_it_asks(self, session_id: str) -> None:
        """Wait until the run has recorded its question, so that it can be answered."""
        while (await self.state(session_id)).status == "requested":  # noqa: ASYNC110  the status is in the journal
            await asyncio.sleep(_ASK_SECONDS)

    async def _finished(self, session_id: str) -> Outcome:
        outcome = await self.outcome(session_id)
        await self.finish_call(session_id)
        return outcome

    async def _sync_tasks(self) -> None:
        await asyncio.to_thread(sync_tasks, self._options.root, self._runtime.folder)

    async def _submit(self, more: dict[str, bool], **how: Any) -> str:
        """Submit a run with the tools of this Deputy, and those of MCP servers that it may use."""
        tools = self._grant.tools | self._resolver.allowed(more)
        return await self.submitter.submit(structs.replace(self._grant, tools=tools), **how)

    async def _await_call(self, session_id: str, work: Awaitable[_R]) -> _R:
        return await self._waiting.add(self._runtime.engine, session_id, work)

    async def _check_place(self, state: State) -> None:
        """Refuse to resume a run of another workspace, unless this workspace was given explicitly."""
        root = None if state.lineage is None else await self._runtime.engine.get(state.lineage.root_id)
        recorded = "" if root is None else root.workspace
        if str(self._options.workspace) != "." or recorded in ("", str(self._options.root)):
            return
        remedy = f"this run works in {recorded}; use Deputy(workspace={recorded!r})"
        raise UsageError("workspace", str(self._options.root), remedy)
