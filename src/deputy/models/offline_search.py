"""Search for the offline scout: which words to search for, and which places match best."""

from __future__ import annotations

from functools import cache
from math import log2
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.core.redaction import MARK, Redactor

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_WORDS = 5
MOST_HITS = 200
_TASK_CHARACTERS = 4000
_SHORTEST = 3
_STEM = 5
_DEFINES = ("def ", "async def ", "class ", "func ", "fn ", "pub ", "function ", "export ", "#", "const ", "type ")
_IMPORTS = ("import ", "from ", "use ", "#include", "require")
_BESIDES = (
    ".deputy/", "test", "example", "demo", "lock", "changelog", "constraints", "corpus", "fixture", "vendor",
    "license", "min.js",
)  # fmt: skip

_COMMON = """
about after again all also always and any are around ask asks back because been before being below between both but
can check code come could describe did does done down each every explain explicit file files find for found from
get give given happen happens has have here how into its job just keep list look made make makes many may more most
much must name named need needs not now off one only open other our out over own part place places please project
question read really repo report repository review same say says scan search see should show some someone source
still such summarise summarize take talk task tell than that the their them then there these they thing things this
those through time too two under until use used uses using very want was way were what when where whether which
while who why will with without work works would write written you your
"""


class SearchHit(Struct, frozen=True):
    """A line of a file."""

    path: str
    line: int
    text: str


class WordSearch(Struct, frozen=True, kw_only=True):
    """A searched word, and its hits."""

    word: str
    hits: tuple[SearchHit, ...]
    is_cut: bool = False
    has_failed: bool = False

    @classmethod
    def read(cls, word: str, text: str) -> WordSearch:
        """A search from the result of Grep."""
        hits = tuple(place for line in text.splitlines() if (place := _place(line)) is not None)
        return cls(word=word, hits=hits, is_cut=len(hits) >= MOST_HITS)

    @property
    def description(self) -> str:
        """The word and the number of its hits."""
        if self.has_failed:
            return f"{self.word} (the search failed)"
        plus = "+" if self.is_cut else ""
        return f"{self.word} ({len(self.hits)}{plus} line{'s' * (len(self.hits) != 1)})"

    @property
    def weight(self) -> float:
        """The weight of a hit: higher for rare words, highest for names."""
        return (3 if _is_name(self.word) else 1) / (1 + log2(1 + len(self.hits)))


class SearchFindings:
    """All searches together."""

    def __init__(self, searches: Sequence[WordSearch]) -> None:
        self.searches = [search for search in searches if search.hits]
        self.hits = [hit for search in self.searches for hit in search.hits]

    def ranked(self) -> list[SearchHit]:
        """The best place of each file, the best file first; deterministic."""
        scores: dict[str, float] = {}
        words: dict[str, int] = {}
        lines: dict[SearchHit, float] = {}
        for search in self.searches:
            seen: dict[str, int] = {}
            for hit in search.hits:
                seen[hit.path] = seen.get(hit.path, 0) + 1
                lines[hit] = lines.get(hit, 0.0) + search.weight
            for path, times in seen.items():
                named = 2 if search.word.lower() in path.lower() else 0
                scores[path] = scores.get(path, 0.0) + search.weight * (2 + min(times, 3) + named)
                words[path] = words.get(path, 0) + 1
        best: dict[str, SearchHit] = {}
        for place in lines:
            held = best.get(place.path)
            if held is None or _line_score(place, lines) > _line_score(held, lines):
                best[place.path] = place
        total = {path: scores[path] * words[path] * _path_score(path) for path in best}
        return sorted(best.values(), key=lambda place: (-total[place.path], place.path))


def _line_score(place: SearchHit, lines: dict[SearchHit, float]) -> float:
    text = place.text.lstrip()
    return lines[place] * (1.5 if text.startswith(_DEFINES) else 0.5 if text.startswith(_IMPORTS) else 1.0)


def _path_score(path: str) -> float:
    lowered = path.lower()
    return 0.4 if any(word in lowered for word in _BESIDES) else 1.0


def key_words(task: str) -> list[str]:
    """The words of a task to search for: names first, then the longest."""
    words: dict[str, str] = {}
    # Redact first: a secret split into words is not recognised.
    for word in _split(Redactor().redact(task[-_TASK_CHARACTERS:]).replace(MARK, " ")):
        bare = word.strip("_")
        if len(bare) >= _SHORTEST and not bare.isdecimal() and bare.lower() not in _stop_words():
            single = _singular(bare)
            words.setdefault(single.lower(), single)
    found = list(words.values())
    names = [word for word in found if _is_name(word)]
    rest = sorted((word for word in found if not _is_name(word)), key=lambda word: -min(len(word), 8))
    return [*names, *rest][:MOST_WORDS]


def stem(word: str) -> str:
    """The beginning of a word, which matches its other forms."""
    return word[: max(_SHORTEST, min(_STEM, len(word) - 1))]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > _STEM and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _split(text: str) -> list[str]:
    return "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text).split()


def _is_name(word: str) -> bool:
    """Whether a word looks like an identifier: snake_case, camelCase, or letters and digits."""
    return "_" in word or not (word[1:].islower() or word.isupper()) or any(letter.isdigit() for letter in word)


@cache
def _stop_words() -> frozenset[str]:
    return frozenset(_COMMON.split())


def _place(line: str) -> SearchHit | None:
    """`path:line:text`; the path may contain colons."""
    start = 0
    while (colon := line.find(":", start)) > 0:
        number, second, _ = line[colon + 1 : colon + 12].partition(":")
        if second and number.isdecimal():
            return SearchHit(line[:colon], int(number), line[colon + 2 + len(number) :])
        start = colon + 1
    return None
