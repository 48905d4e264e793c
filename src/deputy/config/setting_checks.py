"""Checks of settings beyond their types."""

from __future__ import annotations

from deputy.config.settings import CommandSettings, Settings, TextSettings, UserSettings
from deputy.core.detect.phrases import is_phrase
from deputy.core.errors import UsageError
from deputy.core.fallback import ONLY_A_PERSON, is_script
from deputy.core.limits import OTHER, WALL_LIMITS, WallSetting

_COMMANDS = (*WALL_LIMITS, "delegate", "run", OTHER)
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
        raise UsageError(where, name, f"unknown command; the commands are: {', '.join(_COMMANDS)}")
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
