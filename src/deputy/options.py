"""The options of a Deputy: listed, described and checked once, for the library, the command line and the wiring."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from deputy.config import load_effective_settings
from deputy.core.effective_settings import EffectiveSettings
from deputy.core.errors import UsageError
from deputy.core.fallback import Routing
from deputy.core.guard import Policy
from deputy.core.limits import Budget
from deputy.core.queue_names import is_label
from deputy.core.task import ALL_TOOLS
from deputy.engine.ports.observer import Observer

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from deputy.backends.function_backend import AgentFunction
    from deputy.core.approval import Answerer
    from deputy.core.progress import Progress
    from deputy.engine.agent_context import Approval
    from deputy.engine.ports import Model, Tool

_P = ParamSpec("_P")
_S = TypeVar("_S")
_O = TypeVar("_O")


def _is_model_name(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(value.strip()))


def _are_models(value: object) -> bool:
    if value is None:
        return True
    models = cast("dict[object, object]", value) if isinstance(value, dict) else {"": None}
    return all(isinstance(name, str) and hasattr(model, "stream") for name, model in models.items())


def _is_directory(value: object) -> bool:
    return isinstance(value, str | Path) and Path(value).is_dir()


def _is_path(value: object) -> bool:
    return value is None or (isinstance(value, str | Path) and bool(str(value)))


def _is_store(value: object) -> bool:
    return value is None or (isinstance(value, str) and value.startswith(("postgres://", "postgresql://")))


def _is_label(value: object) -> bool:
    return value is None or (isinstance(value, str) and (not value or is_label(value)))


def _are_tools(value: object) -> bool:
    if not isinstance(value, list | tuple):
        return False
    for index, tool in enumerate(cast("Sequence[object]", value)):
        if not callable(tool) and not (hasattr(tool, "schema") and hasattr(tool, "run")):
            text = "give a typed function; Task(tools=…) names the built-in tools of a task"
            raise UsageError(f"tools[{index}]", tool, text)
    return True


def _are(kinds: type | tuple[type, ...]) -> Callable[[object], bool]:
    def check(value: object) -> bool:
        is_group = isinstance(value, list | tuple | set | frozenset)
        return is_group and all(isinstance(one, kinds) for one in cast("Iterable[object]", value))

    return check


def _is_approval(value: object) -> bool:
    return value in (None, "granted", "ask", "refuse")


def _is_callable(value: object) -> bool:
    return value is None or callable(value)


def _optional(kind: type) -> Callable[[object], bool]:
    return lambda value: value is None or isinstance(value, kind)


def _valid(is_valid: Callable[[object], bool], expected: str) -> dict[str, Any]:
    """Metadata of a field: its check, and what a valid value is."""
    return {"is_valid": is_valid, "expected": expected}


_FLAG = _valid(_optional(bool), "give True, False or None")


def _are_functions(value: object) -> bool:
    if value is None:
        return True
    from deputy.backends.function_backend import is_agent_function

    functions = cast("dict[object, object]", value) if isinstance(value, dict) else {"": None}
    return all(
        isinstance(name, str) and name.replace("-", "").replace("_", "").isalnum() and is_agent_function(function)
        for name, function in functions.items()
    )


def _are_servers(value: object) -> bool:
    if value is None:
        return True
    servers = cast("dict[object, object]", value) if isinstance(value, dict) else {"": None}
    return all(isinstance(name, str) and isinstance(settings, dict) for name, settings in servers.items())


@dataclass(frozen=True)
class DeputyOptions:
    """How a Deputy works. An invalid value is a UsageError when the options are made."""

    model: str | None = field(
        default=None, metadata=_valid(_is_model_name, "give 'provider:model', an alias, or None for the default")
    )
    """`provider:model` or an alias; None: DEPUTY_MODEL, the config, the first key that is set, or a local server."""
    _: KW_ONLY
    models: Mapping[str, Model] | None = field(
        default=None, metadata=_valid(_are_models, "give a dict of names and models with a `stream`")
    )
    """Your own models, by the names under which tasks use them."""
    workspace: str | Path = field(default=".", metadata=_valid(_is_directory, "give a directory that exists"))
    """The folder that subagents see."""
    home: str | Path | None = field(default=None, metadata=_valid(_is_path, "give a path"))
    """The folder of the journal; None: DEPUTY_HOME, or the user's own."""
    store: str | None = field(default=None, metadata=_valid(_is_store, "give 'postgres://USER@HOST/NAME', or None"))
    """The address of the store that holds the journal; None: DEPUTY_STORE, the config, or a file in the home."""
    worker: str | None = field(
        default=None, metadata=_valid(_is_label, "give a label of letters, digits and -, or '' for workers without one")
    )
    """The label of the workers that get the runs; it needs a store with workers. None: as the config says."""
    here: bool = field(default=False, metadata=_valid(lambda value: isinstance(value, bool), "give True or False"))
    """Whether runs stay in this process although the store has workers."""
    budget: Budget | None = field(default=None, metadata=_valid(_optional(Budget), "give a deputy.Budget"))
    """The most that each call may use."""
    policy: Policy | None = field(default=None, metadata=_valid(_optional(Policy), "give a deputy.Policy"))
    """The limits of the tree; None: those of the config, without a quota for the program's own tasks."""
    tools: Sequence[Tool | Callable[..., Any]] = field(
        default=(), metadata=_valid(_are_tools, "give a list of typed functions")
    )
    """Your own tools: typed functions, or what `deputy.tool` makes."""
    agents: Mapping[str, AgentFunction] | None = field(
        default=None, metadata=_valid(_are_functions, "give a dict of names and async functions that take a request")
    )
    """Your own async functions as targets of tasks: `Task(agent=NAME)`, and the Delegate tool."""
    mcp_servers: Mapping[str, Mapping[str, Any]] | None = field(
        default=None, metadata=_valid(_are_servers, "give a dict of names and settings, like {'command': 'my-server'}")
    )
    """More MCP servers, each with the settings of `[mcp.servers.NAME]` in the config."""
    approval: Approval | None = field(default=None, metadata=_valid(_is_approval, "give 'granted', 'ask' or 'refuse'"))
    """How calls that need approval are decided: `granted`, `ask` or `refuse`; None: ask with `answer`, else granted."""
    answer: Answerer | None = field(
        default=None, metadata=_valid(_is_callable, "give an async function that takes a deputy.Question")
    )
    """An async function that takes a Question: it decides approvals and answers the questions of subagents."""
    watch: Callable[[Progress], None] | None = field(
        default=None, metadata=_valid(_is_callable, "give a function that takes a deputy.Progress")
    )
    """A function that is called with each progress event."""
    observer: Observer | None = field(default=None, metadata=_valid(_optional(Observer), "give a deputy.Observer"))
    """Receives what happens to runs and steps, for traces and metrics."""
    base_prompt: str = field(default="", metadata=_valid(lambda value: isinstance(value, str), "give a text"))
    """A text before the system prompt of every agent."""
    trusts_project: bool | None = field(default=None, metadata=_FLAG)
    """Whether the workspace's agent definitions and notes are trusted; None: if the user's config lists it."""
    allow: Collection[str] = field(default=ALL_TOOLS, metadata=_valid(_are(str), "give the names of tools"))
    """The built-in tools that calls may use at all; by default all of them."""
    private: Sequence[str | Path] = field(default=(), metadata=_valid(_are((str, Path)), "give a list of paths"))
    """Files in the workspace that tools never read."""
    rules: EffectiveSettings | None = field(
        default=None,
        metadata=_valid(_optional(EffectiveSettings), "give deputy.core.effective_settings.EffectiveSettings, or None"),
    )
    """Settings to use instead of the config files."""
    fallback: bool | None = field(default=None, metadata=_FLAG)
    """Whether another model or backend is tried when one fails; None: as the config says."""
    inline: bool | None = field(default=None, metadata=_FLAG)
    """Whether the session's own model may do a task that no subagent can do; None: as the config says."""
    redact: bool = field(default=False, metadata=_valid(lambda value: isinstance(value, bool), "give True or False"))
    """Whether secrets are hidden in the outcomes, results and rounds that a program gets, as in printed output."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not one.metadata["is_valid"](value):
                raise UsageError(one.name, value, one.metadata["expected"])

    @cached_property
    def root(self) -> Path:
        """The workspace as an absolute path."""
        return Path(self.workspace).absolute()

    @cached_property
    def folder(self) -> Path | None:
        """The home as an absolute path; None for the user's."""
        return None if self.home is None else Path(self.home).expanduser().absolute()

    @cached_property
    def settings(self) -> EffectiveSettings:
        """The given rules, else the settings of the user and the project."""
        return load_effective_settings(str(self.workspace)) if self.rules is None else self.rules

    @property
    def approves(self) -> Approval:
        """How calls that need approval are decided: a program approves by calling, unless the settings refuse."""
        usual: Approval = "granted" if self.answer is None else "ask"
        return self.approval or ("refuse" if self.settings.approval == "refuse" else usual)

    @property
    def routing(self) -> Routing:
        """What a failed delegation may fall back to."""
        inline = self.settings.inline if self.inline is None else self.inline
        return Routing(
            falls_back=self.settings.fallback if self.fallback is None else self.fallback,
            inline="session" if inline else "never",
        )


def takes(kind: Callable[_P, _O]) -> Callable[[Callable[[_S, _O], None]], Callable[Concatenate[_S, _P], None]]:
    """Make an `__init__` of one struct take the fields of that struct, so that they are listed once."""

    def decorate(init: Callable[[_S, _O], None]) -> Callable[Concatenate[_S, _P], None]:
        def __init__(self: _S, *args: _P.args, **kwargs: _P.kwargs) -> None:  # noqa: N807  it is one
            init(self, kind(*args, **kwargs))

        return __init__

    return decorate
