"""Choose the model of a request: the one it names, or the one its words suggest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.detect.folded_text import fold, pattern
from deputy.core.detect.phrases import any_of

if TYPE_CHECKING:
    from deputy.core.detect.found_request import ModelSource
    from deputy.core.detect.phrase_tables import PhraseTables

_PLACEHOLDER = r"[{}<>$…]|\.\.\.|^%|^\W*$"
_LONGEST_NAME = 200


def named_model(said: str | None) -> str | None:
    """The name of a model in a text, unless it is blank or a placeholder."""
    name = " ".join((said or "").split()).strip("\"'`*“”")
    return None if not name or len(name) > _LONGEST_NAME or pattern(_PLACEHOLDER).search(name) else name


def resolve(name: str, tables: PhraseTables) -> str:
    """The model of an alias; an unknown name is returned unchanged."""
    return tables.aliases.get(name.lower(), name)


def route(said: str | None, task: str, tables: PhraseTables) -> tuple[str, ModelSource]:
    """The model for a task, and its source: the text, a routing word, or the default."""
    if said is not None:
        return resolve(said, tables), "explicit"
    folded = fold(task)
    for rule in tables.routes:
        if pattern(any_of(rule.words)).search(folded):
            return resolve(rule.model, tables), "heuristic"
    return resolve(tables.default_model, tables), "default"
