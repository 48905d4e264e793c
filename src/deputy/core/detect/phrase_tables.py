"""Phrases, aliases and routing words, as data; the user's config extends them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words, and the model for a task that contains one of them."""

    words: tuple[str, ...]
    model: str


class PhraseTables(Struct, frozen=True, kw_only=True):
    """Aliases, routing words and phrases. Phrases are in the notation of `phrases.py`."""

    aliases: Mapping[str, str]
    """Aliases of models, in lower case."""
    routes: tuple[Route, ...]
    """Searched in this order when no model is named; the first match wins."""
    default_model: str
    triggers: tuple[str, ...]
    """The start of a line that asks for a subagent …"""
    purposes: tuple[str, ...]
    """… and the purpose that the line names."""
    degradations: tuple[str, ...]
    """The title of the section for the case without a subagent …"""
    conditions: tuple[str, ...]
    """… or the condition that starts such an instruction."""
    delegations: tuple[str, ...]
    """Phrases by which a person delegates."""


SHIPPED = PhraseTables(
    aliases={
        "fast": "composer-1",
        "review": "gemini-3-pro",
        "analysis": "gpt-5.2",
        "reasoning": "opus-4.6-thinking",
        "planning": "opus-4.6-thinking",
        "sonnet": "sonnet-4.5",
        "sonnet-thinking": "sonnet-4.5-thinking",
        "opus": "opus-4.6-thinking",
        "haiku": "haiku-4.5",
        "gemini-3.0-pro": "gemini-3-pro",
    },
    routes=(
        Route(words=("code-review", "code-audit", "security"), model="gemini-3-pro"),
        Route(words=("analyze", "examine", "evaluate", "assess", "investigate"), model="gpt-5.2"),
        Route(words=("architecture", "design", "implement", "debug", "troubleshoot"), model="opus-4.6-thinking"),
    ),
    default_model="composer-1",
    triggers=(
        "try to use [the] task tool",
        "essayer|essayez|essaie|tenter|tentez d'utiliser l'outil task",
    ),
    purposes=(
        "to spawn|launch|start|run [a|an|the|one] [new|isolated|separate] sub-process|sub-agent",
        "with|via|using|through [a|an|the|one] [new|isolated|separate] sub-process|sub-agent",
        "pour lancer|créer|démarrer|exécuter [un|le] [nouveau] sous-processus|sous-agent",
        "avec|via [un|le] [nouveau] sous-processus|sous-agent",
    ),
    degradations=(
        "graceful degradation",
        "dégradation gracieuse|élégante|progressive",
    ),
    conditions=(
        "if no task tool [is] [available]",
        "if [the] task tool [is] unavailable|missing",
        "if [the] task tool [is] not available",
        "si pas d'outil task [disponible]",
        "si l'outil task [est] indisponible|absent",
        "si l'outil task n'est pas disponible",
    ),
    delegations=(
        "spawn [a|an|the|one|another] [new|fresh|isolated|separate] sub-process|sub-processes|sub-agent|sub-agents",
        "use [a|an|the|one|another] [new|fresh|isolated|separate] sub-agent|sub-agents",
        "delegate [this|it|that] [task|work] to [a|an|the|another] [new|fresh|isolated|separate] sub-process|sub-agent",
        "delegate [a|the|this|that] task",
        "delegate this|to",
        "run|execute [this|it|that] in isolation",
        "run|execute [this|it|that] in [a|an|the|another] [new|fresh|isolated|separate] sub-process|sub-agent",
        "isolated execution",
    ),
)
