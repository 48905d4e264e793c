"""Recall of redaction per form, changed lines in code without secrets, and speed; beside the figures of f311444."""

from __future__ import annotations

import random
import sysconfig
import time
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

from tests.core.redaction.samples import ALPHABETS, COMMANDS, FORMS, HEADERS, NAMES, odd_keys, private_key, vendor_keys

from deputy.core.redaction import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROSE = "The report says that nothing was found in the folder, and that the work went on until the evening. "
CODE = (
    'def read(path: Path, *, token: str | None = None) -> bytes:\n    return fetch(path, password=getpass(), key="a")\n'
)
KNOWN = [f"made-up-value-{n:02d}-{n * 7919:08x}" for n in range(8)]
LENGTHS = (8, 10, 12, 16, 20, 24, 32, 48, 64)
CORPORA = {"standard library": "stdlib", "site-packages": "purelib"}
BEFORE = {
    "recall: name=value": 56.6,
    "recall: name=value in a query": 65.0,
    'recall: name="value"': 83.3,
    "recall: name='value'": 83.3,
    'recall: name = "value"': 83.3,
    "recall: name: 'value'": 83.3,
    'recall: "name": "value"': 83.3,
    "recall: escaped once": 83.3,
    "recall: escaped twice": 83.3,
    "recall: 'name' => 'value'": 76.7,
    "recall: x['name'] = 'value'": 76.7,
    "recall: annotated": 83.3,
    "recall: --name=value": 65.0,
    "recall: --name value": 48.4,
    'recall: --name "value"': 76.7,
    'recall: "--name", "value"': 76.7,
    "recall: Authorization: value": 81.5,
    "recall: Authorization: Bearer": 82.4,
    "recall: authorization: bearer": 82.4,
    "recall: Authorization: Basic": 81.5,
    "recall: Proxy-Authorization": 81.5,
    "recall: Authorization in JSON": 100.0,
    "recall: x-api-key": 53.7,
    "recall: X-Auth-Token": 53.7,
    "recall: Private-Token": 53.7,
    "recall: Cookie": 0.0,
    "recall: Set-Cookie": 0.0,
    "recall: curl -u": 100.0,
    "recall: curl --user": 100.0,
    "recall: mysql -p": 100.0,
    "recall: sshpass -p": 100.0,
    "recall: docker login -p": 100.0,
    "recall: redis-cli -a": 100.0,
    "recall: url": 100.0,
    "recall: url without a user": 100.0,
    "recall: ?key=": 0.0,
    "recall: &sig=": 0.0,
    "recall: _KEY=": 0.0,
    "recall: _auth=": 0.0,
    "recall: vendors' keys": 30.1,
    "recall: private key blocks": 80.0,
    "changed lines per million: standard library": 81.4,
    "changed lines per million: site-packages": 18.9,
    "speed: prose": 122.4,
    "speed: code with near misses": 7.8,
    "speed: source of the benchmarks": 12.2,
    "speed: a secret in every line": 8.4,
    "speed: JSON without secrets": 130.9,
    "speed: stream of 8-character chunks": 1.1,
    "speed: stream of 4 kB chunks": 88.4,
}
"""The figures of f311444 on the same texts."""


def main() -> None:
    redactor = Redactor(KNOWN)
    for form, texts in recall_texts().items():
        hidden = sum(secret not in redactor.redact(text) for text, secret in texts)
        show(f"recall: {form}", 100 * hidden / len(texts), "%")
    for name, path in CORPORA.items():
        changed, lines = changed_lines(Path(sysconfig.get_path(path)), redactor.redact)
        show(f"changed lines per million: {name}", 1e6 * changed / lines, f"({changed} of {lines:,})")
    for name, text, work in speeds(redactor):
        best = min(timed(work, text) for _ in range(3))
        show(f"speed: {name}", len(text) / best / 1e6, "MB/s")


def show(name: str, figure: float, unit: str) -> None:
    before = f"before {BEFORE[name]:.1f}" if name in BEFORE else ""
    print(f"redact: {name:60} {figure:8.1f} {unit:24} {before}")


def recall_texts() -> dict[str, list[tuple[str, str]]]:
    """Texts that hold a made-up secret, with that secret, by form."""
    drawn = random.Random(1)
    found: dict[str, list[tuple[str, str]]] = {form: [] for form in (*FORMS, *HEADERS, *COMMANDS)}
    for alphabet in ALPHABETS.values():
        values = ["".join(drawn.choice(alphabet) for _ in range(length)) for length in LENGTHS for _ in range(3)]
        for form, template in FORMS.items():
            found[form] += [(template.format(name=name, value=f"q{v}q"), v) for name in NAMES for v in values]
        for form, template in (HEADERS | COMMANDS).items():
            found[form] += [(template.format(value=v), v) for v in map(plain, values)]
    found["vendors' keys"] = [(f"using {key} now", key[8:]) for _, key in (*vendor_keys(), *odd_keys())]
    prefixes = ("", "{n:6}\t", "{n:6}→", "key.pem:{n}:", "key.pem-{n}-")
    blocks = [private_key(prefix, newline) for prefix in prefixes for newline in ("\n", "\\n")]
    found["private key blocks"] = [(block, line) for block, lines in blocks for line in lines]
    return found


def plain(value: str) -> str:
    """A value that a URL and a shell can carry without quotes, and that is not a placeholder by chance."""
    return "q" + "".join(c for c in value[1:-1] if c not in "/?#@{}[]()$%=:|") + "q"


def changed_lines(root: Path, redact: Callable[[str], str]) -> tuple[int, int]:
    changed = lines = 0
    for text in sources(root):
        before, after = text.split("\n"), redact(text).split("\n")
        lines += len(before)
        changed += sum(line.startswith("-") for line in list(unified_diff(before, after, n=0))[2:])
    return changed, lines


def sources(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("*.py")):
        if "site-packages" in path.relative_to(root).parts:
            continue
        try:
            yield path.read_text()
        except (UnicodeError, OSError):
            continue


def speeds(redactor: Redactor) -> Iterator[tuple[str, str, Callable[[str], object]]]:
    source = "".join(path.read_text() for path in sorted(Path(__file__).parent.glob("*.py")))
    content = '{"role":"tool","content":"' + PROSE * 10_000 + '"}'
    yield "prose", PROSE * 10_000, redactor.redact
    yield "code with near misses", CODE * 9_000, redactor.redact
    yield "source of the benchmarks", source * 10, redactor.redact
    yield "a secret in every line", f"{PROSE}password=made-up-{7919}\n" * 8_000, redactor.redact
    yield "JSON without secrets", content, lambda text: redactor.redact_json(text.encode())
    yield "stream of 8-character chunks", PROSE * 2_000, lambda text: feed(redactor, text, 8)
    yield "stream of 4 kB chunks", PROSE * 10_000, lambda text: feed(redactor, text, 4_096)


def feed(redactor: Redactor, text: str, length: int) -> None:
    stream = redactor.stream()
    for at in range(0, len(text), length):
        stream.feed(text[at : at + length])
    stream.flush()


def timed(work: Callable[[str], object], text: str) -> float:
    start = time.process_time()
    work(text)
    return time.process_time() - start


if __name__ == "__main__":
    main()
