"""The tables that finding and routing requests goes by; they are data, and a user's config extends them."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words of a task, and the model that a task with any of them goes to."""

    words: tuple[str, ...]
    model: str


class PhraseTables(Struct, frozen=True, kw_only=True):
    """What names, words and phrases stand for. Phrases are in the notation of `phrases.py`."""

    aliases: Mapping[str, str]
    """Names people use for models, in lower case."""
    routes: tuple[Route, ...]
    """Looked through in this order when no model is named; the first hit wins."""
    default_model: str
    triggers: tuple[str, ...]
    """How a line of prose begins that asks for a subagent …"""
    purposes: tuple[str, ...]
    """… and what it says the tool is to be used for."""
    degradations: tuple[str, ...]
    """The name of the section that says what to do without a subagent …"""
    conditions: tuple[str, ...]
    """… or the condition that such an instruction begins with."""
    delegations: tuple[str, ...]
    """What a person says to hand work over."""


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
