"""Print the size of the source, duplicate names and vague words beside their limits; exit 1 when one is over."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
VAGUE = re.compile(r"\b(whoever|somebody|nobody|anybody)\b", re.IGNORECASE)
CONVENTIONAL = {"__init__.py", "__main__.py", "__init__.pyi"}
LONGEST_FILE, LONGEST_FUNCTION = 500, 80
SHOWN = 12


class Count(NamedTuple):
    """One figure, its limit, and what it counts."""

    name: str
    limit: int
    found: int
    places: list[str]


def main() -> int:
    """Print every count; the exit code says whether all of them are within their limits."""
    files = sorted(SOURCE.rglob("*.py"))
    trees = {path: ast.parse(path.read_text("utf-8")) for path in files}
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in files}
    names = _twice(path.name for path in files if path.name not in CONVENTIONAL)
    classes = _twice(name for tree in trees.values() for name in _public_classes(tree))
    long_files = [f"{_short(path)} ({count})" for path, count in lines.items() if count > LONGEST_FILE]
    long_functions = [found for path, tree in trees.items() for found in _long_functions(path, tree)]
    in_source = _vague(path for path in SOURCE.rglob("*") if path.suffix in (".py", ".md", ".toml"))
    in_docs = _vague([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    # The process of the command line is ours; the process of a program that imports the library is not.
    library = [path for path in files if path.name != "__main__.py"]
    thresholds = [_short(path) for path in library if "gc.set_threshold" in path.read_text("utf-8")]
    counts = [
        Count("files in src", 330, len(files), []),
        Count("lines in src", 50_000, sum(lines.values()), []),
        Count("file names used twice", 12, len(names), names),
        Count("public class names used twice", 10, len(classes), classes),
        Count("vague pronouns in src", 25, len(in_source), in_source),
        Count("vague pronouns in docs", 10, len(in_docs), in_docs),
        Count(f"files over {LONGEST_FILE} lines", 0, len(long_files), long_files),
        Count(f"functions over {LONGEST_FUNCTION} lines", 0, len(long_functions), long_functions),
        Count("gc.set_threshold in the library", 0, len(thresholds), thresholds),
    ]
    for count in counts:
        mark = "ok  " if count.found <= count.limit else "OVER"
        sys.stdout.write(f"{mark} {count.name:34} {count.found:>7,}  (at most {count.limit:,})\n")
        if count.found > count.limit or "-v" in sys.argv:
            more = len(count.places) - SHOWN
            for place in count.places if "-v" in sys.argv else count.places[:SHOWN]:
                sys.stdout.write(f"       {place}\n")
            if more > 0 and "-v" not in sys.argv:
                sys.stdout.write(f"       … and {more} more (-v shows all)\n")
    return int(any(count.found > count.limit for count in counts))


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _twice(names: Iterable[str]) -> list[str]:
    return [f"{name} ×{count}" for name, count in Counter(names).most_common() if count > 1]


def _public_classes(tree: ast.Module) -> list[str]:
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def _long_functions(path: Path, tree: ast.Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > LONGEST_FUNCTION:
                found.append(f"{_short(path)}:{node.lineno} {node.name} ({length})")
    return found


def _vague(paths: Iterable[Path]) -> list[str]:
    return [
        f"{_short(path)}:{number} {hit.group()}"
        for path in sorted(paths)
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for hit in VAGUE.finditer(line)
    ]


if __name__ == "__main__":
    sys.exit(main())
