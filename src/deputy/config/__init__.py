"""Load settings: `deputy.toml` of the project and `~/.config/deputy/config.toml`, over the shipped defaults."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from msgspec import ValidationError, convert

from deputy.config.settings import McpServer, McpSettings, Settings, TextSettings, UserSettings
from deputy.config.settings_file import read_settings
from deputy.core.detect.phrase_tables import SHIPPED, PhraseTables
from deputy.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.effective_settings import EffectiveSettings, ProjectSettings
    from deputy.core.fallback import FallbackTables

_DEEPEST_FOLDER = 40


def load_user(home: str | None = None) -> UserSettings:
    """The settings of the user's own file."""
    settings = read_settings(user_file(home), UserSettings)
    return settings if isinstance(settings, UserSettings) else UserSettings()


def load_catalog(directory: str = ".", home: str | None = None) -> dict[str, Any]:
    """Additions to the shipped catalog: the user's tables, and the aliases of user and project."""
    user = load_user(home)
    project = _load_project(directory, user) or Settings()
    aliases = {**project.models.aliases, **user.models.aliases}
    names = {alias.lower(): {"model": model} for alias, model in aliases.items()}
    return {"providers": user.providers, "names": names}


def load_fallback_tables(home: str | None = None) -> FallbackTables:
    """The fallback chains and program orders: the user's over the shipped ones."""
    from deputy.core.fallback import SHIPPED_FALLBACK, FallbackTables

    said, shipped = load_user(home).fallback, SHIPPED_FALLBACK
    known = {*shipped.any_provider, *(program for order in shipped.programs.values() for program in order)}
    for program in (*(said.any_provider or ()), *(program for order in said.programs.values() for program in order)):
        if program not in known:
            raise UsageError(f"{user_file(home)}: fallback", program, f"there are: {', '.join(sorted(known))}")
    return FallbackTables(
        chains={**shipped.chains, **said.chains},
        unknown=shipped.unknown if said.unknown is None else said.unknown,
        programs={**shipped.programs, **said.programs},
        any_provider=shipped.any_provider if said.any_provider is None else said.any_provider,
    )


def mcp_servers(settings: McpSettings, path: str = "") -> dict[str, McpServer]:
    """The MCP servers of the user; a UsageError names the one with an error."""
    from deputy.config.setting_checks import explained_entry, kind_of

    servers: dict[str, McpServer] = {}
    for name, said in settings.servers.items():
        where = f"{path or user_file(None)}: mcp.servers.{name}"
        try:
            server = convert(said, McpServer)
        except ValidationError as error:
            table = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
            raise explained_entry(where, table, str(error), {"": McpServer.__struct_fields__}) from error
        if (server.command is None) == (server.url is None):
            raise UsageError(where, kind_of(said), "give either a command to start or a url to call")
        if not name.isascii() or not name.replace("-", "").isalnum():
            raise UsageError(where, name, "name it with letters, digits and hyphens")
        servers[name] = server
    return servers


def load_effective_settings(directory: str = ".", home: str | None = None) -> EffectiveSettings:
    """The settings for a directory: the user's over the shipped ones; a project can only restrict them."""
    user = load_user(home)
    project = read_settings(project_file(directory)) or Settings()
    from deputy.core.effective_settings import effective_settings

    return effective_settings(
        narrowing(user), narrowing(project), model=user.models.default, notify=user.notify.command
    )


def narrowing(settings: Settings) -> ProjectSettings:
    """The settings of one file that a project can make stricter."""
    from deputy.core.effective_settings import ProjectSettings

    limits = settings.limits
    return ProjectSettings(
        approval=settings.approval.policy,
        tasks=limits.tasks,
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
    """The agent of each command by language: the project's choice over the user's."""
    user = read_settings(user_file(home), UserSettings) or UserSettings()
    project = read_settings(project_file(directory)) or Settings()
    chosen: dict[str, dict[str, str]] = {}
    for settings in (user, project):
        for name, said in settings.commands.items():
            chosen.setdefault(name, {}).update(said.agents)
    return chosen


def load_tables(directory: str = ".", home: str | None = None) -> PhraseTables:
    """The phrase tables for a directory: the project's over the user's over the shipped ones."""
    user = read_settings(user_file(home), UserSettings)
    project = _load_project(directory, user if isinstance(user, UserSettings) else UserSettings())
    return merge([settings for settings in (project, user) if settings is not None])


def _load_project(directory: str, user: UserSettings) -> Settings | None:
    """The settings of the project; an alias that redefines a known name is refused."""
    from deputy.config.setting_checks import check_project_aliases

    path = project_file(directory)
    project = read_settings(path)
    if project is not None:
        check_project_aliases(path, project, user)
    return project


def user_file(home: str | None = None) -> str:
    """The path of the user's own file."""
    return f"{os.environ.get('HOME', '') if home is None else home}/.config/deputy/config.toml"


def merge(nearest_first: Sequence[Settings]) -> PhraseTables:
    """The shipped tables, extended by these settings."""
    if not nearest_first:
        return SHIPPED
    aliases = dict(SHIPPED.aliases)
    phrases = {name: list[str](getattr(SHIPPED, name)) for name in TextSettings.__struct_fields__}
    for settings in reversed(nearest_first):
        aliases.update((alias.lower(), model) for alias, model in settings.models.aliases.items())
        for name, known in phrases.items():
            known.extend(getattr(settings.text, name))
    routes = [route for settings in nearest_first for route in settings.models.routes]
    return PhraseTables(
        aliases=aliases,
        routes=(*routes, *SHIPPED.routes),
        default_model=next((s.models.default for s in nearest_first if s.models.default), SHIPPED.default_model),
        **{name: tuple(known) for name, known in phrases.items()},
    )


def project_file(directory: str) -> str:
    """The nearest `deputy.toml` up to the root of the repository; outside of one, only in the directory itself."""
    folders = [directory + "/.." * depth for depth in range(_DEEPEST_FOLDER)]
    root = next((depth for depth, folder in enumerate(folders) if os.access(f"{folder}/.git", os.F_OK)), 0)
    paths = [f"{folder}/deputy.toml".removeprefix("./") for folder in folders[: root + 1]]
    return next((path for path in paths if os.access(path, os.F_OK)), paths[0])
