"""What settings there are: the tables of a project's `deputy.toml`, and those of the user's own file beyond it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from deputy.core.detect.phrase_tables import Route
from deputy.core.limits import WallSetting


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models]`: which model a request goes to."""

    default: str | None = None
    aliases: dict[str, str] = {}
    routes: tuple[Route, ...] = ()


class TextSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[text]`: further phrases, in the notation of `deputy.core.detect.phrases`."""

    triggers: tuple[str, ...] = ()
    purposes: tuple[str, ...] = ()
    degradations: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    delegations: tuple[str, ...] = ()


class LimitSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[limits]`: how much, how long and how deep; what is not said is as it is shipped."""

    concurrency: Annotated[int, Meta(ge=1, le=4)] | None = None
    max_depth: Annotated[int, Meta(ge=0, le=10)] | None = None
    max_spawns: Annotated[int, Meta(ge=0, le=100_000)] | None = None
    repairs: Annotated[int, Meta(ge=0, le=2)] | None = None
    idle_seconds: Annotated[float, Meta(ge=1, le=86_400)] | None = None
    tools: dict[str, Annotated[float, Meta(ge=1, le=86_400)]] = {}
    """Seconds for one call of a tool, by its name."""
    commands: dict[str, WallSetting] = {}


class ApprovalSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[approval]`: what happens when something needs a yes."""

    policy: Literal["ask", "allow", "refuse"] | None = None


class CommandSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[commands.NAME]`: who does it."""

    agents: dict[str, str] = {}
    """The name of an agent by the language of the task; `default` is for every other."""


class RoutingSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routing]`: which ways may be gone when the first one fails; a project can only forbid more."""

    fallback: bool | None = None
    inline: bool | None = None


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one file says. It is read before anybody trusts the project, so no key names an address or a command."""

    models: ModelSettings = ModelSettings()
    text: TextSettings = TextSettings()
    limits: LimitSettings = LimitSettings()
    approval: ApprovalSettings = ApprovalSettings()
    commands: dict[str, CommandSettings] = {}
    routing: RoutingSettings = RoutingSettings()


class JournalSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[journal]`: how long runs are kept, when they are safe on disk, and who goes on with what was interrupted."""

    retention_days: Annotated[float, Meta(ge=0, le=36_500)] = 7.0
    fsync: Literal["group", "each", "off"] = "group"
    adopt: bool = False
    """Whether any process that works goes on with what a dead one left, instead of leaving it to `deputy resume`."""


class SubtaskSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[subtasks]`: how long and how deep a chain may be, and what becomes of a request that no template fits."""

    seconds: float = 3600.0
    max_depth: int = 10
    depth_ceiling: int = 32
    """How far a request may raise that."""
    default_template: bool = True
    """Whether a request that no template fits is made from the default one."""


class McpSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp]`: how long MCP clients wait for approval, and which MCP servers subagents may use."""

    approval_seconds: float = 120.0
    servers: dict[str, Any] = {}
    """By name, each a `McpServer`; read one by one, so that a mistake names the server."""


class McpServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[mcp.servers.NAME]`: a program to start, or an address to call."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}
    tools: tuple[str, ...] | None = None
    """Only these of its tools; all of them when nothing is said."""
    timeout_seconds: float = 60.0


class AgentSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[agents]`: whose definitions may grant more than reading."""

    trusted: tuple[str, ...] = ()
    """Projects whose own definitions count like the user's: folders, `~` allowed."""


class FallbackSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[ladder]`: which model and which program come after which; what is not said is as it is shipped."""

    chains: dict[str, tuple[str, ...]] = {}
    """By model, those that are tried after it."""
    unknown: tuple[str, ...] | None = None
    """What is tried after any other."""
    programs: dict[str, tuple[str, ...]] = {}
    """By provider, the programs that carry its models out."""
    anybody: tuple[str, ...] | None = None
    """Programs that carry out models of any provider."""


class UserSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user's own file may say beyond a project's: it is trusted, so it may name addresses."""

    journal: JournalSettings = JournalSettings()
    agents: AgentSettings = AgentSettings()
    mcp: McpSettings = McpSettings()
    subtasks: SubtaskSettings = SubtaskSettings()
    ladder: FallbackSettings = FallbackSettings()
    catalog: dict[str, Any] = {}
    """Laid over the shipped catalog of providers and models, field by field."""
