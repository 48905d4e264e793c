"""Phrases, aliases and routing words as data, which the user's config extends; and the notation of phrases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from itertools import takewhile

from msgspec import Struct

from deputy.core.detect.folded_text import fold


class Route(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words, and the model for a task that contains one of them."""

    words: tuple[str, ...]
    model: str


class PhraseTables(Struct, frozen=True, kw_only=True):
    """Aliases, routing words and phrases. Phrases are in the notation of `any_of`."""

    aliases: Mapping[str, str]
    """Aliases of models, in lower case; the catalog has the shipped ones too."""
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
        "sonnet": "sonnet-5.5",
        "sonnet-thinking": "sonnet-5.5-thinking",
        "opus": "opus-5.5",
        "haiku": "haiku-5.5",
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


# A phrase may continue on the next line, quoted there, and in bold or code.
GAP = r"[*_`]*+ *+\n?(?<=\s)[ >*_`]*+"


def words(table: str) -> frozenset[str]:
    """A set of words, written as one text."""
    return frozenset(table.split())


@cache
def any_of(phrases: tuple[str, ...]) -> str:
    """The source of one pattern that matches any of these phrases in a folded text, as whole words."""
    rests: dict[str, list[str]] = {}
    for phrase in phrases:
        first, *others = fold(phrase).split()
        for word in first.split("|"):
            rests.setdefault(_choice(word), []).append("".join(map(_further, others)))
    sources = (f"{_at_word(first)}(?:{'|'.join(rest)})" for first, rest in rests.items())
    return rf"(?:{'|'.join(sources)})(?!\w)" if rests else r"(?!)"


def is_phrase(phrase: str) -> bool:
    """Whether a phrase follows the notation: the first word is not optional, and brackets have one word or a choice."""
    first, *others = phrase.split() or [""]
    return _is_word(first) and all(_is_word(word[1:-1] if word[0] + word[-1] == "[]" else word) for word in others)


def _is_word(word: str) -> bool:
    return all(word.split("|")) and "[" not in word and "]" not in word


def _at_word(source: str) -> str:
    # The look-behind is after the first letters, so that the regex engine can skip to them.
    letters = "".join(takewhile(str.isalnum, source[:3]))
    return rf"{letters}(?<!\w{letters}){source[len(letters) :]}"


def _further(word: str) -> str:
    return f"(?:{GAP}{_choice(word[1:-1])})?+" if word.startswith("[") else GAP + _choice(word)


def _choice(word: str) -> str:
    # A hyphen matches nothing or a space too: sub-agent, subagent, sub agent.
    choices = [re.escape(one).replace(r"\-", r"[-\s]?") for one in word.split("|")]
    return choices[0] if len(choices) == 1 else f"(?:{'|'.join(choices)})"
