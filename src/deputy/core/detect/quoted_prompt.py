"""Requests as a line "Try to use Task tool …:" with a prompt on it or quoted after it, and degradation instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from deputy.core.detect.folded_text import (
    BLANK_LINE,
    HEADING,
    LIST_MARK,
    QUOTED_LINE,
    TextCursor,
    comments,
    fences,
    is_worded,
    passage,
    pattern,
    quotation_of,
    reach,
)
from deputy.core.detect.found_request import RequestDraft
from deputy.core.detect.model_routing import named_value
from deputy.core.detect.phrase_tables import any_of

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from deputy.core.detect.folded_text import FoldedText
    from deputy.core.detect.phrase_tables import PhraseTables

_COLON = r"(?m)[:：][ *_]*+$"
_INNER_COLON = r"(?:[^:：\n()\[\]]|\([^()\n]*+\)|\[[^\[\]\n]*+\])*+[:：][ *_]++(?P<quote>[\"“„«'])?+"
_BLOCKQUOTE = r"[^\n]*+\n(?: *+\n)*+ {0,3}+> ?+(?P<prompt>(?![\"“„«' ])[^\n]*+(?:\n {0,3}+>[^\n]*+)*+)"
_MODEL = r"[(\[] *model *[:=] *([^()\[\]]{1,120}?) *[)\]]"
_QUOTE = rf"(?m)^{QUOTED_LINE}{LIST_MARK}?[*_]*+([\"“„«'])"
_CLOSING = {
    "'": r"(?m)'[ *_]*+$",
    '"': r'(?m)"[ *_]*+$',
    "“": r"(?m)[”“][ *_]*+$",
    "„": r"(?m)[“”][ *_]*+$",
    "«": r"(?m)»[ *_]*+$",
}
_HEAD = rf"{QUOTED_LINE}(?:(?P<level>#{{1,6}}) ++(?:\d[\d.)]*+ ++)?)?{LIST_MARK}?(?P<bold>[*]{{2,3}})?"
_REST_OF_TITLE = {"heading": r"[^\n]*+", "bold": r"[^\n:*]*+(?::[*]++|[*]++:?)", "plain": r"[^\n:]*+:"}
_REST_OF_CONDITION = r"[^\n,:]{0,200}+(?:\n[^\n,:]{0,200}+)?[,:][*]*+"
_LEADS = frozenset({"then", "next", "first", "now", "always", "please", "and", "should", "must", "puis", "ensuite"})
_NEGATIONS = frozenset({"not", "never", "don't", "cannot", "can't", "pas", "jamais"})
_LONGEST_TRIGGER = 400
_LONGEST_DETOUR = 600


class _Trigger(NamedTuple):
    start: int
    end: int


class _Fallback(NamedTuple):
    """The span of a title or condition of degradation instructions, and the level of its heading."""

    start: int
    end: int
    level: int


def find_quoted(page: FoldedText, tables: PhraseTables) -> Iterator[RequestDraft]:
    """The quoted prompts after a trigger line."""
    reader = _Reader(page, tables)
    triggers = _triggers(page, tables)
    trigger = next(triggers, None)
    while trigger:
        following = next(triggers, None)
        if finding := reader.read(trigger, following.start if following else len(page.text)):
            yield finding
        trigger = following


def _triggers(page: FoldedText, tables: PhraseTables) -> Iterator[_Trigger]:
    """Lines, also wrapped ones, that start with a trigger, name its purpose and end with a colon."""
    folded = page.folded
    purposes, colons, blanks = (TextCursor(source, folded) for source in (any_of(tables.purposes), _COLON, BLANK_LINE))
    done = 0
    for found in pattern(any_of(tables.triggers)).finditer(folded):
        if found.start() < done:
            continue
        purpose = purposes.after(found.end())
        if purpose is None:
            return
        longest, colon = found.start() + _LONGEST_TRIGGER, colons.after(purpose.end())
        inner = pattern(_INNER_COLON).match(folded, purpose.end(), longest)
        is_one_line = colon is not None and colon.start() <= min(blanks.start(found.end()), longest)
        # A quote after a colon within the line opens the prompt; the line may also hold the prompt without quotes.
        if inner is not None and (inner["quote"] or not is_one_line):
            end = inner.start("quote") if inner["quote"] else inner.end()
        elif colon is not None and is_one_line:
            end = colon.end()
        else:
            continue
        if _begins(folded, found.start()):
            before = folded[max(0, found.start() - 3) : found.start()]
            yield _Trigger(found.start() - len(before) + len(before.rstrip("*_")), end)
            done = end


def _begins(folded: str, position: int) -> bool:
    """Whether a sentence starts here, perhaps after a word like "then"; not after "do not"."""
    before = folded[max(0, position - 40) : position].rstrip("*_` >")
    last = before.split()[-1] if before and not before.isspace() else ""
    if before.endswith("\n") or not last[-1:].isalnum():
        return last not in _NEGATIONS
    return last in _LEADS


class _Reader:
    """Reads the request of one trigger after another."""

    def __init__(self, page: FoldedText, tables: PhraseTables) -> None:
        self._page = page
        self._fenced, self._commented = fences(page), comments(page)
        self._quotes = TextCursor(_QUOTE, page.folded)
        self._headings = TextCursor(HEADING, page.folded)
        self._closings = {quote: TextCursor(source, page.folded) for quote, source in _CLOSING.items()}
        self._titles = TextCursor(any_of(tables.degradations), page.folded)
        self._conditions = TextCursor(any_of(tables.conditions), page.folded)

    def read(self, trigger: _Trigger, end: int) -> RequestDraft | None:
        """The request of a trigger, read up to `end`; None without a prompt."""
        page = self._page
        if self._commented.around(trigger.start):
            return None
        if fence := self._fenced.around(trigger.start):
            end = min(end, fence[1])
        found = self._prompt(trigger, end)
        if found is None or not is_worded(found[0]):
            return None
        prompt, after = found
        said = pattern(_MODEL).search(page.folded, trigger.start, trigger.end)
        return RequestDraft(
            pattern="prose",
            span=(trigger.start, after),
            prompt=prompt,
            model=named_value(page.text[said.start(1) : said.end(1)]) if said else None,
            degradation=self._degradation(after, end),
        )

    def _prompt(self, trigger: _Trigger, end: int) -> tuple[str, int] | None:
        """The prompt of a trigger, and its end: on its line, in quotes after it, or as a blockquote."""
        page, start = self._page, trigger.end
        line_end = page.folded.find("\n", start, end)
        line_end = end if line_end < 0 else line_end
        opening = page.folded[start : start + 1]
        if opening in self._closings:
            stop, after = self._close(opening, start + 1, end)
            return (passage(page, start + 1, stop), after) if opening != "'" or after > stop else None
        if rest := page.folded[start:line_end].strip(" *_"):
            return (passage(page, start, line_end), line_end) if is_worded(rest) else None
        limit = min(end, start + _LONGEST_DETOUR, self._headings.start(start))
        block = pattern(_BLOCKQUOTE).match(page.folded, start, end)
        if block is not None and ">" not in (page.lead(trigger.start) or ""):
            return passage(page, *block.span("prompt"), quotation="> "), block.end()
        quote = self._quotes.after(start)
        if quote is None or quote.end() > limit:
            return None
        stop, after = self._close(quote[1], quote.end(), end)
        if quote[1] == "'" and after == stop:
            return None
        lead = page.folded[quote.start() : quote.start(1)]
        quotation = quotation_of(lead)
        return passage(page, quote.end(), stop, quotation=quotation, column=len(lead) - len(quotation)), after

    def _close(self, quote: str, start: int, end: int) -> tuple[int, int]:
        """The end of the prompt and of its closing quote: the first line that ends with a quote, or a section."""
        title = self._title(start, end)
        limit = title.start if title else end
        closing = self._closings[quote].after(start)
        if closing is not None and closing.start() < limit:
            return closing.start(), closing.start() + 1
        stop = min(limit, self._headings.start(start))
        return stop, start + len(self._page.text[start:stop].rstrip())

    def _degradation(self, start: int, end: int) -> str | None:
        """The degradation instructions: the section with that title, or the text after the condition."""
        title, condition = self._title(start, end), self._condition(start, end)
        found = min(filter(None, (title, condition)), default=None)
        if found is None:
            return None
        folded = self._page.folded
        blank = pattern(r"(?:[ >]*+\n)*+").match(folded, found.end, end)
        start = blank.end() if blank else found.end
        if found.level:
            sibling = pattern(rf"(?m)^[ >]{{0,6}}+#{{1,{found.level}}} ").search(folded, start, end)
            stop = sibling.start() if sibling else end
        else:
            stop = reach(self._page, start, end)
            if found is condition and self._announces(start):
                stop = max(stop, min(end, self._headings.start(start)))
        return passage(self._page, start, stop) or None

    def _title(self, start: int, end: int) -> _Fallback | None:
        """The next heading, bold text or line with a colon that is a title of such a section."""
        while (found := self._titles.after(start)) and found.end() <= end:
            start = found.end()
            if head := self._head(found.start()):
                kind = "heading" if head["level"] else "bold" if head["bold"] else "plain"
                if rest := pattern(_REST_OF_TITLE[kind]).match(self._page.folded, start, end):
                    return _Fallback(head.start(), rest.end(), len(head["level"] or ""))
        return None

    def _condition(self, start: int, end: int) -> _Fallback | None:
        """The next sentence that starts with such a condition."""
        while (found := self._conditions.after(start)) and found.end() <= end:
            start = found.end()
            before = self._page.folded[max(0, found.start() - 2) : found.start()]
            is_start = before in {". ", "! ", "? "} or self._head(found.start())
            if is_start and (rest := pattern(_REST_OF_CONDITION).match(self._page.folded, start, end)):
                return _Fallback(found.start(), rest.end(), 0)
        return None

    def _head(self, position: int) -> re.Match[str] | None:
        """The text before the position on its line, if that is only the mark of a heading, a list item or bold text."""
        line = self._page.start_of_line(position, longest=60)
        return None if line is None else pattern(_HEAD).fullmatch(self._page.folded, line, position)

    def _announces(self, position: int) -> bool:
        line_end = self._page.folded.find("\n", position)
        return line_end > 0 and self._page.folded[position:line_end].rstrip(" *").endswith(":")
