"""Infer the output format from the words of a task."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from deputy.core.detect.excerpt import passage, reach
from deputy.core.detect.folded_text import LIST_MARK, FoldedText, fences, pattern
from deputy.core.detect.phrases import any_of

if TYPE_CHECKING:
    import re

_CANDIDATES = 50
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
    for found in islice(pattern(_WANTED).finditer(page.folded), _CANDIDATES):
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
