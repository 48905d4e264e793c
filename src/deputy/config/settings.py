"""The settings: the tables of a project's `deputy.toml`, and more in the user's own file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from deputy.core.detect.phrase_tables import Route
from deputy.core.limits import MOST_AT_ONCE, MOST_TASKS, WallSetting


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models]`: the model of a request."""

    default: str | None = None
    aliases: dict[str, str] = {}
    routes: tuple[Route, ...] = ()


class TextSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[text]`: more phrases, in the notation of `deputy.core.detect.phrase_tables`."""

    triggers: tuple[str, ...] = ()
    purposes: tuple[str, ...] = ()
    degradations: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    delegations: tuple[str, ...] = ()


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: limits of size, time and depth; None is the shipped value."""

    tasks: Annotated[int, Meta(ge=1, le=MOST_TASKS)] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=MOST_AT_ONCE)] | None = None
    max_depth: Annotated[int, Meta(ge=0, le=10)] | None = None
    max_spawns: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    repairs: Annotated[int, Meta(ge=0, le=2)] | None = None
    idle_seconds: Annotated[float, Meta(ge=1, le=86_400)] | None = None
    tools: dict[str, Annotated[float, Meta(ge=1, le=86_400)]] = {}
    """Seconds for one call of a tool, by the name of the tool."""
    commands: dict[str, WallSetting] = {}


class ApprovalSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[approval]`: what happens to calls that need approval."""

    policy: Literal["ask", "allow", "refuse"] | None = None


class CommandSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[commands.NAME]`: the agents of a command."""

    agents: dict[str, str] = {}
    """The name of the agent by the language of the task; `default` is for all other languages."""


class RoutingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routing]`: which fallbacks are allowed; a project can only forbid more."""

    fallback: bool | None = None
    inline: bool | None = None


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one file. A project is not trusted yet, so no key is a URL or a command."""

    models: ModelSettings = ModelSettings()
    text: TextSettings = TextSettings()
    limits: LimitSettings = LimitSettings()
    approval: ApprovalSettings = ApprovalSettings()
    commands: dict[str, CommandSettings] = {}
    routing: RoutingSettings = RoutingSettings()


class JournalSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[journal]`: retention, durability, and the adoption of interrupted runs."""

    retention_days: Annotated[float, Meta(ge=0, le=36_500)] = 7.0
    fsync: Literal["group", "each", "off"] = "group"
    adopt: bool = False
    """Whether any process resumes the runs of a dead process, without `deputy resume`."""


class StoreSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[store]`: where the journal is, if not in the home."""

    url: str = ""
    """`postgres://USER@HOST/NAME`."""
    dispatch: Literal["", "dbos"] = ""
    """The engine that hands runs to workers (`deputy worker`); empty: a run stays with the process that started it."""
    worker: str = ""
    """The label of the workers that get runs; empty: workers without a label."""


class WorkspaceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[workspace]`: how workers get the files of a workspace."""

    mode: Literal["git", "shared"] = "git"
    """`git`: a snapshot through the store. `shared`: all machines have the folder."""
    root: str = ""
    """With `shared`: where this machine has the shared volume; empty: paths are the same on all machines."""
    max_bytes: Annotated[int, Meta(ge=1, le=10_000_000_000)] = 200_000_000
    """The most bytes of files that a snapshot may have."""
    cache_bytes: Annotated[int, Meta(ge=0)] = 5_000_000_000
    """The bytes of mirrors that a worker keeps."""


class SubtaskSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[subtasks]`: time and depth of a chain of subtasks, and the default template."""

    seconds: float = 3600.0
    max_depth: int = 10
    depth_ceiling: int = 32
    """The highest `max_depth` of a request."""
    default_template: bool = True
    """Whether a request that matches no template uses the default template."""


class McpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp]`: the approval timeout of MCP clients, and the MCP servers of subagents."""

    approval_seconds: float = 120.0
    servers: dict[str, Any] = {}
    """`McpServer` by name; read one by one, so that an error names the server."""


class McpServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp.servers.NAME]`: a program to start, or a URL to call."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}
    tools: tuple[str, ...] | None = None
    """The tools to use; None is all."""
    timeout_seconds: float = 60.0


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents]`: projects whose definitions may grant more than reading, and whose notes reach agents."""

    trusted: tuple[str, ...] = ()
    """Folders of trusted projects; `~` is allowed."""
    notes: bool = True
    """Whether the AGENTS.md or CLAUDE.md of a trusted project is given to agents with their task."""


class FallbackSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[fallback]`: fallback chains of models and programs; the default is the shipped table."""

    chains: dict[str, tuple[str, ...]] = {}
    """By model: the models to try after it."""
    unknown: tuple[str, ...] | None = None
    """The models to try after any other model."""
    programs: dict[str, tuple[str, ...]] = {}
    """By provider: the programs that run its models."""
    any_provider: tuple[str, ...] | None = None
    """The programs that run models of any provider."""


class NotifySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[notify]`: the user's program that is run when something waits for a person."""

    command: tuple[Annotated[str, Meta(min_length=1)], ...] = ()
    """The program and its arguments; a title and the session id are added. No shell is used."""


class RunToolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools.run]`: how the tool Run executes commands."""

    sandbox: Literal["bwrap"] | None = None
    """The sandbox of every command; where it cannot be used, commands are refused."""


class ToolSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[tools]`: settings of single tools."""

    run: RunToolSettings = RunToolSettings()


class UserSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The user's own file: it is trusted, so it may name URLs and programs."""

    journal: JournalSettings = JournalSettings()
    store: StoreSettings = StoreSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    agents: AgentSettings = AgentSettings()
    mcp: McpSettings = McpSettings()
    subtasks: SubtaskSettings = SubtaskSettings()
    fallback: FallbackSettings = FallbackSettings()
    notify: NotifySettings = NotifySettings()
    tools: ToolSettings = ToolSettings()
    providers: dict[str, Any] = {}
    """By name: a model server of the user, or fields that override a shipped provider."""
