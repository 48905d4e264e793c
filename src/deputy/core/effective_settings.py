"""Effective settings: the shipped defaults, overridden by the user, narrowed by the project."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct, structs

from deputy.core.errors import UsageError
from deputy.core.guard import Policy
from deputy.core.limits import IDLE_SECONDS, MOST_SECONDS, OTHER, OTHER_WALL_LIMIT, WALL_LIMITS, WallLimit, WallSetting

ApprovalPolicy: TypeAlias = Literal["allow", "ask", "refuse"]
_FROM_LOOSE_TO_STRICT: tuple[ApprovalPolicy, ...] = ("allow", "ask", "refuse")

UNLIMITED = WallLimit(MOST_SECONDS, MOST_SECONDS)
"""The limit of a Delegate task and of a parent agent when no limit is configured."""


class ProjectSettings(Struct, frozen=True, kw_only=True):
    """The settings of one file; None means not set."""

    approval: ApprovalPolicy | None = None
    tasks: int | None = None
    concurrency: int | None = None
    max_depth: int | None = None
    max_spawns: int | None = None
    repairs: int | None = None
    idle_seconds: float | None = None
    fallback: bool | None = None
    inline: bool | None = None
    tool_seconds: Mapping[str, float] = {}
    wall: Mapping[str, WallSetting] = {}


class EffectiveSettings(Struct, frozen=True, kw_only=True):
    """The settings that apply unless a flag or an argument overrides them."""

    model: str | None = None
    approval: ApprovalPolicy = "ask"
    tasks: int = 64
    """How many tasks a call of a person may have."""
    concurrency: int = 8
    """How many tasks of such a call, or of a program's, run at once."""
    max_depth: int = Policy().max_depth
    max_spawns: int = Policy().max_spawns
    repairs: int = Policy().repairs
    idle_seconds: float = IDLE_SECONDS
    fallback: bool = True
    inline: bool = True
    """Whether a task that no backend can execute is done inline."""
    tool_seconds: Mapping[str, float] = {}
    wall: Mapping[str, WallLimit] = {}
    """The limits that differ from the shipped ones, by command."""
    notify: tuple[str, ...] = ()
    """The user's program that is run when something waits for a person; a project cannot name one."""

    def limit(self, command: str) -> WallLimit | None:
        """The time limit of this command; None if it has none."""
        if command in self.wall:
            return self.wall[command]
        if command in ("delegate", "run", "ask"):
            return None
        return WALL_LIMITS.get(command) or self.wall.get(OTHER, OTHER_WALL_LIMIT)

    def seconds(self, command: str, asked: float | None) -> float | None:
        """The timeout of one delegation of this command; more than the maximum is an error."""
        limit = self.limit(command)
        if asked is None:
            return None if limit is None else limit.default_seconds
        if limit is None or 0 < asked <= limit.max_seconds:
            return asked
        most = f"{limit.max_seconds:g}"
        raise UsageError("timeout", asked, f"{command} takes more than 0 and at most {most} seconds (see [limits])")


def effective_settings(
    user: ProjectSettings, project: ProjectSettings, *, model: str | None = None, notify: tuple[str, ...] = ()
) -> EffectiveSettings:
    """The user's settings over the shipped ones; a project's settings apply only where they are stricter."""
    shipped = EffectiveSettings(model=model, notify=notify)
    own = structs.replace(
        shipped,
        **{name: value for name in _ALONE if (value := getattr(user, name)) is not None},
        tool_seconds=user.tool_seconds,
        wall={name: _wall(shipped.limit(name), said) for name, said in user.wall.items()},
    )
    stricter = {name: _stricter(getattr(own, name), getattr(project, name)) for name in _ALONE}
    tools = (*own.tool_seconds, *project.tool_seconds)
    walls = {**own.wall, **dict.fromkeys(project.wall)}
    return structs.replace(
        own,
        **stricter,
        tool_seconds={tool: _stricter(own.tool_seconds.get(tool), project.tool_seconds.get(tool)) for tool in tools},
        wall={name: _narrowed(own.limit(name), project.wall.get(name)) for name in walls},
    )


_ALONE = (
    "approval",
    "tasks",
    "concurrency",
    "max_depth",
    "max_spawns",
    "repairs",
    "idle_seconds",
    "fallback",
    "inline",
)


def _stricter(own: Any, other: Any) -> Any:
    """The stricter of two values: the smaller number, False, or the stricter approval policy; None is not set."""
    if own is None or other is None:
        return own if other is None else other
    return max(own, other, key=_FROM_LOOSE_TO_STRICT.index) if isinstance(own, str) else min(own, other)


def _wall(shipped: WallLimit | None, said: WallSetting) -> WallLimit:
    """The user's limit: a default above the maximum raises the maximum, a lower maximum lowers the default."""
    limit = shipped or UNLIMITED
    most = said.max or max(limit.max_seconds, said.default or 0)
    return WallLimit(min(said.default or limit.default_seconds, most), most)


def _narrowed(limit: WallLimit | None, said: WallSetting | None) -> WallLimit:
    own = limit or UNLIMITED
    if said is None:
        return own
    most = min(own.max_seconds, said.max or own.max_seconds)
    return WallLimit(min(own.default_seconds, said.default or own.default_seconds, most), most)
