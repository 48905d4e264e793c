"""Requests in natural language: the task is the rest of the sentence, or the text around it."""

from __future__ import annotations

from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Literal

from deputy.core.detect.excerpt import passage, reach
from deputy.core.detect.folded_text import HEADING, TextCursor, fold, is_worded, pattern
from deputy.core.detect.found_request import RequestDraft
from deputy.core.detect.model_mention import find_mention
from deputy.core.detect.phrases import words
from deputy.core.detect.request_sentences import BLOCK, sentences_that_ask, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.core.detect.folded_text import FoldedText
    from deputy.core.detect.phrase_tables import PhraseTables
    from deputy.core.detect.request_sentences import RequestSentence

_SENTENCES_READ = 1000
_PRONOUNS = frozenset({"it", "this", "that", "these", "those", "them"})
_FILLERS = _PRONOUNS | words(
    "a an the thing task work job one all please now then asap today me us my our your "
    "to for and in of on with so by here following below above "
    "sub subagent subagents agent agents subprocess isolation"
)
_DANGLING_START = (
    r"(?i)\A[*_]*+(?:[\s,;:.!?–—-]|(?:to|for|and|then|so|that|also|please|(?:this|that|it)(?= *[:.,]))\b)++"
)
_DANGLING_END = r"(?i)(?:[\s,;]++(?:and|then|or|but|so|please|to|for)\b)++[\s,;]*+\Z"
_LONGEST_DANGLING = 60
_FEWEST_WORDS_OF_CONTEXT = 4
_LONGEST_CONTEXT = 2000


def find_asked(page: FoldedText, tables: PhraseTables) -> Iterator[RequestDraft]:
    """The requests in sentences that ask for delegation."""
    sentences = islice(sentences_that_ask(page, tables), _SENTENCES_READ + 1)
    reader = _Reader(page, tables)
    low = 0
    for asked, following in islice(pairwise(chain(sentences, (None,))), _SENTENCES_READ):
        if asked and (finding := reader.read(asked, low, following.start if following else None)):
            yield finding
        low = asked.end if asked else low


class _Reader:
    """Reads the task of one sentence after another."""

    def __init__(self, page: FoldedText, tables: PhraseTables) -> None:
        self._page = page
        self._aliases = tuple(tables.aliases)
        self._headings = TextCursor(HEADING, page.folded)
        self._is_puzzled = False

    def read(self, asked: RequestSentence, low: int, following: int | None) -> RequestDraft | None:
        """The request of a sentence; `low` is the end of the sentence before it, `following` the start of the next."""
        page, high = self._page, len(self._page.text) if following is None else following
        mention = find_mention(page, asked.start, asked.end, asked.phrase[1], self._aliases)
        said = _task(page.text, asked, mention.span if mention else asked.phrase)
        more = page.text[asked.end : self._end_of_task(asked, high)].rstrip()
        prompt, context, is_unclear = said + more, self._earlier(asked, low), False
        if (lack := _lacks(said)) == "words" or (lack and not (said.endswith(":") and is_worded(more))):
            before, after = self._surroundings(asked, low, high, is_last=following is None)
            prompt = "\n\n".join(filter(None, (before, "" if lack == "words" else said, after)))
            more, context, is_unclear = "", "", lack != "object" and not before and not after
        if is_unclear:
            if self._is_puzzled:  # each unclear request has the whole text as its prompt: once is enough
                return None
            prompt, self._is_puzzled = page.text, True
        return RequestDraft(
            pattern="user",
            span=(asked.start, asked.end + len(more)),
            prompt=prompt.replace("\r\n", "\n").replace("\r", "\n").strip(),
            model=mention.name if mention else None,
            context=(context,) if context else (),
            is_unclear=is_unclear,
        )

    def _end_of_task(self, asked: RequestSentence, high: int) -> int:
        """The end of the paragraph with its list or code, or of the list item."""
        if not asked.is_listed:
            return reach(self._page, asked.start, high)
        found = pattern(BLOCK).search(self._page.folded, asked.end, high)
        return found.start() if found else high

    def _earlier(self, asked: RequestSentence, low: int) -> str:
        """The text of the paragraph before the request, which a subagent does not see otherwise."""
        window = max(low, asked.start - _LONGEST_CONTEXT)
        blocks = [found.end() for found in pattern(BLOCK).finditer(self._page.folded, window, asked.start)]
        if not blocks and window == low > 0:  # the text belongs to another request of the paragraph
            return ""
        earlier = passage(self._page, blocks[-1] if blocks else window, asked.start)
        return earlier if len(earlier.split()) >= _FEWEST_WORDS_OF_CONTEXT else ""

    def _surroundings(self, asked: RequestSentence, low: int, high: int, *, is_last: bool) -> tuple[str, str]:
        """The text before and after, in its section, or else up to the neighbouring requests."""
        page = self._page
        section = max(low, page.folded.rfind("\n#", low, asked.start) + 1)
        section_end = min(high, self._headings.start(asked.end))
        for start, end in ((section, section_end), (low, high)):
            before, after = passage(page, start, asked.start), passage(page, asked.end, end)
            if is_worded(after) and (page.text[asked.end - 1] == ":" or not is_worded(before)):
                return "", after
            if is_worded(before):
                return before, after if is_last else ""
        return "", ""


def _lacks(said: str) -> Literal["words", "reference", "object"] | None:
    """What a task lacks: all words, what it refers to ("fix it"), or an object of its verb."""
    used = words_of(fold(said))
    if used <= _FILLERS or not is_worded(said):
        return "words"
    if len(used) <= 4 and not used.isdisjoint(_PRONOUNS):
        return "reference"
    return "object" if len(used) == 1 else None


def _task(text: str, asked: RequestSentence, mention: tuple[int, int]) -> str:
    """The sentence without its form, its phrase and its model, and without the filler words left over."""
    cuts = sorted((asked.form, asked.phrase, mention))
    head = _without(text, asked.start, asked.phrase[0], cuts)
    tail = pattern(_DANGLING_START).sub("", _without(text, asked.phrase[1], asked.end, cuts), count=1)
    if not tail:
        head = head[:-_LONGEST_DANGLING] + pattern(_DANGLING_END).sub("", head[-_LONGEST_DANGLING:])
    said = pattern(_DANGLING_START).sub("", f"{head} {tail}", count=1)
    return pattern(r" +(?=[,.;:!?](?: |$))").sub("", said).strip("*_ ").removesuffix("?")


def _without(text: str, start: int, end: int, cuts: list[tuple[int, int]]) -> str:
    """The text from start to end on one line, without the cuts."""
    kept: list[str] = []
    for cut_start, cut_end in cuts:
        kept.append(text[start : min(end, max(start, cut_start))])
        start = max(start, cut_end)
    return " ".join(" ".join([*kept, text[start:end]]).split())
