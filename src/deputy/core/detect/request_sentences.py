"""Find sentences that ask for delegation, and skip those that are only about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deputy.core.detect.folded_text import LIST_MARK, comments, fences, pattern
from deputy.core.detect.phrases import GAP, any_of, words

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from deputy.core.detect.folded_text import FoldedText, TextZones
    from deputy.core.detect.phrase_tables import PhraseTables

_LONGEST_HEAD = 600
_LONGEST_TAIL = 2000
_FURTHER_PHRASES = 2

BLOCK = rf"(?=\n[ >]*+(?:\n|{LIST_MARK}|#{{1,6}} |\||```|~~~))"
_FULL_STOP = r"[.!?…][\"')\]”»*_]*+"
_BOUNDARY = rf"{_FULL_STOP}(?=\s)|:[*_]*+ *+(?=\n)|{BLOCK}"
_END = rf"{_FULL_STOP}(?=\s|\Z)|{BLOCK}"
_LEAD = rf"[ \n>]*+(?P<mark>{LIST_MARK})?+(?:\[[ x]\] )?+[*_]*+"
_FRONT_MATTER = r"(?s)---\n.*?\n---(?=\n)"
_MAY_START = frozenset(("", *".!?…:\n\"')]”»-*+•"))

_PLEASE = r"\b(?:please|kindly)\b"
_YOU = r"\b(?:(?:can|could)\s++you|(?:would|will)\s++you\s++(?:please|kindly))\b"
_WISH = r"\bi(?:'d|\s++would|\s++really)?\s++(?:(?:want|need|like)\s++(?:you\s++)?to|want|need)\b"
_EASING = r"\b(?:try\s++to|go\s++ahead\s++and)\b"
_FORM = rf"(?:{_PLEASE}|(?P<you>{_YOU})|(?P<wish>{_WISH}))(?:[ ,\n]++(?:{_PLEASE}|{_YOU}|{_WISH}|{_EASING}))*+"
_STORY = r"\W*as (?:a|an|the) "
_STATEMENT = (
    rf"{GAP}(?:is|are|was|were|means|can|will|should|may|must|has|have|does|or"
    r"|when|whenever|if|unless|only|instead)(?!\w)"
    r"|[*_`]*+ *+: *+(?:true|false|yes|no|on|off)(?!\w)|(?<=\bto)[*_`]*+ *+:|[\"'”`]"
)
_QUESTIONS = frozenset({"how", "when", "whenever", "why", "what", "which", "where", "who"})
_CONDITIONS = _QUESTIONS | {"if", "unless", "because", "that", "do", "does", "should"}
_TALK = _QUESTIONS | words(
    "not never no cannot without avoid stop refrain instead rather whether able can must "
    "explain describe document discuss clarify tell ask teach understand know learn wonder "
    "consider remember decide"
)
_LINKS = words("and then also just simply maybe perhaps please kindly now first next directly always")


class RequestSentence(NamedTuple):
    """A sentence that asks for delegation, with the spans of its request form and its phrase."""

    start: int
    end: int
    form: tuple[int, int]
    phrase: tuple[int, int]
    is_listed: bool


def sentences_that_ask(page: FoldedText, tables: PhraseTables) -> Iterator[RequestSentence]:
    """The sentences with both a delegation phrase and the form of a request, outside of code, comments and tables."""
    folded, delegations = page.folded, pattern(any_of(tables.delegations))
    apart = (fences(page), comments(page))
    front_matter = pattern(_FRONT_MATTER).match(folded)
    low = front_matter.end() if front_matter else 0
    while phrase := delegations.search(folded, low):
        end = _end_of_sentence(folded, phrase.end())
        asked = _judge(page, low, end, phrase)
        for _ in range(_FURTHER_PHRASES):
            if asked or not (phrase := delegations.search(folded, phrase.end(), end)):
                break
            asked = _judge(page, low, end, phrase)
        if asked and not _is_apart(page, asked.phrase[0], apart):
            yield asked
        low = end


def _end_of_sentence(folded: str, position: int) -> int:
    limit = position + _LONGEST_TAIL
    found = pattern(_END).search(folded, position, limit)
    return found.end() if found else position + len(folded[position:limit].rstrip())


def _is_apart(page: FoldedText, position: int, zones: tuple[TextZones, ...]) -> bool:
    """Whether the position is in code, a comment, a heading, a table row or a quotation: not a request."""
    line = page.start_of_line(position, longest=_LONGEST_HEAD)
    mark = "" if line is None else page.folded[line : line + 20].lstrip()[:1]
    return mark in {"#", "|", ">"} or any(zone.around(position) for zone in zones)


def _judge(page: FoldedText, low: int, end: int, phrase: re.Match[str]) -> RequestSentence | None:
    """The sentence of a phrase, unless it is only about delegation."""
    at, window = phrase.start(), max(low, phrase.start() - _LONGEST_HEAD)
    before = page.folded[window:at].rstrip(" *_>")
    if before[-1:] not in _MAY_START and not pattern(_FORM).search(before):  # most sentences are excluded here, cheaply
        return None
    start, is_listed = _start_of_sentence(page, window, at)
    head = page.folded[start:at]
    if head.count('"') % 2 or head.count("`") % 2 or head.count("“") > head.count("”") or pattern(_STORY).match(head):
        return None
    if form := pattern(_FORM).search(head):
        is_meant = _is_request(head, form, phrase[0])
        span = (start + form.start(), start + form.end())
    else:
        is_meant = not head.strip(" *_") and not is_listed and _is_order(page.folded, phrase, end)
        span = (start, start)
    return RequestSentence(start, end, span, phrase.span(), is_listed) if is_meant else None


def _start_of_sentence(page: FoldedText, window: int, position: int) -> tuple[int, bool]:
    """The start of the sentence at the position, and whether it is a list item."""
    start = window
    for boundary in pattern(_BOUNDARY).finditer(page.folded, window, position):
        if not page.folded[start : boundary.start()].strip(" \n>").isdigit():  # the number of a list item
            start = boundary.end()
    lead = pattern(_LEAD).match(page.folded, start, position)
    start = lead.end() if lead else start
    # Without a full stop, a capital letter at the start of a line starts a sentence.
    if page.text[position].isupper() and page.starts_line(position):
        start = position
    return start, bool(lead and lead["mark"])


def _is_order(folded: str, phrase: re.Match[str], end: int) -> bool:
    """Whether a sentence that starts with the phrase is an order; "Isolated execution is …" is a statement."""
    is_noun = phrase[0].startswith("isolated") and not folded.startswith(":", phrase.end())
    return not is_noun and folded[end - 1] != "?" and not pattern(_STATEMENT).match(folded, phrase.end())


def _is_request(head: str, form: re.Match[str], phrase: str) -> bool:
    """Whether the form applies to the phrase: no question, no "not", no other subject."""
    before, between = words_of(head[: form.start()]), head[form.end() :].rstrip(" *_\n")
    if (form["you"] and before & _QUESTIONS) or (form["wish"] and before & _CONDITIONS):
        return False
    said = words_of(between)
    if said & _TALK or any(word.endswith("n't") for word in said):
        return False
    # "and use a subagent" is a request; "a script to spawn a subprocess" is not.
    is_linked = not between or between[-1] in ",;:–—" or between.split()[-1] in _LINKS
    return is_linked or phrase.startswith("isolated")


def words_of(folded: str) -> set[str]:
    """The words of a folded text; a path or a dotted name is one word."""
    return set(pattern(r"\w[\w'/-]*(?:\.\w+)*").findall(folded))
