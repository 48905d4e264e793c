"""Infer context and output format from the words of a task."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from deputy.core.detect.folded_text import LIST_MARK, FoldedText, fences, fold, passage, pattern, reach
from deputy.core.detect.phrase_tables import any_of, words

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

LIMIT_ITEMS = 100
MORE = "… (more left out)"

_CANDIDATES = 200
_SOURCES_READ = 50
_JUDGED = 20_000
_VARIABLE = r"\$?\{{1,2}+ ?[A-Za-z_][\w.-]{0,80}+ ?\}{1,2}+"
_PATHLIKE = (
    r"[A-Za-z]:\\[\w.\\-]{1,200}+"
    r"|(?<![\w.~@{}$/\\:-])(?:[\w.~@{}$-]{0,80}+/[\w.~*@+%{}$/-]{0,200}+|[\w-]{1,80}+(?:\.[\w-]{1,20}+)++)"
)
_SOURCE = any_of(("using|with|from", "en utilisant", "avec|depuis")) + r"(?: ++| *+\n *+)"
_END_OF_SOURCE = (
    r"[.,;:!?)\]](?=\s|$)|[;,(\[\"«»“”]|\n\s*+\n|\n *+(?:[-*+•]|\d{1,3}[.)]) "
    r"|(?<=\s)(?:and|or|to|then|but|so|using|with|from|into|as|et|ou|puis|pour|avec|depuis)(?=\s)"
)
_LONGEST_SOURCE = 120
_NOT_SOURCES = words("it this that them these those you me us scratch each a the")
_ROOTS = words(
    "src lib test tests spec specs docs doc app apps packages pkg cmd internal config conf scripts bin data examples "
    "bench public assets core server client api tools templates migrations include vendor modules components services"
)
_SYSTEM_ROOTS = words("tmp etc var usr home opt srv mnt root")
_SUFFIXES = words(
    "py pyi ipynb md mdx rst txt json jsonl yaml yml toml ini cfg conf env xml html css scss less "
    "js jsx ts tsx mjs cjs vue svelte go rs java kt kts c h cc cpp hpp cs fs rb php swift scala lua r jl "
    "ex exs erl hs ml pl sh bash zsh fish ps1 sql csv tsv parquet log lock pdf docx xlsx png jpg svg "
    "proto graphql tf diff patch"
)
_PRODUCTS = words("node.js next.js nuxt.js vue.js react.js express.js three.js d3.js ember.js backbone.js")


def infer_context(task: str, given: tuple[str, ...]) -> tuple[str, ...]:
    """The given context and what the task refers to; a marker at the end when it was cut."""
    known = "\n".join(given)[:_JUDGED]
    items = dict.fromkeys(given)
    items.update((found, None) for found in (*_variables(task), *_paths(task), *_sources(task)) if found not in known)
    collected = tuple(items)
    return collected if len(collected) <= LIMIT_ITEMS else (*collected[:LIMIT_ITEMS], MORE)


def _variables(task: str) -> Iterator[str]:
    return (found[0] for found in islice(pattern(_VARIABLE).finditer(task), _CANDIDATES))


def _paths(task: str) -> Iterator[str]:
    candidates = (word for word in task.split() if "/" in word or "." in word or "\\" in word)
    tokens = (found[0].rstrip(".,:-") for word in candidates for found in pattern(_PATHLIKE).finditer(word))
    return filter(_is_path, islice(tokens, _CANDIDATES))


def _is_path(token: str) -> bool:
    if token[1:3] == ":\\":
        return True
    first, *others = token.split("/")
    suffix = token.rpartition(".")[2].lower() if "." in token.rpartition("/")[2] else ""
    if not others:
        return suffix in _SUFFIXES and token.lower() not in _PRODUCTS
    if not first:  # a lone /word is a command, and // is the rest of a URL
        return others[0] != "" and (len(others) > 1 or suffix in _SUFFIXES or others[0] in _SYSTEM_ROOTS)
    if first in {".", "..", "~"}:
        return others[0] != ""
    if first[0] == "$" or first[0] + first[-1] == "{}":
        return others[0][:1].isalpha() or others[0][:1] in {"_", "."}
    return suffix in _SUFFIXES or first in _ROOTS or first.startswith(".") or token.endswith("/") or "*" in token


def _sources(task: str) -> Iterator[str]:
    folded = fold(task)
    for found in islice(pattern(_SOURCE).finditer(folded), _SOURCES_READ):
        start, end = found.end(), found.end() + _LONGEST_SOURCE
        stop = pattern(_END_OF_SOURCE).search(folded, start, end)
        source = " ".join(task[start : stop.start() if stop else end].split()).strip("*_`'\"")
        if source and source.lower() not in _NOT_SOURCES:
            yield source


_FORMATS_READ = 50
_FORMATS = {"json": "JSON", "markdown": "Markdown", "yaml": "YAML", "csv": "CSV", "html": "HTML", "xml": "XML"}
_WANTED = any_of(
    (
        "expected|desired|required|return|output|response|report format|structure|output",
        "format|structure de retour|sortie",
        "format|structure|return|output",
        "retourner|retournez|renvoyer|renvoyez",
        f"as [a|an] [valid|plain] {'|'.join(_FORMATS)}",
    )
)
_COLON = r"[ *_]*+:[ *_]*+"
_NOT_AN_ORDER = r"\s++(?:to|is|are|was|of|from|and|or|value|values|type|code|statement)(?!\w)| *+[=(]"
_ORDERS = ("return", "output", "retourne", "renvoye")
_START_OF_LINE = rf"(?:\A|\n)[ >]*+{LIST_MARK}?[*_]*+\Z"
_MID_SENTENCE = r"(?:[.!?:;]|\b(?:and|then|please|et))[ \n]\Z"
_END_OF_SENTENCE = rf"[.!?](?=[\s\"')]|$)|\n *+(?=\n)|\n(?= *+{LIST_MARK})"


def infer_output(task: str) -> str | None:
    """What the task says about the format of its result, one line per mention; None if it says nothing."""
    page = FoldedText(task)
    fenced = fences(page)
    wanted: dict[str, None] = {}
    done = 0
    for found in islice(pattern(_WANTED).finditer(page.folded), _FORMATS_READ):
        if found.start() < done or fenced.around(found.start()):
            continue
        if found[0].startswith("as"):
            wanted[_FORMATS[found[0].split()[-1]]] = None
        elif span := _span(page, found):
            wanted[passage(page, *span).removesuffix(".").removesuffix("**")] = None
            done = span[1]
    return "\n".join(filter(None, wanted)) or None


def _span(page: FoldedText, found: re.Match[str]) -> tuple[int, int] | None:
    """The span of the format: after a label like "Format:", or after an order like "Return"."""
    folded, end = page.folded, found.end()
    before = folded[max(0, found.start() - 60) : found.start()]
    is_start = pattern(_START_OF_LINE).search(before)
    is_clause = pattern(_MID_SENTENCE).search(before)
    if not is_start and not is_clause:
        return None
    if label := pattern(_COLON).match(folded, end):
        return label.end(), _end_of_label(page, label.end())
    if not found[0].startswith(_ORDERS) or " " in found[0] or pattern(_NOT_AN_ORDER).match(folded, end):
        return None
    return end, _end_of_clause(page, end)


def _end_of_label(page: FoldedText, start: int) -> int:
    """The end of the line, or of the next paragraph when the label is alone on its line."""
    line_end = page.folded.find("\n", start)
    if line_end < 0:
        return len(page.folded)
    if page.folded[start:line_end].strip():
        return line_end
    blank = pattern(r"(?: *+\n)*+").match(page.folded, start)
    return reach(page, blank.end() if blank else start, len(page.folded))


def _end_of_clause(page: FoldedText, start: int) -> int:
    found = pattern(_END_OF_SENTENCE).search(page.folded, start)
    stop = found.start() if found else len(page.folded)
    if page.folded[start:stop].rstrip(" *_").endswith(":"):
        return reach(page, start, len(page.folded))
    return stop
