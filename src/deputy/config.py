"""Settings: what `deputy.toml` in the project and `~/.config/deputy/config.toml` say, over what is shipped."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, ValidationError, convert

from deputy.core.errors import UsageError
from deputy.core.text.phrases import is_phrase
from deputy.core.text.tables import SHIPPED, Route, Tables

if TYPE_CHECKING:
    from collections.abc import Sequence

LIMIT_BYTES = 64 * 1024

_DEEPEST_FOLDER = 40


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


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one file says. It is read before anybody trusts the project, so no key names an address or a command."""

    models: ModelSettings = ModelSettings()
    text: TextSettings = TextSettings()


class JournalSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[journal]`: how long runs are kept, when they are safe on disk, and who goes on with what was interrupted."""

    retention_days: float = 7.0
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
    """`[mcp]`: who lets MCP clients start subagents, and which MCP servers subagents may use."""

    approval: Literal["ask", "granted", "refuse"] = "ask"
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


class UserSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user's own file may say beyond a project's: it is trusted, so it may name addresses."""

    journal: JournalSettings = JournalSettings()
    mcp: McpSettings = McpSettings()
    subtasks: SubtaskSettings = SubtaskSettings()
    catalog: dict[str, Any] = {}
    """Laid over the shipped catalog of providers and models, field by field."""


_TABLES = {
    "": UserSettings,
    "journal": JournalSettings,
    "mcp": McpSettings,
    "models": ModelSettings,
    "models.routes": Route,
    "subtasks": SubtaskSettings,
    "text": TextSettings,
}
_KINDS = {
    "bool": "true or false",
    "float": "a number",
    "int": "a whole number",
    "str": "a string",
    "array": "a list",
    "object": "a table",
    "str | null": "a string",
}


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
        raise UsageError(path, error.strerror, "make it readable, or remove it") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UsageError(path, "something that is not a file", "make it a regular file, or remove it")
        content = os.read(descriptor, LIMIT_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(content) > LIMIT_BYTES:
        raise UsageError(path, f"more than {LIMIT_BYTES} bytes", f"keep it under {LIMIT_BYTES // 1024} KiB")
    return content


def _line_of(content: bytes, problem: str) -> str:
    """The line that a problem of TOML is in."""
    number = problem.partition("(at line ")[2].partition(",")[0]
    lines = content.decode(errors="replace").split("\n")
    return lines[int(number) - 1] if number.isdigit() and int(number) <= len(lines) else lines[0]


def _check(path: str, settings: Settings) -> None:
    """Refuse names that are blank, and phrases that would be found nowhere or everywhere."""
    models, text = settings.models, settings.text
    names = [("default", models.default or "none"), *models.aliases.items(), *((a, a) for a in models.aliases)]
    for key, name in (*names, *(("routes", route.model) for route in models.routes)):
        if not name.strip():
            raise UsageError(f"{path}: models, {key!r}", name, "give the name of a model")
    phrases = [("models.routes", word) for route in models.routes for word in route.words]
    for name in TextSettings.__struct_fields__:
        phrases += [(f"text.{name}", phrase) for phrase in getattr(text, name)]
    for key, phrase in phrases:
        if not is_phrase(phrase):
            raise UsageError(
                f"{path}: {key}", phrase, "give words, the first one not in brackets: 'use [a|the] helper'"
            )


def _explained(path: str, said: Any, message: str, kind: type[Settings]) -> UsageError:
    """What a validation error means for the person who wrote the file."""
    problem, _, place = message.partition(" - at `$")
    keys: list[str] = []
    for step in place.rstrip("`").replace("[...]", ".*").replace("[", ".").replace("]", "").split(".")[1:]:
        if step == "*":  # some value of a table
            keys.append(next(key for key, value in said.items() if not isinstance(value, str)))
        else:
            keys.append(step)
        said = said[int(step) if isinstance(said, list) else keys[-1]]
    if " field `" not in problem:
        subject = problem.split("`")[1]
        return UsageError(f"{path}: {'.'.join(keys)}", said, f"it must be {_KINDS[subject]}")
    subject = problem.partition("`")[2].removesuffix("`")
    if problem.startswith("Object missing"):
        return UsageError(f"{path}: {'.'.join(keys)}", said, f"it needs the key {subject!r} too")
    table = ".".join(key for key in keys if not key.isdigit())
    known = ", ".join((_TABLES[table] if table else kind).__struct_fields__)
    return UsageError(
        f"{path}: {'.'.join([*keys, subject])}", said[subject], f"there is no such key; there are: {known}"
    )
