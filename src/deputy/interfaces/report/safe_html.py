"""HTML that is safe by construction: a text is redacted and escaped where it becomes part of an element."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from deputy.core.foreign_text import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from markdown_it.token import Token

    from deputy.core.redaction import Redactor

_MARKDOWN_LENGTH = 50_000
"""A longer text is shown as it is: some Markdown takes more than linear time to parse."""
_LINK = re.compile(r"https?://[^\s\"'<>]+", re.IGNORECASE)
_BLOCKS = frozenset(
    ("p", "ul", "ol", "li", "blockquote", "pre", "table", "thead", "tbody", "tr", "th", "td", "em", "strong", "s")
)
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))


class Html(str):
    """Markup that `SafeHtml` made; any other text is escaped."""

    __slots__ = ()


class SafeHtml:
    """Makes elements. Attribute names and element names are ours; all texts may be hostile."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def text(self, text: str) -> Html:
        """The text without secrets and invisible characters, escaped; markup stays as it is."""
        return text if isinstance(text, Html) else Html(escape(self._redactor.redact(plain(text))))

    def element(self, name: str, *parts: str, **attributes: str | float | None) -> Html:
        """An element; `class_` is the attribute `class`."""
        shown = "".join(
            f' {key.rstrip("_").replace("_", "-")}="{self.text(str(value))}"'
            for key, value in attributes.items()
            if value is not None
        )
        return Html(f"<{name}{shown}>{self.joined(parts)}</{name}>")

    def joined(self, parts: Iterable[str], between: str = "") -> Html:
        """Several parts as one."""
        return Html(between.join(map(self.text, parts)))

    def folded(self, title: str, *parts: str, is_open: bool = False) -> Html:
        """Content below a title that opens it."""
        return self.element("details", self.element("summary", title), *parts, open="" if is_open else None)

    def markdown(self, text: str) -> Html:
        """Markdown as elements: no raw HTML, no images, links to http and https only."""
        from rich.markdown import Markdown

        if len(text) > _MARKDOWN_LENGTH:
            return self.element("div", text, class_="text")
        return self._rendered(Markdown(self._redactor.redact(plain(text))).parsed)

    def _rendered(self, tokens: Sequence[Token]) -> Html:
        return Html("".join(map(self._token, tokens)))

    def _token(self, token: Token) -> str:
        match token.type:
            case "inline":
                return self._rendered(token.children or ())
            case "fence" | "code_block":
                return self.element("pre", token.content)
            case "code_inline":
                return self.element("code", token.content)
            case "hardbreak":
                return "<br>"
            case "softbreak":
                return "\n"
            case "hr":
                return "<hr>"
            case "link_open":
                return self._link(str(token.attrs.get("href", "")))
            case "link_close":
                return "</a>"
            case "image":
                return self.text(f"[image: {token.content} {token.attrs.get('src', '')}]")
            case "paragraph_open" | "paragraph_close" if token.hidden:
                return ""
            case _:
                # The headings of a text are below those of the page.
                tag = "h4" if token.tag in _HEADINGS else token.tag
                if not token.nesting or (tag not in _BLOCKS and tag != "h4"):
                    return self.text(token.content)
                return f"<{tag}>" if token.nesting > 0 else f"</{tag}>"

    def _link(self, address: str) -> str:
        if not _LINK.fullmatch(address):
            return '<a class="quiet">'
        return f'<a href="{self.text(address)}" rel="noopener noreferrer nofollow">'
