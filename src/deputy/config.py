"""Settings: what `deputy.toml` in the project and `~/.config/deputy/config.toml` say, over what is shipped."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert

from deputy.core.errors import Described, UsageError
from deputy.core.limits import OTHER, WALL_LIMITS, WallSetting
from deputy.core.model_name import ONLY_A_PERSON, is_script
from deputy.core.text.phrases import is_phrase
from deputy.core.text.tables import SHIPPED, Route, Tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.ladder import LadderTables
    from deputy.core.rules import Narrowing, Rules

LIMIT_BYTES = 64 * 1024

_DEEPEST_FOLDER = 40
_COMMANDS = (*WALL_LIMITS, "delegate", "run", OTHER)
_ROUTED = ("research", "plan", "implement", "revise", "review", "meta", "errors")
"""What a time limit can be set for."""


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models]`: which model a request goes to."""

    default: str | None = None
    aliases: dict[str, str] = {}
    routes: tuple[Route, ...] = ()


class TextSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[text]`: further phrases, in the notation of `deputy.core.text.phrases`."""

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


class LadderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    ladder: LadderSettings = LadderSettings()
    catalog: dict[str, Any] = {}
    """Laid over the shipped catalog of providers and models, field by field."""


_TABLES = {
    "": UserSettings,
    "agents": AgentSettings,
    "approval": ApprovalSettings,
    "commands.*": CommandSettings,
    "journal": JournalSettings,
    "ladder": LadderSettings,
    "limits": LimitSettings,
    "limits.commands.*": WallSetting,
    "mcp": McpSettings,
    "models": ModelSettings,
    "models.routes": Route,
    "routing": RoutingSettings,
    "subtasks": SubtaskSettings,
    "text": TextSettings,
}
_KINDS = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "object": "a table",
    "str": "a string",
}
_NAMES: dict[type, str] = {bool: "bool", dict: "object", float: "float", int: "int", list: "array", str: "str"}
_RIGHT = {
    "approval.policy": 'one of "ask", "allow" and "refuse"',
    "journal.fsync": 'one of "group", "each" and "off"',
    "journal.retention_days": "a number from 0 to 36500",
    "ladder.chains.*": "a list of models",
    "ladder.programs.*": "a list of programs",
    "limits.commands.*": "a table with default and max in seconds",
    "limits.commands.*.default": "a number of seconds from 1 to 2592000",
    "limits.commands.*.max": "a number of seconds from 1 to 2592000",
    "limits.concurrency": "a whole number from 1 to 4",
    "limits.idle_seconds": "a number from 1 to 86400",
    "limits.max_depth": "a whole number from 0 to 10",
    "limits.max_spawns": "a whole number from 0 to 100000",
    "limits.repairs": "a whole number from 0 to 2",
    "limits.tools.*": "a number of seconds from 1 to 86400",
}
"""What would be right where the kind of a value alone does not say it; `*` is any name."""


def load_user(home: str | None = None) -> UserSettings:
    """What the user's own file says."""
    settings = read_settings(_user_file(home), UserSettings)
    return settings if isinstance(settings, UserSettings) else UserSettings()


def load_catalog(directory: str = ".", home: str | None = None) -> dict[str, Any]:
    """What is laid over the shipped catalog: the user's tables, and the aliases of the user and of the project."""
    user = load_user(home)
    project = read_settings(_project_file(directory)) or Settings()
    # A project may give names of its own, but never decide what a whole `provider:model` stands for.
    aliases = {**user.models.aliases, **{a: model for a, model in project.models.aliases.items() if ":" not in a}}
    if not aliases:
        return user.catalog
    names = {alias.lower(): {"model": model} for alias, model in aliases.items()}
    return {**user.catalog, "names": {**user.catalog.get("names", {}), **names}}


def load_ladder(home: str | None = None) -> LadderTables:
    """The chains of models and orders of programs, with what the user says over what is shipped."""
    from deputy.core.ladder import SHIPPED_LADDER, LadderTables

    said, shipped = load_user(home).ladder, SHIPPED_LADDER
    known = {*shipped.anybody, *(program for order in shipped.programs.values() for program in order)}
    for program in (*(said.anybody or ()), *(program for order in said.programs.values() for program in order)):
        if program not in known:
            raise UsageError(f"{_user_file(home)}: ladder", program, f"there are: {', '.join(sorted(known))}")
    return LadderTables(
        chains={**shipped.chains, **said.chains},
        unknown=shipped.unknown if said.unknown is None else said.unknown,
        programs={**shipped.programs, **said.programs},
        anybody=shipped.anybody if said.anybody is None else said.anybody,
    )


def mcp_servers(settings: McpSettings, path: str = "") -> dict[str, McpServer]:
    """The MCP servers that the user configured; a UsageError names the one that is not right."""
    servers: dict[str, McpServer] = {}
    for name, said in settings.servers.items():
        where = f"{path or _user_file(None)}: mcp.servers.{name}"
        try:
            server = convert(said, McpServer)
        except ValidationError as error:
            raise UsageError(where, _kind_of(said), str(error)) from error
        if (server.command is None) == (server.url is None):
            raise UsageError(where, _kind_of(said), "give it either a command to start or a url to call")
        if not name.isascii() or not name.replace("-", "").isalnum():
            raise UsageError(where, name, "name it with letters, digits and hyphens")
        servers[name] = server
    return servers


def load_rules(directory: str = ".", home: str | None = None) -> Rules:
    """The rules that hold in a directory: the user's own over what is shipped, and no looser in any project."""
    user = read_settings(_user_file(home), UserSettings) or UserSettings()
    project = read_settings(_project_file(directory)) or Settings()
    from deputy.core.rules import ruled

    return ruled(_narrowing(user), _narrowing(project), model=user.models.default)


def _narrowing(settings: Settings) -> Narrowing:
    from deputy.core.rules import Narrowing

    limits = settings.limits
    return Narrowing(
        approval=settings.approval.policy,
        concurrency=limits.concurrency,
        max_depth=limits.max_depth,
        max_spawns=limits.max_spawns,
        repairs=limits.repairs,
        idle_seconds=limits.idle_seconds,
        fallback=settings.routing.fallback,
        inline=settings.routing.inline,
        tool_seconds=limits.tools,
        wall=limits.commands,
    )


def load_command_agents(directory: str = ".", home: str | None = None) -> dict[str, dict[str, str]]:
    """Whom the configuration names for each command, by language: the project's choice over the user's own.

    A name is all that it gives: what an agent may do is for its definition, and for whether that is trusted.
    """
    user = read_settings(_user_file(home), UserSettings) or UserSettings()
    project = read_settings(_project_file(directory)) or Settings()
    chosen: dict[str, dict[str, str]] = {}
    for settings in (user, project):
        for name, said in settings.commands.items():
            chosen.setdefault(name, {}).update(said.agents)
    return chosen


def load_tables(directory: str = ".", home: str | None = None) -> Tables:
    """The tables that hold in a directory: the project's file over the user's own over what is shipped."""
    nearest_first = (read_settings(_project_file(directory)), read_settings(_user_file(home), UserSettings))
    return merge([settings for settings in nearest_first if settings is not None])


def _user_file(home: str | None) -> str:
    return f"{os.environ.get('HOME', '') if home is None else home}/.config/deputy/config.toml"


def merge(nearest_first: Sequence[Settings]) -> Tables:
    """The shipped tables with these settings over them, the nearer over the farther."""
    if not nearest_first:
        return SHIPPED
    aliases = dict(SHIPPED.aliases)
    phrases = {name: list[str](getattr(SHIPPED, name)) for name in TextSettings.__struct_fields__}
    for settings in reversed(nearest_first):
        aliases.update((alias.lower(), model) for alias, model in settings.models.aliases.items())
        for name, known in phrases.items():
            known.extend(getattr(settings.text, name))
    routes = [route for settings in nearest_first for route in settings.models.routes]
    return Tables(
        aliases=aliases,
        routes=(*routes, *SHIPPED.routes),
        default_model=next((s.models.default for s in nearest_first if s.models.default), SHIPPED.default_model),
        **{name: tuple(known) for name, known in phrases.items()},
    )


def read_settings(path: str, kind: type[Settings] = Settings) -> Settings | None:
    """What a file says, None if there is none; a UsageError names the file, the key and what would be right."""
    content = _content(path)
    if content is None:
        return None
    try:
        return _read(path, content, kind)
    except UsageError as error:
        from pathlib import Path

        if not Path(path).is_symlink():
            raise
        # A link may lead to a file that is nobody's business here: nothing of what it holds is told.
        found = Described("a link to a file that does not hold settings")
        raise UsageError(path, found, "put the settings here, or remove it") from error.__cause__


def _read(path: str, content: bytes, kind: type[Settings]) -> Settings:
    import tomllib

    try:
        said = tomllib.loads(content.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(path, _line_of(content, str(error)), f"it must be TOML in UTF-8: {error}") from error
    try:
        settings = convert(said, kind)
    except ValidationError as error:
        raise _explained(path, said, str(error), kind) from error
    _check(path, settings)
    return settings


def _project_file(directory: str) -> str:
    """The nearest `deputy.toml` up to the root of the repository; outside of one, only the directory's own counts."""
    folders = [directory + "/.." * depth for depth in range(_DEEPEST_FOLDER)]
    root = next((depth for depth, folder in enumerate(folders) if os.access(f"{folder}/.git", os.F_OK)), 0)
    paths = [f"{folder}/deputy.toml".removeprefix("./") for folder in folders[: root + 1]]
    return next((path for path in paths if os.access(path, os.F_OK)), paths[0])


def _content(path: str) -> bytes | None:
    try:
        # A pipe would block the open for ever; a device has no end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        found = Described(f"a file that cannot be read ({error.strerror})")
        raise UsageError(path, found, "make it readable, or remove it") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(path, Described("something that is not a file"), "make it a regular file, or remove it")
        content = os.read(descriptor, LIMIT_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > LIMIT_BYTES:
        raise UsageError(path, Described(f"more than {LIMIT_BYTES} bytes"), f"keep it under {LIMIT_BYTES // 1024} KiB")
    return content


def _line_of(content: bytes, problem: str) -> str:
    """The line that a problem of TOML is in, without its value, which may be a secret; the problem has its column."""
    number = problem.partition("(at line ")[2].partition(",")[0]
    lines = content.decode(errors="replace").split("\n")
    line = lines[int(number) - 1] if number.isdigit() and int(number) <= len(lines) else lines[0]
    key, equals, value = line.partition("=")
    return f"{key}{equals} …" if value.strip() else line


def _check(path: str, settings: Settings) -> None:
    """Refuse names that are blank, and phrases that would be found nowhere or everywhere."""
    models, text = settings.models, settings.text
    names = [("default", models.default or "none"), *models.aliases.items(), *((a, a) for a in models.aliases)]
    for key, name in (*names, *(("routes", route.model) for route in models.routes)):
        if not name.strip():
            raise UsageError(f"{path}: models, {key!r}", name, "give the name of a model")
        if is_script(name) and not isinstance(settings, UserSettings):
            raise UsageError(f"{path}: models, {key!r}", name, ONLY_A_PERSON)
    phrases = [("models.routes", word) for route in models.routes for word in route.words]
    for name in TextSettings.__struct_fields__:
        phrases += [(f"text.{name}", phrase) for phrase in getattr(text, name)]
    for name, wall in settings.limits.commands.items():
        _check_wall(path, name, wall)
    for name, said in settings.commands.items():
        _check_agents(path, name, said)
    for key, phrase in phrases:
        if not is_phrase(phrase):
            raise UsageError(
                f"{path}: {key}", phrase, "give words, the first one not in brackets: 'use [a|the] helper'"
            )


def _check_wall(path: str, name: str, said: WallSetting) -> None:
    """Refuse limits of commands that there are not, and defaults beyond their maximum."""
    where = f"{path}: limits.commands.{name}"
    if name not in _COMMANDS:
        raise UsageError(where, name, f"there is no such command; there are: {', '.join(_COMMANDS)}")
    if said.default is not None and said.max is not None and said.default > said.max:
        raise UsageError(f"{where}.default", said.default, f"it must be at most its max of {said.max:g}")


def _check_agents(path: str, name: str, said: CommandSettings) -> None:
    """Refuse agents of commands that have none, and blank names."""
    where = f"{path}: commands.{name}"
    if name not in _ROUTED:
        raise UsageError(where, name, f"no agent serves it; those that have one are: {', '.join(_ROUTED)}")
    for language, agent in said.agents.items():
        if not language.strip() or not agent.strip():
            raise UsageError(f"{where}.agents, {language!r}", agent, "give the name of an agent")


def _explained(path: str, said: Any, message: str, kind: type[Settings]) -> UsageError:
    """What a validation error means for the person who wrote the file."""
    problem, _, place = message.partition(" - at `$")
    keys: list[str] = []
    pattern: list[str] = []
    for step in place.rstrip("`").replace("[...]", ".*").replace("[", ".").replace("]", "").split(".")[1:]:
        # Where only some value of a table is named, it is the first that is wrong in the same way.
        key = _wrong_key(said, ".".join([*pattern, "*"])) if step == "*" else step
        keys.append(key)
        pattern += ["*"] if step == "*" else [] if key.isdigit() else [key]
        said = said[int(key) if isinstance(said, list) else key]
    where = f"{path}: {'.'.join(keys)}"
    if " field `" not in problem:
        subject = problem.split("`")[1].removesuffix(" | null") if "`" in problem else "str"
        return UsageError(where, said, f"it must be {_RIGHT.get('.'.join(pattern)) or _KINDS.get(subject, subject)}")
    subject = problem.partition("`")[2].removesuffix("`")
    if problem.startswith("Object missing"):
        return UsageError(where, said, f"it needs the key {subject!r} too")
    table = _TABLES[".".join(pattern)] if pattern else kind
    known = ", ".join(table.__struct_fields__)
    return UsageError(
        f"{path}: {'.'.join([*keys, subject])}", _kind_of(said[subject]), f"there is no such key; there are: {known}"
    )


def _kind_of(value: object) -> Described:
    """What a value is, without the value: under a key that nobody knows it may be a secret."""
    return Described(_KINDS.get(_NAMES.get(type(value), ""), "a value"))


def _wrong_key(table: dict[str, Any], pattern: str) -> str:
    wanted = _VALUES[pattern]
    for key, value in table.items():
        try:
            convert(value, wanted)
        except ValidationError:
            return key
    return next(iter(table))


_VALUES: dict[str, Any] = {
    "commands.*": CommandSettings,
    "commands.*.agents.*": str,
    "ladder.chains.*": tuple[str, ...],
    "ladder.programs.*": tuple[str, ...],
    "limits.commands.*": WallSetting,
    "limits.tools.*": Annotated[float, Meta(ge=1, le=86_400)],
    "models.aliases.*": str,
}
"""What stands in tables whose keys are names."""
