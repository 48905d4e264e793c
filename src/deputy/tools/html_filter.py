"""A script: reads HTML from standard input, writes title and Markdown to standard output.

It runs in its own process because the converter holds the GIL, and a hostile page could make it slow or crash it.
"""

from __future__ import annotations

import resource
import sys

_MEMORY_BYTES = 1024 * 1024 * 1024
_CPU_SECONDS = 20


def main() -> None:
    """Convert within limits of memory and CPU time, which hold even if the parent process is dead."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    from html_to_markdown import ConversionOptions, InlineDataMedia, convert

    html = sys.stdin.buffer.read().decode("utf-8", "replace").replace("\0", "")
    result = convert(html, ConversionOptions(inline_data_media=InlineDataMedia.ALT_TEXT_ONLY))
    title = " ".join((result.metadata.document.title or "").split())
    content = result.content or ""
    if content.startswith("---\n"):
        content = content.partition("\n---\n")[2]
    sys.stdout.buffer.write(f"{title}\n{content.strip()}".encode("utf-8", "replace"))


if __name__ == "__main__":
    main()
