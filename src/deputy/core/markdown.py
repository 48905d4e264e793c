"""Embed foreign Markdown between our headings: it cannot fake a heading or hide the text after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.terminal_text import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

_DEEPEST = 3
"""The deepest level of our own headings."""
_FENCES = ("```", "~~~")
_INDENTED = 4
"""From this indent on, a line is code, neither a heading nor a fence."""
_SWALLOWING = {
    "<!--": "-->",
    "<script": "</script>",
    "<style": "</style>",
    "<pre": "</pre>",
    "<textarea": "</textarea>",
    "<?": "?>",
    "<![cdata[": "]]>",
}
"""Openings that turn the following text into hidden HTML, with their ends."""


def kept_apart(text: str, titles: Sequence[str]) -> str:
    """The text with fake headings of these titles escaped, and open blocks closed."""
    # Remove invisible characters first: they could hide a heading from the check.
    text = plain(text.replace("\r\n", "\n").replace("\r", "\n"))
    lowered = text.lower()
    last = {opening: lowered.rfind(closing) for opening, closing in _SWALLOWING.items()}
    lines: list[str] = []
    fence, position = "", 0
    for line in text.split("\n"):
        body = line.lstrip(" ")
        margin = line[: len(line) - len(body)]
        if len(margin) < _INDENTED:
            fence = _fence_after(fence, body)
            opening = next(filter(body.lower().startswith, _SWALLOWING), "") if not fence else ""
            is_harmful = _is_like(body, titles) or (opening and last[opening] < position)
            body = f"\\{body}" if is_harmful else body
        lines.append(f"{margin}{body}")
        position += len(line) + 1
    return "\n".join((*lines, fence) if fence else lines)


def _fence_after(fence: str, body: str) -> str:
    """The marks that close the current fence after this line; "" outside of a fence."""
    if not fence:
        return _marks(body) if body.startswith(_FENCES) else ""
    is_closing = body.startswith(fence) and not body.strip().strip(fence[0])
    return "" if is_closing else fence


def _marks(body: str) -> str:
    """The marks that open a fence; a line with more backticks later opens none."""
    mark = body[0]
    rest = body.lstrip(mark)
    return "" if mark == "`" and "`" in rest else mark * (len(body) - len(rest))


def _is_like(body: str, titles: Sequence[str]) -> bool:
    """Whether a line looks like one of our headings, ignoring spaces."""
    bare = body.lstrip("#")
    if not 0 < len(body) - len(bare) <= _DEEPEST:
        return False
    return bare.lstrip().startswith(tuple(titles))
