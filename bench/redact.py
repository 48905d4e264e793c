"""How fast secrets are taken out: plain text, text full of near misses, a stream of small chunks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from deputy.core.redaction import Redactor, forms, scan

if TYPE_CHECKING:
    from collections.abc import Callable

PROSE = "The report says that nothing was found in the folder, and that the work went on until the evening. "
CODE = (
    'def read(path: Path, *, token: str | None = None) -> bytes:\n    return fetch(path, password=getpass(), key="a")\n'
)
KNOWN = [f"made-up-value-{n:02d}-{n * 7919:08x}" for n in range(8)]


def main() -> None:
    redactor = Redactor(KNOWN)
    source = "".join(Path(str(module.__file__)).read_text() for module in (forms, scan))
    measure("prose, no trigger", PROSE, redactor.redact)
    measure("code with near misses", CODE, redactor.redact)
    measure("this project's own source", source, redactor.redact)
    measure("a secret in every line", f"{PROSE}password=made-up-{7919}\n", redactor.redact)
    measure(
        "JSON without secrets",
        '{"role":"tool","content":"' + PROSE * 20 + '"}',
        lambda t: redactor.redact_json(t.encode()),
    )
    measure("stream of 8-character chunks", PROSE, lambda text: feed(redactor, text, 8), size=200_000)
    measure("stream of 4 kB chunks", PROSE, lambda text: feed(redactor, text, 4_096))


def feed(redactor: Redactor, text: str, length: int) -> None:
    stream = redactor.stream()
    for at in range(0, len(text), length):
        stream.feed(text[at : at + length])
    stream.flush()


def measure(name: str, piece: str, work: Callable[[str], object], size: int = 1_000_000) -> None:
    text = piece * (size // len(piece) + 1)
    best = min(timed(work, text) for _ in range(3))
    print(f"redact: {name:32} {len(text) / best / 1e6:8.1f} MB/s")


def timed(work: Callable[[str], object], text: str) -> float:
    start = time.perf_counter()
    work(text)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
