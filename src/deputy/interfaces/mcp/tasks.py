"""MCP tasks: a Delegate call becomes a task that the client polls; the task id is the run's session id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    ElicitResult,
    RequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from pydantic import Field, ValidationError

from deputy.core.errors import UnknownRun
from deputy.engine.call import DELEGATE
from deputy.interfaces.mcp.run_tools import check_allowed, is_interrupted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcp.server import Server
    from mcp.server.context import ServerRequestContext

    from deputy.core.results import Result
    from deputy.core.state import State
    from deputy.interfaces.mcp.server_state import ServerState

EXTENSION = "io.modelcontextprotocol/tasks"
POLL_MILLISECONDS = 1000

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


class TaskParams(RequestParams):
    """Parameters that name a task."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """Parameters of tasks/update."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


class McpTask(Struct, frozen=True, kw_only=True):
    """The state of a task."""

    task_id: str
    status: TaskStatus
    created_at: str
    updated_at: str
    message: str | None = None
    result: CallToolResult | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None

    def form(self) -> dict[str, Any]:
        """The task as JSON."""
        form: dict[str, Any] = {
            "taskId": self.task_id,
            "status": self.status,
            "createdAt": self.created_at,
            "lastUpdatedAt": self.updated_at,
            "ttlMs": None,
            "pollIntervalMs": POLL_MILLISECONDS,
        }
        result = None if self.result is None else self.result.model_dump(by_alias=True, mode="json", exclude_none=True)
        more = {
            "statusMessage": self.message,
            "result": result,
            "error": self.error,
            "inputRequests": self.input_requests,
        }
        return {**form, **{name: value for name, value in more.items() if value is not None}}


class TaskBook(Protocol):
    """A store of tasks; None and False mean an unknown task."""

    async def get(self, task_id: str, context: ServerRequestContext[Any, Any]) -> McpTask | None:
        """The status of a task, with the questions that this client may answer."""
        ...

    async def update(
        self, task_id: str, context: ServerRequestContext[Any, Any], answers: Mapping[str, object]
    ) -> bool:
        """Answer the questions of a task."""
        ...

    async def cancel(self, task_id: str) -> bool:
        """Cancel a task."""
        ...


# --- requests ---------------------------------------------------------------------------------------------------------


def bind_tasks(server: Server[Any], books: Sequence[TaskBook]) -> None:
    """Serve tasks/get, tasks/update and tasks/cancel over these books."""

    async def get(context: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        _check(context, params)
        for book in books:
            task = await book.get(params.task_id, context)
            if task is not None:
                return {"resultType": "complete", **task.form()}
        raise _unknown(params.task_id)

    async def update(context: ServerRequestContext[Any, Any], params: TaskUpdateParams) -> dict[str, Any]:
        _check(context, params)
        answers = {key: _answer(value) for key, value in params.input_responses.items()}
        for book in books:
            if await book.update(params.task_id, context, answers):
                return {"resultType": "complete"}
        raise _unknown(params.task_id)

    async def cancel(context: ServerRequestContext[Any, Any], params: TaskParams) -> dict[str, Any]:
        _check(context, params)
        for book in books:
            if await book.cancel(params.task_id):
                return {"resultType": "complete"}
        raise _unknown(params.task_id)

    server.extensions[EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, get)
    server.add_request_handler("tasks/update", TaskUpdateParams, update)
    server.add_request_handler("tasks/cancel", TaskParams, cancel)


def is_wanted(context: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client supports tasks."""
    capabilities = context.session.client_capabilities
    declared = None if capabilities is None else capabilities.extensions
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS and EXTENSION in (declared or {})


def created_dict(task: McpTask) -> dict[str, Any]:
    """The answer to a call that became a task, without result and questions."""
    left_out = ("result", "error", "inputRequests")
    return {"resultType": "task", **{name: value for name, value in task.form().items() if name not in left_out}}


def require_tasks(context: ServerRequestContext[Any, Any]) -> None:
    """Refuse a client that does not declare tasks."""
    if not is_wanted(context):
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message=f"Client did not declare required extension {EXTENSION!r}",
            data={"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )


def _check(context: ServerRequestContext[Any, Any], params: TaskParams) -> None:
    require_tasks(context)
    headers = getattr(context.request, "headers", None)
    name = None if headers is None else headers.get("mcp-name")
    if headers is not None and name != params.task_id:
        raise MCPError(code=HEADER_MISMATCH, message=f"Mcp-Name header {name!r:.80} does not match the task id")


def _answer(value: object) -> object:
    """The user's answer, parsed if it is one."""
    try:
        return ElicitResult.model_validate(value, by_name=False)
    except ValidationError:
        return value


def _unknown(task_id: str) -> MCPError:
    return MCPError(code=INVALID_PARAMS, message=f"Unknown task: {task_id[:200]!r}")


# --- runs as tasks ----------------------------------------------------------------------------------------------------


class RunTasks:
    """The Delegate calls in this user's journal, as tasks."""

    def __init__(self, server_state: ServerState) -> None:
        self._server_state = server_state

    async def get(self, task_id: str, context: ServerRequestContext[Any, Any]) -> McpTask | None:
        """The task of a run; an orphaned run is resumed."""
        state = await self._find(task_id)
        if state is None:
            return None
        deputy = await self._server_state.deputy()
        if await is_interrupted(deputy, state):
            await check_allowed(self._server_state, state)
            # A run that has ended meanwhile is not restarted.
            await deputy.resume_suspended(task_id)
        return await self._task(state, context)

    async def update(
        self, task_id: str, context: ServerRequestContext[Any, Any], answers: Mapping[str, object]
    ) -> bool:
        """Send the user's answers to the run."""
        from deputy.interfaces.mcp.elicitation import take_answers

        if await self._find(task_id) is None:
            return False
        await take_answers(self._server_state, context, task_id, answers)
        return True

    async def cancel(self, task_id: str) -> bool:
        """Cancel a run and everything below it."""
        if await self._find(task_id) is None:
            return False
        await (await self._server_state.deputy()).cancel(task_id)
        return True

    async def _find(self, task_id: str) -> State | None:
        """The run of a task; only Delegate calls are tasks."""
        try:
            state = await (await self._server_state.deputy()).state(task_id)
        except UnknownRun:
            return None
        return state if state.command == DELEGATE else None

    async def _task(self, state: State, context: ServerRequestContext[Any, Any]) -> McpTask:
        from deputy.core.request import timestamp
        from deputy.interfaces.mcp import elicitation

        results = () if state.is_live else await self._results(state.run)
        # A call whose tasks were all cancelled has another status of its own.
        is_stopped = bool(results) and all(result.outcome.status == "cancelled" for result in results)
        asked = await (await self._server_state.deputy()).approvals(state.run) if state.is_live else ()
        questions = await elicitation.handed(self._server_state, context, state.run) if asked else ()
        requests = {question.name: elicitation.form(question) for question in questions}
        return McpTask(
            task_id=state.run,
            status="input_required" if requests else "cancelled" if is_stopped else _status(state),
            created_at=timestamp(state.requested_at),
            updated_at=timestamp(state.last_at),
            message=f"waits for approval: deputy approve {asked[0].run}" if asked else None,
            result=None
            if state.is_live or is_stopped or state.status == "cancelled"
            else _answer_of(results, state.run),
            input_requests=None
            if not requests
            else {key: one.model_dump(by_alias=True, mode="json", exclude_none=True) for key, one in requests.items()},
        )

    async def _results(self, run: str) -> Sequence[Result]:
        results = await (await self._server_state.deputy()).results(run)
        self._server_state.answering(None, run)
        return results


def _status(state: State) -> TaskStatus:
    if state.is_live:
        return "working"
    return "cancelled" if state.status == "cancelled" else "completed"


def _answer_of(results: Sequence[Result], run: str) -> CallToolResult:
    from deputy.interfaces.mcp.delegate_tools import answer

    return answer(results, "markdown", run)


async def created(server_state: ServerState, run: str, context: ServerRequestContext[Any, Any]) -> dict[str, Any]:
    """The answer to a call of Delegate that became a task."""
    task = await RunTasks(server_state).get(run, context)
    if task is None:
        raise UnknownRun(run)
    return created_dict(task)
