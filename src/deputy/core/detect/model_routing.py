"""Choose the model of a request: the one it names ("using opus"), or the one its words suggest."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.detect.folded_text import fold, pattern
from deputy.core.detect.phrase_tables import GAP, any_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.detect.folded_text import FoldedText
    from deputy.core.detect.found_request import ModelSource
    from deputy.core.detect.phrase_tables import PhraseTables

_PLACEHOLDER = r"[{}<>$…]|\.\.\.|^%|^\W*$"
_LONGEST_NAME = 200


def named_value(said: str | None) -> str | None:
    """The name of a model, agent or tool in a text, unless it is blank or a placeholder."""
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


_FAMILIES = (
    r"(?:anthropic|openai|openai-chat|google|ollama|openrouter):\w++(?:[./:-]\w++)*+",
    r"claude(?:[.-]\w++)++",
    r"(?:opus|sonnet|haiku|gemini|grok|llama|qwen|deepseek|mistral|kimi)\d*+(?:[.-]\w++)*+",
    r"gpt-?\d\w*+(?:[.-]\w++)*+",
    r"composer-\d++",
    r"o[134](?:-mini)?",
)


class ModelMention(Struct, frozen=True, gc=False):
    """The name of a model, and the span of the words that mention it."""

    name: str
    span: tuple[int, int]


def find_mention(
    page: FoldedText, start: int, end: int, phrase_end: int, aliases: Iterable[str]
) -> ModelMention | None:
    """The model named between start and end; of several bare names only the one right after the phrase counts."""
    said, bare, any_name = _sources(tuple(aliases))
    found = None
    if page.folded.find("model", start, end) >= 0:
        found = pattern(said).search(page.folded, start, end)
    names = {one[0] for one in pattern(any_name).finditer(page.folded, start, end)}
    if found is None and names:
        found = pattern(bare).search(page.folded, start, end)
        if found and len(names) > 1 and not found.start() <= phrase_end + 2 <= found.end():
            return None
    if found is None or (name := named_value(page.text[slice(*found.span(found.lastindex or 0))])) is None:
        return None
    return ModelMention(name, found.span())


@cache
def _sources(aliases: tuple[str, ...]) -> tuple[str, str, str]:
    """Patterns for a name with the word "model", for a bare name after a preposition, and for bare names."""
    # An alias that is an ordinary word, like "fast", counts only with the word "model".
    telling = [re.escape(alias) for alias in aliases if not alias.isalpha()]
    name = rf"(?<!\w)(?:{'|'.join([*sorted(telling, key=len, reverse=True), *_FAMILIES])})(?![\w-])"
    alias = "|".join(map(re.escape, sorted(aliases, key=len, reverse=True))) or "(?!)"
    with_ = rf"(?<!\w)(?:using|with|via|on|by|through|use){GAP}(?:the{GAP})?"
    said = (
        rf"[(\[] *(?:use *)?model *[:=]? *([^()\[\]\n]{{1,80}}?) *[)\]]"
        rf"|(?:{with_})?(?<!\w)model *[:=] *[`'\"]?(\w++(?:[./:-]\w++)*+)[`'\"]?"
        rf"|{with_}({alias}|{name}){GAP}model(?!\w)"
        rf"|{with_}model{GAP}[`'\"]?(\w++(?:[./:-]\w++)++|{alias}|{name})[`'\"]?"
    )
    bare = rf"[(\[]({name})[)\]]|(?<!\w)(?:using|with|via|on|by|through|to){GAP}(?:the{GAP}|claude{GAP})?({name})"
    return said, bare, name
