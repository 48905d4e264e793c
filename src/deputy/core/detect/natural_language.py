"""Requests in natural language: the task is the rest of the sentence, or the text around it."""

from __future__ import annotations

from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from deputy.core.detect.folded_text import (
    HEADING,
    LIST_MARK,
    TextCursor,
    comments,
    fences,
    fold,
    is_worded,
    passage,
    pattern,
    reach,
)
from deputy.core.detect.found_request import RequestDraft
from deputy.core.detect.model_routing import find_mention
from deputy.core.detect.phrase_tables import GAP, any_of, words

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
_SENTENCE_LEAD = rf"[ \n>]*+(?P<mark>{LIST_MARK})?+(?:\[[ x]\] )?+[*_]*+"
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
_VERB = r"\b(?:is|are|was|were|means|can|will|should|may|must|has|have|had|does|did|helps?|keeps?|makes?|needs?)\b"
_QUESTIONS = frozenset({"how", "when", "whenever", "why", "what", "which", "where", "who"})
_CONDITIONS = _QUESTIONS | {"if", "unless", "because", "that", "do", "does", "should"}
_TALK = _QUESTIONS | words(
    "not never no cannot without avoid stop refrain instead rather whether able can must "
    "explain describe document discuss clarify tell ask teach understand know learn wonder "
    "consider remember decide"
)
_LINKS = words("and then also just simply maybe perhaps please kindly now first next directly always")


class RequestSentence(Struct, frozen=True, gc=False):
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
    lead = pattern(_SENTENCE_LEAD).match(page.folded, start, position)
    start = lead.end() if lead else start
    # Without a full stop, a capital letter at the start of a line starts a sentence.
    if page.text[position].isupper() and page.starts_line(position):
        start = position
    return start, bool(lead and lead["mark"])


def _is_order(folded: str, phrase: re.Match[str], end: int) -> bool:
    """Whether a sentence that starts with the phrase is an order; "Isolated execution is …" is a statement."""
    is_noun = phrase[0].startswith("isolated") and not folded.startswith(":", phrase.end())
    if is_noun and folded.startswith(" of ", phrase.end()):
        # "Isolated execution of the tests" asks for it; "… of the tests is slow" says something about it.
        is_noun = pattern(_VERB).search(folded, phrase.end(), end) is not None
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


_SENTENCES_READ = 1000
_PRONOUNS = frozenset({"it", "this", "that", "these", "those", "them"})
_FILLERS = _PRONOUNS | words(
    "a an the thing task work job one all please now then asap today me us my our your "
    "to for and in of on with so by here following below above "
    "sub subagent subagents agent agents subprocess isolation"
)
_DANGLING_START = (
    r"(?i)\A[*_]*+(?:[\s,;:.!?–—-]|(?:to|for|of|and|then|so|that|also|please|(?:this|that|it)(?= *[:.,]))\b)++"
)
_DANGLING_END = r"(?i)(?:[\s,;]++(?:and|then|or|but|so|please|to|for)\b)++[\s,;]*+\Z"
_NOUN_LEAD = r"(?i)(?:\b(?:run|do|perform|start|in|as)\s++)?\ban?\s*+\Z"
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
    if text.startswith(("isolated", "Isolated"), asked.phrase[0]):
        # "Run an isolated execution of the tests" asks for the tests.
        head = head[:-_LONGEST_DANGLING] + pattern(_NOUN_LEAD).sub("", head[-_LONGEST_DANGLING:])
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
