"""Requests and their place in the tree: lineages, session ids, signatures, grants."""

from __future__ import annotations

import posixpath
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import UNSET, Struct, UnsetType, json, structs

from deputy.core.errors import UsageError
from deputy.core.limits import Budget, inherited_deadline, priced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 6
_ID_DRAWS = 1000
_INPUT_DEPTH = 64
_LAST_MOMENT = 253_402_300_799.0
"""The end of the year 9999, the last date that datetime supports."""

ALWAYS_GRANTED = frozenset({"Note", "Ask"})
"""Tools without effects, which a child may have even if its caller does not."""

GLOB = "Glob"
WEB_TOOLS = frozenset({"WebFetch", "WebSearch"})
READ_ONLY_TOOLS = frozenset({"Read", "Grep", GLOB}) | WEB_TOOLS
ALLOWABLE = ("Edit", "Write", "Run", "Subtask")
"""Tools that `--allow` grants beside the read-only ones."""


def new_session_id(unix_seconds: int, random_string: Callable[[], str], is_known: Callable[[str], bool]) -> str:
    """A new session id; an id that is already known is drawn again, because six letters can collide."""
    for _ in range(_ID_DRAWS):
        session_id = f"sess_{unix_seconds}_{random_string()}"
        if not is_known(session_id):
            return session_id
    raise RuntimeError(f"{_ID_DRAWS} random ids for second {unix_seconds} were all taken: the random source is stuck")


class Hop(Struct, frozen=True, gc=False):
    """One name on a delegation's path, and its role."""

    name: str
    role: Literal["orchestrator", "command", "agent", "task", "subtask"]


def task_hop(label: str) -> Hop:
    """The hop of a task without an agent."""
    return Hop(f"task:{label}", "task")


def subtask_hop(type_: str) -> Hop:
    """The hop of a subtask."""
    return Hop(f"subtask:{type_}", "subtask")


class Lineage(Struct, frozen=True, kw_only=True, gc=False):
    """The place of a delegation in the tree; the path ends with the delegation itself."""

    session_id: str
    root_id: str
    depth: int
    path: tuple[Hop, ...]
    deadline: float | None = None
    """In seconds of the journal's clock."""
    drift: float = 0.0
    """The wall clock minus the journal's clock in whole seconds, to show the deadline."""
    signatures: tuple[str, ...] = ()
    subtask_depth: int = 0
    """The depth in a chain of subtasks, counted apart from the depth of delegations."""
    subtask_limits: tuple[int, ...] = ()
    """The depth limits that the requests of this chain ask for."""
    top_depth: int = 0
    """The depth of the top of its tree; more than 0 in a process that a run started."""
    max_depth: int | None = None
    max_spawns: int | None = None
    """The limits of its tree, which also bind a process that one of its runs starts."""
    traceparent: str | UnsetType = UNSET
    """The caller's span above the root session, as W3C Trace Context writes it."""

    @classmethod
    def root(
        cls,
        session_id: str,
        *,
        command: str | None = None,
        agent: str | None = None,
        deadline: float | None = None,
        above: Lineage | None = None,
    ) -> Lineage:
        """The top of a tree: its command and agent add to the path, not to the depth.

        In a process that a run started, it continues the lineage of that run (`above`).
        """
        commands = () if command is None else (Hop(command, "command"),)
        agents = () if agent is None else (Hop(agent, "agent"),)
        start = (Hop("orchestrator", "orchestrator"),) if above is None else above.path
        ends = [end for end in (deadline, None if above is None else above.deadline) if end is not None]
        depth = 0 if above is None else above.depth
        return cls(
            session_id=session_id,
            root_id=session_id,
            depth=depth,
            path=(*start, *commands, *agents),
            deadline=min(ends, default=None),
            signatures=() if above is None else above.signatures,
            top_depth=depth,
            max_depth=None if above is None else above.max_depth,
        )

    def limited(self, max_depth: int, max_spawns: int) -> Lineage:
        """The lineage of a top with the limits of its process; those of the process above stay if they are stricter."""
        return structs.replace(self, max_depth=self.depth_limit(max_depth), max_spawns=max_spawns)

    def depth_limit(self, max_depth: int) -> int:
        """The stricter of this maximum depth and that of the tree."""
        return max_depth if self.max_depth is None else min(max_depth, self.max_depth)

    def child(
        self,
        session_id: str,
        hop: Hop,
        signature: str,
        *,
        now: float,
        seconds: float | None,
        subtask_limit: int | None = None,
    ) -> Lineage:
        """The lineage of a child: a longer path, one more signature, an inherited deadline.

        A subtask adds to the depth of its chain of subtasks; a delegation adds to the depth and begins a new chain.
        """
        is_subtask = hop.role == "subtask"
        limits = () if subtask_limit is None else (subtask_limit,)
        return Lineage(
            session_id=session_id,
            root_id=self.root_id,
            depth=self.depth + (not is_subtask),
            path=(*self.path, hop),
            deadline=inherited_deadline(now, self.deadline, seconds),
            signatures=(*self.signatures, signature),
            subtask_depth=self.subtask_depth + 1 if is_subtask else 0,
            subtask_limits=(*self.subtask_limits, *limits) if is_subtask else (),
            top_depth=self.top_depth,
            max_depth=self.max_depth,
            max_spawns=self.max_spawns,
            traceparent=self.traceparent,
        )

    def paused(self, seconds: float) -> Lineage:
        """The lineage after a wait for a person, which extends the deadline."""
        return self if self.deadline is None else structs.replace(self, deadline=self.deadline + seconds)

    @property
    def deadline_shown(self) -> str | None:
        """The deadline by the wall clock, as JSON forms write it."""
        return None if self.deadline is None else timestamp(self.deadline + self.drift)

    @property
    def is_top(self) -> bool:
        """Whether it is the top of its tree. A subtask of the top has the same depth, but is below it."""
        return self.depth == self.top_depth and not self.subtask_depth

    @property
    def names(self) -> tuple[str, ...]:
        """The path for the registry and a return's metadata: it ends with the delegation."""
        return tuple(hop.name for hop in self.path)

    @property
    def received_names(self) -> tuple[str, ...]:
        """The path for the target: it ends with the caller."""
        return self.names[:-1]

    def has_agent(self, name: str) -> bool:
        """Whether an agent with this name is on the path; a command does not count."""
        return any(hop.role == "agent" and hop.name == name for hop in self.path)


class Grant(Struct, frozen=True, kw_only=True, gc=False):
    """The tools, paths of the workspace and budget that a delegation may use."""

    tools: frozenset[str] = READ_ONLY_TOOLS
    paths: tuple[str, ...] = (".",)
    budget: Budget = Budget()
    writable: tuple[str, ...] | None = None
    """The folders in which files may be changed; None means everywhere."""
    work_folder: str = ""
    """The artifacts folder of the workspace, also for a run in a worktree."""

    def covers(self, path: str) -> bool:
        """Whether a path of the workspace is at or below a granted one."""
        return _lies_in(path, self.paths)

    def may_write(self, path: str) -> bool:
        """Whether a path of the workspace may be changed."""
        return self.writable is None or _lies_in(path, self.writable)

    def is_shared(self, path: str) -> bool:
        """Whether a path is in the artifacts folder."""
        return bool(self.work_folder) and _lies_in(path, (self.work_folder,))


class GrantRequest(Struct, frozen=True, kw_only=True, gc=False):
    """The grant that a caller requests for its child; by default read-only tools, the caller's paths and budget."""

    tools: frozenset[str] | None = None
    paths: tuple[str, ...] | None = None
    budget: Budget = Budget()

    def excess(self, caller: Grant) -> tuple[str, ...]:
        """The requested tools, paths and caps that the caller does not have."""
        tools = sorted((self.tools or frozenset()) - caller.tools - ALWAYS_GRANTED)
        paths = [path for path in self.paths or () if not caller.covers(path)]
        return (
            *(f"the tool {tool!r}" for tool in tools),
            *(f"the path {path!r}" for path in paths),
            *(f"a budget of {priced(name, cap)}" for name, cap in self.budget.excess(caller.budget)),
        )

    def granted(self, caller: Grant) -> Grant:
        """The child's grant: never more than the caller has, except tools without effects."""
        wanted, allowed = READ_ONLY_TOOLS if self.tools is None else self.tools, caller.tools | ALWAYS_GRANTED
        return Grant(
            # Children with the same tools share one set.
            tools=wanted if wanted <= allowed else wanted & allowed,
            paths=caller.paths if self.paths is None else tuple(filter(caller.covers, self.paths)),
            budget=self.budget.narrowed(caller.budget),
            writable=caller.writable,
            work_folder=caller.work_folder,
        )


class Nesting(Struct, frozen=True, kw_only=True):
    """The lineage of the run that started this process, and the rest of its budget."""

    lineage: Lineage
    budget: Budget
    is_live: bool = True
    round: int = 0


class TaskContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The information about a project task that its target gets."""

    task_number: int | UnsetType = UNSET
    description: str | UnsetType = UNSET
    language: str | UnsetType = UNSET
    complexity: str | UnsetType = UNSET


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """One piece of work that a caller wants to delegate; `admit` makes a ticket or refuses it."""

    session_id: str
    target: Hop
    prompt: str
    caller: Lineage
    caller_grant: Grant
    description: str = ""
    inputs: dict[str, Any] = {}
    wanted: GrantRequest = GrantRequest()
    is_recursive: bool = False
    seconds: float | None = None
    provider: str = ""
    task_context: TaskContext | None = None
    subtask_limit: int | None = None
    is_counted: bool = True
    """Whether it counts as a spawn of its tree; a delegation by a program may not."""


def signature(target: str, description: str, inputs: Mapping[str, Any]) -> str:
    """A stable hash of target, description and inputs, independent of key order and white space."""
    from hashlib import blake2b

    try:
        canonical = json.encode([target, _flat(description), _canonical(inputs, 0)], order="deterministic")
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError("inputs", inputs, f"the inputs must be JSON data ({error})") from error
    return blake2b(canonical, digest_size=16).hexdigest()


def delegation_context(lineage: Lineage, seconds: float | None, task: TaskContext | None = None) -> dict[str, Any]:
    """The delegation context for a target as JSON data; the path ends with its caller."""
    context: dict[str, Any] = {
        "session_id": lineage.session_id,
        "delegation_depth": lineage.depth,
        "delegation_path": list(lineage.received_names),
        "timeout": seconds,
        "caller": lineage.received_names[-1],
    }
    if lineage.deadline is not None:
        context["deadline"] = lineage.deadline_shown
    if task is not None:
        context["task_context"] = task
    return context


def timestamp(unix_seconds: float) -> str:
    """A time in the form of all JSON output: UTC, to the second."""
    bounded = min(max(unix_seconds, 0.0), _LAST_MOMENT)
    return datetime.fromtimestamp(bounded, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _canonical(value: Any, depth: int) -> Any:
    if depth > _INPUT_DEPTH:
        raise UsageError("inputs", "…", f"the inputs may be nested at most {_INPUT_DEPTH} levels deep")
    if isinstance(value, str):
        return _flat(value)
    if isinstance(value, dict):
        pairs = cast("dict[Any, Any]", value)
        return {str(key): _canonical(item, depth + 1) for key, item in pairs.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item, depth + 1) for item in cast("Iterable[Any]", value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _flat(text: str) -> str:
    import unicodedata

    return " ".join(unicodedata.normalize("NFC", text).split())


def _lies_in(path: str, folders: tuple[str, ...]) -> bool:
    wanted = _normal_path(path)
    return wanted is not None and any(
        folder in (".", wanted) or wanted.startswith(f"{folder}/")
        for folder in map(_normal_path, folders)
        if folder is not None
    )


def _normal_path(path: str) -> str | None:
    """The path within the workspace, or None if it leads outside."""
    normal = posixpath.normpath(path)
    outside = normal.startswith(("/", "../")) or normal == ".." or "\0" in path or not path
    return None if outside else normal
