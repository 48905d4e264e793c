"""What is handed over and where it stands in the tree: requests, lineages, session ids, signatures, grants."""

from __future__ import annotations

import posixpath
import unicodedata
from datetime import UTC, datetime
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, cast

from msgspec import UNSET, Struct, UnsetType, json, structs

from deputy.core.errors import UsageError
from deputy.core.limits import Budget, inherited_deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ID_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 6
_ID_DRAWS = 1000
_INPUT_DEPTH = 64
_LAST_MOMENT = 253_402_300_799.0
"""The end of the year 9999, after which there are no dates."""

ALWAYS_GRANTED = frozenset({"Note", "Ask"})
"""Tools that touch nothing, so that a child may have them when its caller does not."""

READ_ONLY_TOOLS = frozenset({"Read", "Grep", "Glob", "WebFetch", "WebSearch"})
"""What a subagent may use when nothing is said."""


def new_session_id(unix_seconds: int, random_string: Callable[[], str], is_known: Callable[[str], bool]) -> str:
    """An id that nobody has: six letters do not make it unique under fan-out, so known ids are drawn again."""
    for _ in range(_ID_DRAWS):
        session_id = f"sess_{unix_seconds}_{random_string()}"
        if not is_known(session_id):
            return session_id
    raise RuntimeError(f"{_ID_DRAWS} draws for second {unix_seconds} were all known: the source of randomness is stuck")


class Hop(Struct, frozen=True, gc=False):
    """One name on a delegation's path, and what it is the name of."""

    name: str
    role: Literal["orchestrator", "command", "agent", "task", "subtask"]


def task_hop(label: str) -> Hop:
    """How a task without an agent stands on the path."""
    return Hop(f"task:{label}", "task")


def subtask_hop(type_: str) -> Hop:
    """How a subtask stands on the path."""
    return Hop(f"subtask:{type_}", "subtask")


class Lineage(Struct, frozen=True, kw_only=True, gc=False):
    """Where a delegation stands in the tree; the path ends with the delegation itself."""

    session_id: str
    root_id: str
    depth: int
    path: tuple[Hop, ...]
    deadline: float | None = None
    """By the journal's clock."""
    drift: float = 0.0
    """The wall clock minus the journal's clock, in whole seconds, by the run's records: to show the deadline."""
    signatures: tuple[str, ...] = ()
    subtask_depth: int = 0
    """How many subtasks of one chain stand above each other here; counted apart from the depth of delegations."""
    subtask_limits: tuple[int, ...] = ()
    """What requests on this chain said about how deep it may go."""
    top_depth: int = 0
    """The depth of the top of its tree: more than 0 in a process that a run has started."""

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
        """The top of a tree: a run of a person or program, whose command and agent add to the path alone.

        In a process that a run has started it stands where that run stands (`above`).
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
        )

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
        """The only way down: the path and the chain of signatures longer, the deadline inherited.

        It is one deeper as a delegation, or as a subtask of the same chain; a delegation begins a chain of its own.
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
        )

    def paused(self, seconds: float) -> Lineage:
        """The same place after waiting for a person, which stops the clock."""
        return self if self.deadline is None else structs.replace(self, deadline=self.deadline + seconds)

    @property
    def deadline_shown(self) -> str | None:
        """When it must end by the wall clock, as JSON forms write it."""
        return None if self.deadline is None else timestamp(self.deadline + self.drift)

    @property
    def is_top(self) -> bool:
        """Whether nobody delegated it: a subtask of such a run stands at its depth, and below it all the same."""
        return self.depth == self.top_depth and not self.subtask_depth

    @property
    def names(self) -> tuple[str, ...]:
        """The path as the registry and a return's metadata have it: it ends with the delegation."""
        return tuple(hop.name for hop in self.path)

    @property
    def received_names(self) -> tuple[str, ...]:
        """The path as the target is given it: it ends with the caller."""
        return self.names[:-1]

    def has_agent(self, name: str) -> bool:
        """Whether an agent of this name is already at work above; a command of the same name does not count."""
        return any(hop.role == "agent" and hop.name == name for hop in self.path)


class Grant(Struct, frozen=True, kw_only=True, gc=False):
    """What a delegation may use: tools, paths of the workspace, and budget."""

    tools: frozenset[str] = READ_ONLY_TOOLS
    paths: tuple[str, ...] = (".",)
    budget: Budget = Budget()
    writable: tuple[str, ...] | None = None
    """Where files may be changed, where that is not everywhere."""
    work_folder: str = ""
    """The folder of the workspace itself that artifacts go to, also of whoever works in a worktree."""

    def covers(self, path: str) -> bool:
        """Whether a path of the workspace lies at or below one that is granted."""
        return _lies_in(path, self.paths)

    def may_write(self, path: str) -> bool:
        """Whether a path of the workspace lies where files may be changed."""
        return self.writable is None or _lies_in(path, self.writable)

    def is_shared(self, path: str) -> bool:
        """Whether a path lies in the folder that artifacts go to."""
        return bool(self.work_folder) and _lies_in(path, (self.work_folder,))


class GrantRequest(Struct, frozen=True, kw_only=True, gc=False):
    """What a caller asks for its child: what is not named is the read-only tools, the caller's paths and budget."""

    tools: frozenset[str] | None = None
    paths: tuple[str, ...] | None = None
    budget: Budget = Budget()

    def excess(self, caller: Grant) -> tuple[str, ...]:
        """What is asked for by name and the caller lacks itself."""
        tools = sorted((self.tools or frozenset()) - caller.tools - ALWAYS_GRANTED)
        paths = [path for path in self.paths or () if not caller.covers(path)]
        return (
            *(f"the tool {tool!r}" for tool in tools),
            *(f"the path {path!r}" for path in paths),
            *(f"{cap} {name}" for name, cap in self.budget.excess(caller.budget)),
        )

    def granted(self, caller: Grant) -> Grant:
        """What the child really gets: never more than the caller has, except the tools that touch nothing."""
        wanted, allowed = READ_ONLY_TOOLS if self.tools is None else self.tools, caller.tools | ALWAYS_GRANTED
        return Grant(
            # Children that get all they want share one set.
            tools=wanted if wanted <= allowed else wanted & allowed,
            paths=caller.paths if self.paths is None else tuple(filter(caller.covers, self.paths)),
            budget=self.budget.narrowed(caller.budget),
            writable=caller.writable,
            work_folder=caller.work_folder,
        )


class Nesting(Struct, frozen=True, kw_only=True):
    """Where a run stands whose process another run has started, and what that run has left for it."""

    lineage: Lineage
    """Of the run that started the process."""
    budget: Budget
    is_live: bool = True
    """Whether that run is at work."""


class TaskContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a target is told about the numbered task it works on."""

    task_number: int | UnsetType = UNSET
    description: str | UnsetType = UNSET
    language: str | UnsetType = UNSET
    complexity: str | UnsetType = UNSET


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """One piece of work that a caller wants to hand over; `admit` turns it into a ticket or refuses it."""

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
    """How deep subtasks may nest from here, where a subtask's request says so."""
    is_counted: bool = True
    """Whether it counts among the spawns of its tree; what a program hands over itself need not."""


def signature(target: str, description: str, inputs: Mapping[str, Any]) -> str:
    """A stable hash of what is asked of whom; the order of keys and white space do not matter."""
    try:
        canonical = json.encode([target, _flat(description), _canonical(inputs, 0)], order="deterministic")
    except (TypeError, UnicodeEncodeError) as error:
        raise UsageError("inputs", inputs, f"they must be JSON data ({error})") from error
    return blake2b(canonical, digest_size=16).hexdigest()


def delegation_context(lineage: Lineage, seconds: float | None, task: TaskContext | None = None) -> dict[str, Any]:
    """What a target is given about where it stands, as JSON data: its path ends with its caller."""
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
    """A moment as every JSON form here writes it: UTC, to the second."""
    bounded = min(max(unix_seconds, 0.0), _LAST_MOMENT)
    return datetime.fromtimestamp(bounded, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _canonical(value: Any, depth: int) -> Any:
    if depth > _INPUT_DEPTH:
        raise UsageError("inputs", "…", f"they may be nested at most {_INPUT_DEPTH} deep")
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
    return " ".join(unicodedata.normalize("NFC", text).split())


def _lies_in(path: str, folders: tuple[str, ...]) -> bool:
    wanted = _normal_path(path)
    return wanted is not None and any(
        folder in (".", wanted) or wanted.startswith(f"{folder}/")
        for folder in map(_normal_path, folders)
        if folder is not None
    )


def _normal_path(path: str) -> str | None:
    """The path within the workspace, or None when it leads out of it."""
    normal = posixpath.normpath(path)
    outside = normal.startswith(("/", "../")) or normal == ".." or "\0" in path or not path
    return None if outside else normal
