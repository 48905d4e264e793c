"""Requests in a person's own words: a sentence that says to delegate and asks for it; talk about it is neither."""

from __future__ import annotations

from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from deputy.core.text.finding import Finding
from deputy.core.text.mention import find_mention
from deputy.core.text.page import HEADING, LIST_MARK, Cursor, comments, fences, fold, is_worded, pattern
from deputy.core.text.passage import passage, reach
from deputy.core.text.phrases import GAP, any_of

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from deputy.core.text.page import Page
    from deputy.core.text.tables import Tables

_SENTENCES_READ = 1000
_LONGEST_HEAD = 600
_LONGEST_TAIL = 2000
_PHRASES_JUDGED = 3

_BLOCK = rf"(?=\n[ >]*+(?:\n|{LIST_MARK}|#{{1,6}} |\||```|~~~))"
_BOUNDARY = rf"[.!?…][\"')\]”»*_]*+(?=\s)|:[*_]*+ *+(?=\n)|{_BLOCK}"
_END = rf"[.!?…][\"')\]”»*_]*+(?=\s|\Z)|{_BLOCK}"
_STOPS = frozenset(("", *".!?…:\n\"')]”»-*+•"))
_LEAD = rf"[ \n>]*+(?P<mark>{LIST_MARK})?+(?:\[[ x]\] )?+[*_]*+"
_FRONT_MATTER = r"(?s)---\n.*?\n---(?=\n)"

_PLEASE = any_of(("please", "kindly"))
_YOU = any_of(("can|could|would|will you",))
_WISH = any_of(("i|i'd [would|really] want|need|like [you] [to]",))
_FORM = rf"(?:(?P<please>{_PLEASE})|(?P<you>{_YOU})|(?P<wish>{_WISH}))(?:[ ,\n]++(?:{_PLEASE}|{_YOU}|{_WISH}))*+"
_STORY = r"\W*as (?:a|an|the) "
_STATEMENT = (
    rf"{GAP}(?:is|are|was|were|means|when|whenever|if|unless|only|instead|can|will|should|may|must|has|have|does|or)(?!\w)"
    r"|[*_`]*+ *+: *+(?:true|false|yes|no|on|off)(?!\w)|(?<=\bto)[*_`]*+ *+:|[\"'”`]"
)
_QUESTIONS = frozenset({"how", "when", "whenever", "why", "what", "which", "where", "who"})
_CONDITIONS = _QUESTIONS | {"if", "unless", "because", "that", "does", "do", "should"}
_TALK = _QUESTIONS | frozenset(
    "not never no cannot without avoid stop refrain instead rather whether explain describe document discuss clarify tell "
    "ask teach understand know learn wonder able consider remember decide".split()
)
_FILLERS = frozenset(
    "a an the this that it these those them thing task work job one all please now then asap today me us my our your to for "
    "and in of on with so by here following below above sub subagent subagents agent agents subprocess isolation".split()
)
_PRONOUNS = frozenset({"it", "this", "that", "these", "those", "them"})
_DANGLING_START = r"(?i)\A(?:[\s,;:.!?–—-]|(?:to|and|then|so|that|please|for (?:this|that|it)(?= *[:.,]))\b)++"
_DANGLING_END = r"(?i)(?:[\s,;]+(?:and|then|or|but|please|to|for))+[\s,;]*(?=[.?!:]*$)"


class _Asked(NamedTuple):
    """A sentence that asks for delegation, and where its form and its phrase stand."""

    start: int
    end: int
    form: tuple[int, int]
    phrase: tuple[int, int]


def find_asked(page: Page, tables: Tables) -> Iterator[Finding]:
    """The sentences of a page that ask for delegation, each with its task."""
    sentences = islice(_sentences(page, tables), _SENTENCES_READ + 1)
    reader = _Reader(page, tables)
    low = 0
    for asked, following in islice(pairwise(chain(sentences, (None,))), _SENTENCES_READ):
        if asked and (finding := reader.read(asked, low, following.start if following else None)):
            yield finding
            low = asked.end


def _sentences(page: Page, tables: Tables) -> Iterator[_Asked]:
    folded, delegations = page.folded, pattern(any_of(tables.delegations))
    fenced, commented = fences(page), comments(page)
    front_matter = pattern(_FRONT_MATTER).match(folded)
    low = front_matter.end() if front_matter else 0
    while phrase := delegations.search(folded, low):
        found = pattern(_END).search(folded, phrase.end(), phrase.end() + _LONGEST_TAIL)
        end = found.end() if found else min(len(folded), phrase.end() + _LONGEST_TAIL)
        for _ in range(_PHRASES_JUDGED):
            if asked := _judge(page, low, end, phrase):
                at = phrase.start()
                if not (_is_set_apart(folded, at) or fenced.around(at) or commented.around(at)):
                    yield asked
                break
            if (phrase := delegations.search(folded, phrase.end(), end)) is None:
                break
        low = end


def _judge(page: Page, low: int, end: int, phrase: re.Match[str]) -> _Asked | None:
    """The sentence of a phrase, unless it only talks about delegation."""
    at, window = phrase.start(), max(low, phrase.start() - _LONGEST_HEAD)
    before = page.folded[window:at].rstrip(" *_>")
    if before[-1:] not in _STOPS and not pattern(_FORM).search(before):
        return None
    start, is_listed = _start_of_sentence(page, window, at)
    form = _form_of_request(page.folded, start, end, phrase, is_listed=is_listed)
    return None if form is None else _Asked(start, end, form, phrase.span())


def _is_set_apart(folded: str, position: int) -> bool:
    """Whether its line is a heading, a row of a table or a quotation: talk, not a request."""
    line = folded.rfind("\n", max(0, position - _LONGEST_HEAD), position) + 1
    return folded[line : line + 20].lstrip()[:1] in {"#", "|", ">"}


def _start_of_sentence(page: Page, window: int, position: int) -> tuple[int, bool]:
    """Where the sentence starts that the position stands in, and whether it is an item of a list."""
    start = window
    for boundary in pattern(_BOUNDARY).finditer(page.folded, window, position):
        start = boundary.end()
    lead = pattern(_LEAD).match(page.folded, start, position)
    start = lead.end() if lead else start
    # Writers in a hurry end a sentence with the line: a capital shows that a new one begins.
    if page.text[position].isupper() and page.starts_line(position):
        start = position
    return start, bool(lead and lead["mark"])


def _form_of_request(
    folded: str, start: int, stop: int, phrase: re.Match[str], *, is_listed: bool
) -> tuple[int, int] | None:
    """Where the words stand that make a request of the sentence (nowhere, if it starts with the phrase), if any do."""
    head = folded[start : phrase.start()]
    if head.count('"') % 2 or head.count("`") % 2 or head.count("“") > head.count("”") or pattern(_STORY).match(head):
        return None
    form = pattern(_FORM).search(head)
    if form is None:
        is_order = not head.strip(" *_") and not is_listed and folded[stop - 1] != "?"
        is_noun = phrase[0].startswith("isolated") and not folded.startswith(":", phrase.end())
        return None if not is_order or is_noun or pattern(_STATEMENT).match(folded, phrase.end()) else (start, start)
    before, between = _words(head[: form.start()]), _words(head[form.end() :])
    is_asked = (form["you"] and before & _QUESTIONS) or (form["wish"] and before & _CONDITIONS)
    if is_asked or between & _TALK or any(word.endswith("n't") for word in between):
        return None
    return start + form.start(), start + form.end()


def _words(folded: str) -> set[str]:
    return set(pattern(r"[\w'/-]+(?:\.\w+)*").findall(folded))


class _Reader:
    """Reads the task of one sentence after the other."""

    def __init__(self, page: Page, tables: Tables) -> None:
        self._page = page
        self._aliases = tuple(tables.aliases)
        self._headings = Cursor(HEADING, page.folded)
        self._is_puzzled = False

    def read(self, asked: _Asked, low: int, following: int | None) -> Finding | None:
        """The request of a sentence; `low` and `following` are where its neighbours end and start."""
        page, high = self._page, len(self._page.text) if following is None else following
        mention = find_mention(page, asked.start, asked.end, asked.phrase[1], self._aliases)
        cuts = [asked.form, asked.phrase, *([(mention.start, mention.end)] if mention else [])]
        said = _tidy(_without(page.text, asked.start, asked.end, cuts))
        stop = max(asked.end, reach(page, asked.start, high))
        prompt = said + page.text[asked.end : stop].rstrip()
        is_unclear = False
        if lack := _lacks(said):
            stop = asked.end
            before, after = self._surroundings(asked, low, high, is_last=following is None)
            prompt = "\n\n".join(filter(None, (before, "" if lack == "words" else said, after)))
            is_unclear = lack != "object" and not before and not after
        if is_unclear:
            if self._is_puzzled:  # all of the text is the prompt of each unclear one: once is enough
                return None
            prompt, self._is_puzzled = page.text, True
        return Finding(
            pattern="user",
            span=(asked.start, stop),
            prompt=prompt.replace("\r\n", "\n").strip(),
            model=mention.name if mention else None,
            is_unclear=is_unclear,
        )

    def _surroundings(self, asked: _Asked, low: int, high: int, *, is_last: bool) -> tuple[str, str]:
        """The text before and after: of its section, or of all that no other request has."""
        section = max(low, self._page.folded.rfind("\n#", low, asked.start) + 1)
        section_end = min(high, self._headings.start(asked.end))
        for start, end in ((section, section_end), (low, high)):
            before, after = passage(self._page, start, asked.start), passage(self._page, asked.end, end)
            if self._page.text[asked.end - 1] == ":" and is_worded(after):
                return "", after
            if is_worded(before) or is_worded(after):
                return (before, after) if is_last or not is_worded(before) else (before, "")
        return "", ""


def _lacks(said: str) -> Literal["words", "reference", "object"] | None:
    """What a task needs the surrounding text for: it says nothing at all, points ("fix it"), or is a lone verb."""
    words = _words(fold(said))
    if words <= _FILLERS:
        return "words"
    if len(words) <= 4 and not words.isdisjoint(_PRONOUNS):
        return "reference"
    return "object" if len(words) == 1 else None


def _without(text: str, start: int, end: int, cuts: list[tuple[int, int]]) -> str:
    kept: list[str] = []
    for cut_start, cut_end in sorted(cuts):
        kept.append(text[start : max(start, cut_start)])
        start = max(start, cut_end)
    return " ".join([*kept, text[start:end]])


def _tidy(said: str) -> str:
    """A sentence that words were taken out of, without what dangles at its ends."""
    said = " ".join(said.split()).strip("*_ ")
    said = pattern(_DANGLING_START).sub("", said, count=1)
    said = said[:-60] + pattern(_DANGLING_END).sub("", said[-60:])
    return pattern(r" +(?=[,.;:!?](?: |$))").sub("", said).removesuffix("?")
