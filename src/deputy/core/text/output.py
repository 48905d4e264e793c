"""The form a task wants its result in, as far as its words tell."""

from __future__ import annotations

from itertools import islice

from deputy.core.text.page import LIST_MARK, Page, fences, pattern
from deputy.core.text.passage import passage, reach

_HITS = 20
_FORMATS = {"json": "JSON", "markdown": "Markdown", "yaml": "YAML", "csv": "CSV", "html": "HTML", "xml": "XML"}
_BEGIN = rf"(?:^[ >]*+{LIST_MARK}?[*_]*+|(?<=[.!?:;][ \n]))"
_LABEL = (
    r"(?:(?:(?:expected|desired|required|return|output|response|report) ++)?(?:output|format|structure)|return"
    r"|format de (?:retour|sortie)|(?:format|structure) attendue?)[ *_]*+:[ *_]*+"
)
_VERB = (
    r"(?:return|output|retourner|retournez|renvoyer|renvoyez)(?!\w)(?! *+[:=(])"
    r"(?!\s++(?:to|is|are|was|of|from|and|or|value|values|type|code|statement)\b)"
)
_WANTED = (
    rf"(?m)(?:{_BEGIN}(?P<label>{_LABEL}))"
    rf"|(?:{_BEGIN}|(?<=\band[ \n])|(?<=\bthen[ \n])|(?<=\bplease[ \n])|(?<=\bet[ \n]))(?P<verb>{_VERB})"
    rf"|(?<!\w)as (?:an? )?(?:valid |plain )?(?P<format>{'|'.join(_FORMATS)})(?!\w)"
)
_END_OF_SENTENCE = rf"[.!?](?=[\s\"')]|$)|\n *+(?=\n)|\n(?= *+{LIST_MARK})"


def infer_output(task: str) -> str | None:
    """What the task says about the form of its result; each way of saying it is a line, none says nothing."""
    page = Page(task)
    fenced = fences(page)
    wanted: dict[str, None] = {}
    done = 0
    for found in islice(pattern(_WANTED).finditer(page.folded), _HITS):
        if found.start() < done or fenced.around(found.start()):
            continue
        if found["format"]:
            wanted[_FORMATS[found["format"]]] = None
            continue
        done = _end_of_label(page, found.end()) if found["label"] else _end_of_clause(page, found.end())
        wanted[passage(page, found.end(), done).strip("*_ ").removesuffix(".")] = None
    return "\n".join(filter(None, wanted)) or None


def _end_of_label(page: Page, start: int) -> int:
    """The rest of the line, or what follows when the label has the line to itself."""
    line_end = page.folded.find("\n", start)
    if line_end < 0:
        return len(page.folded)
    if page.folded[start:line_end].strip():
        return line_end
    following = pattern(r"\s*+\n").match(page.folded, start)
    return reach(page, following.end() if following else start, len(page.folded))


def _end_of_clause(page: Page, start: int) -> int:
    found = pattern(_END_OF_SENTENCE).search(page.folded, start)
    stop = found.start() if found else len(page.folded)
    if page.folded[start:stop].rstrip(" *_").endswith(":"):
        return reach(page, start, len(page.folded))
    return stop
