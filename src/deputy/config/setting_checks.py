"""Checks of settings beyond their types, and explanations of errors in a file."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Annotated, Any, cast

from msgspec import Meta, ValidationError, convert

from deputy.config.settings import (
    AgentSettings,
    ApprovalSettings,
    CommandSettings,
    FallbackSettings,
    JournalSettings,
    LimitSettings,
    McpSettings,
    ModelSettings,
    NotifySettings,
    RoutingSettings,
    RunToolSettings,
    Settings,
    StoreSettings,
    SubtaskSettings,
    TextSettings,
    ToolSettings,
    UserSettings,
    WorkspaceSettings,
)
from deputy.core.detect.phrase_tables import SHIPPED, Route, is_phrase
from deputy.core.errors import Unquoted, UsageError
from deputy.core.fallback import ONLY_A_PERSON, is_script
from deputy.core.limits import OTHER, WALL_LIMITS, WallSetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

USER_FILE = "~/.config/deputy/config.toml"
_COMMANDS = (*WALL_LIMITS, "delegate", "run", "ask", OTHER)
"""Commands that have a time limit."""
_ROUTED = ("research", "plan", "implement", "revise", "review", "meta", "errors")


def check(path: str, settings: Settings) -> None:
    """Refuse blank names, unknown commands, invalid limits and invalid phrases."""
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
    """Refuse unknown commands, and defaults above their maximum."""
    where = f"{path}: limits.commands.{name}"
    if name not in _COMMANDS:
        raise UsageError(where, name, f"unknown command; {suggestion(name, _COMMANDS)}")
    if said.default is not None and said.max is not None and said.default > said.max:
        raise UsageError(f"{where}.default", said.default, f"must be at most the max of {said.max:g}")


def _check_agents(path: str, name: str, said: CommandSettings) -> None:
    """Refuse commands without an agent, and blank names."""
    where = f"{path}: commands.{name}"
    if name not in _ROUTED:
        raise UsageError(
            where, name, f"this command has no agent; the commands with an agent are: {', '.join(_ROUTED)}"
        )
    for language, agent in said.agents.items():
        if not language.strip() or not agent.strip():
            raise UsageError(f"{where}.agents, {language!r}", agent, "give the name of an agent")


_TABLES = {
    "": UserSettings,
    "agents": AgentSettings,
    "approval": ApprovalSettings,
    "commands.*": CommandSettings,
    "journal": JournalSettings,
    "fallback": FallbackSettings,
    "limits": LimitSettings,
    "limits.commands.*": WallSetting,
    "mcp": McpSettings,
    "models": ModelSettings,
    "models.routes": Route,
    "notify": NotifySettings,
    "routing": RoutingSettings,
    "store": StoreSettings,
    "subtasks": SubtaskSettings,
    "text": TextSettings,
    "tools": ToolSettings,
    "tools.run": RunToolSettings,
    "workspace": WorkspaceSettings,
}
_MEANT = {"model": ("default", "models")}
"""What people write for another key, and the table of that key."""
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
    "fallback.chains.*": "a list of models",
    "fallback.programs.*": "a list of programs",
    "limits.commands.*": "a table with default and max in seconds",
    "limits.commands.*.default": "a number of seconds from 1 to 2592000",
    "limits.commands.*.max": "a number of seconds from 1 to 2592000",
    "limits.concurrency": "a whole number from 1 to 100",
    "limits.idle_seconds": "a number from 1 to 86400",
    "limits.max_depth": "a whole number from 0 to 10",
    "limits.max_spawns": "a whole number from 0 to 100000",
    "limits.repairs": "a whole number from 0 to 2",
    "limits.tasks": "a whole number from 1 to 1000",
    "limits.tools.*": "a number of seconds from 1 to 86400",
    "notify.command": "a list with a program and its arguments",
    "workspace.cache_bytes": "a whole number of bytes",
    "workspace.max_bytes": "a whole number of bytes from 1 to 10000000000",
    "workspace.mode": '"git" or "shared"',
    "tools.run.sandbox": '"bwrap", or be removed',
}
"""Valid values where the type alone is not enough; `*` is any name."""
_VALUES: dict[str, Any] = {
    "commands.*": CommandSettings,
    "commands.*.agents.*": str,
    "fallback.chains.*": tuple[str, ...],
    "fallback.programs.*": tuple[str, ...],
    "limits.commands.*": WallSetting,
    "limits.tools.*": Annotated[float, Meta(ge=1, le=86_400)],
    "models.aliases.*": str,
}
"""The type of the values in tables with free keys."""


def explained(path: str, said: Any, message: str, kind: type[Settings]) -> UsageError:
    """A UsageError for a validation error of msgspec."""
    problem, _, place = message.partition(" - at `$")
    keys: list[str] = []
    pattern: list[str] = []
    for step in place.rstrip("`").replace("[...]", ".*").replace("[", ".").replace("]", "").split(".")[1:]:
        # msgspec does not name the key in a table with free keys; find it.
        key = _wrong_key(said, ".".join([*pattern, "*"])) if step == "*" else step
        keys.append(key)
        pattern += ["*"] if step == "*" else [] if key.isdigit() else [key]
        said = said[int(key) if isinstance(said, list) else key]
    where = f"{path}: {'.'.join(keys)}"
    if " field `" not in problem:
        subject = problem.split("`")[1].removesuffix(" | null") if "`" in problem else "str"
        return UsageError(where, said, f"must be {_RIGHT.get('.'.join(pattern)) or _KINDS.get(subject, subject)}")
    subject = problem.partition("`")[2].removesuffix("`")
    if problem.startswith("Object missing"):
        return UsageError(where, said, f"the key {subject!r} is missing")
    where, found = f"{path}: {'.'.join([*keys, subject])}", kind_of(said[subject])
    if not pattern and subject in UserSettings.__struct_fields__:
        return UsageError(where, found, f"[{subject}] is allowed only in your own config file, {USER_FILE}")
    known = (_TABLES[".".join(pattern)] if pattern else kind).__struct_fields__
    meant, elsewhere = _elsewhere(subject, kind.__struct_fields__)
    if elsewhere and subject not in known:
        return UsageError(where, found, f"unknown key here; did you mean {meant!r} of [{elsewhere}]?")
    return UsageError(where, found, f"unknown key; {suggestion(subject, known)}")


def _elsewhere(key: str, allowed: Sequence[str]) -> tuple[str, str]:
    """The key that is probably meant, and the table that has it, if there is one."""
    if key in _MEANT:
        return _MEANT[key]
    tables = [name for name, kind in _TABLES.items() if name.split(".")[0] in allowed and key in kind.__struct_fields__]
    # A table of its own before those of single commands and routes.
    return key, min(tables, key=lambda name: name.count("."), default="")


def explained_entry(
    where: str, said: Mapping[str, Any], message: str, known: Mapping[str, Sequence[str]]
) -> UsageError:
    """The same in a table with a free name, like `[providers.mine]`; `known` has its keys and those of its tables."""
    problem, _, place = message.partition(" - at `$")
    steps = place.rstrip("`").replace("[...]", ".*").removeprefix(".")
    where = f"{where}.{steps}" if steps else where
    if problem.startswith("Object contains"):
        key = problem.partition("`")[2].removesuffix("`")
        found = kind_of(said.get(key) if not steps else None)
        return UsageError(f"{where}.{key}", found, f"unknown key; {suggestion(key, known.get(steps, ()))}")
    if problem.startswith("Invalid enum value"):
        return UsageError(where, Unquoted("another value"), f"must be one of {', '.join(known.get(steps, ()))}")
    wanted, _, bound = problem.partition("`")[2].partition("`")
    wanted = wanted.removesuffix(" | null")
    right = f"{_KINDS.get(wanted, wanted)}{'' if bound.startswith(',') else bound}"
    return UsageError(where, kind_of(said.get(steps)), f"must be {right}")


def suggestion(name: str, known: Sequence[str]) -> str:
    """The known name that is nearest to a wrong one, if one is near, and all of them."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}the {'commands' if known is _COMMANDS else 'keys'} are: {', '.join(known)}"


def kind_of(value: object) -> Unquoted:
    """The type of a value, in words; the value of an unknown key may be a secret."""
    return Unquoted(_KINDS.get(_NAMES.get(type(value), ""), "a value"))


def _wrong_key(table: dict[str, Any], pattern: str) -> str:
    wanted = _VALUES[pattern]
    for key, value in table.items():
        try:
            convert(value, wanted)
        except ValidationError:
            return key
    return next(iter(table))


def line_of(content: bytes, problem: str) -> str:
    """The line with a TOML error, without its value, which may be a secret."""
    number = problem.partition("(at line ")[2].partition(",")[0]
    lines = content.decode(errors="replace").split("\n")
    line = lines[int(number) - 1] if number.isdigit() and int(number) <= len(lines) else lines[0]
    key, equals, value = line.partition("=")
    return f"{key}{equals} …" if value.strip() else line


def check_project_aliases(path: str, project: Settings, user: UserSettings) -> None:
    """Refuse an alias of a project that redefines a shipped name or a name of the user."""
    if not project.models.aliases:
        return
    taken = {_folded(name): meaning for name, meaning in _known_names(user)}
    for alias, model in project.models.aliases.items():
        where = f"{path}: models.aliases.{alias}"
        if ":" in alias:
            raise UsageError(where, model, "a name with a colon is a provider's model; choose another name")
        meaning = taken.get(_folded(alias), model)
        if meaning != model:
            means = f"means {meaning!r}" if meaning else "is already a known name"
            raise UsageError(where, model, f"{alias!r} {means}, and a project cannot change that; choose another name")


def _known_names(user: UserSettings) -> Iterator[tuple[str, str]]:
    """Every known name with its model; a later pair overrides an earlier one."""
    shipped = _shipped_catalog()
    for providers in (shipped["providers"], user.providers):
        for provider, entry in providers.items():
            yield provider, ""
            yield from ((model, "") for model in _table(_table(entry).get("models")))
    routed = (*SHIPPED.routes, *user.models.routes)
    mentioned = [SHIPPED.default_model, user.models.default or "", *(route.model for route in routed)]
    mentioned += [name for names in user.fallback.chains.values() for name in names]
    aliases = {**SHIPPED.aliases, **user.models.aliases}
    # The target of another name is known too: redefining it would change that name.
    yield from ((name, "") for name in (*mentioned, *user.fallback.chains, *aliases.values()) if name)
    for name, target in shipped["names"].items():
        yield target["model"], ""
        yield name, target["model"] if set(target) == {"model"} else ""
    yield from aliases.items()


def _shipped_catalog() -> Mapping[str, Any]:
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("deputy.models").joinpath("catalog.toml").read_text())


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().strip()
