"""Figures of detection: CPU seconds for hostile texts of growing size, and what the command costs to start.

python bench/detect.py [MEGABYTES ...]    default: 1 2 4 8 10
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from deputy.core.detect import detect

if TYPE_CHECKING:
    from collections.abc import Callable

TRIGGER = "**Try to use Task tool to spawn a subprocess:**\n\n"


def filled(unit: str, *, before: str = "", after: str = "") -> Callable[[int], str]:
    """A text of a given size that repeats a unit."""
    return lambda size: before + unit * (size // len(unit)) + after


def nested(size: int) -> str:
    depth = size // len("<delegate>\n</delegate>\n")
    return "<delegate>\n" * depth + "</delegate>\n" * depth


SHAPES: dict[str, Callable[[int], str]] = {
    "plain prose": filled("The quick brown fox jumps over the lazy dog. It runs away.\n"),
    "one line": filled("a"),
    "spaces": filled(" "),
    "line ends": filled("\n"),
    "quotes": filled('"\n'),
    "quotes after a trigger": filled('"\n', before=TRIGGER),
    "a quote that never ends": filled("word ", before=TRIGGER + '"'),
    "opening tags": filled("<delegate>"),
    "opening tags on lines": filled("<delegate>\n"),
    "opening tags in code": filled("<delegate>\n", before="`"),
    "unclosed blocks": filled("<delegate>x\n"),
    "tags without an end": filled("<delegate "),
    "attributes without an end": filled('<delegate a="'),
    "closing tags": filled("</delegate>"),
    "nested blocks": nested,
    "empty blocks": filled("<delegate></delegate>"),
    "small blocks": filled("<delegate>do x</delegate>\n"),
    "blocks of ten kilobytes": filled("<delegate>" + "with {a} from src/b.py, return c. " * 300 + "</delegate>"),
    "one large block": filled("word {a} src/x.py with b. Return c.\n", before="<delegate>", after="</delegate>"),
    "a block of line ends": filled("\n ", before="<delegate>x", after="</delegate>"),
    "a block in a quotation": filled("\n>", before="> <delegate>x", after="</delegate>"),
    "parts": filled("<context>a</context>", before="<delegate>", after="<prompt>do x</prompt></delegate>"),
    "unclosed parts": filled("<prompt>", before="<delegate>", after="</delegate>"),
    "comments": filled("<!-- "),
    "triggers without a purpose": filled("try to use task tool "),
    "triggers without a colon": filled("try to use task tool to spawn a subprocess "),
    "triggers without a prompt": filled("try to use task tool to spawn a subprocess:\n"),
    "triggers with a prompt": filled('try to use task tool to spawn a subprocess:\n"do x"\n'),
    "words of a trigger far apart": filled("try to use" + " " * 1000),
    "degradation": filled("**Graceful degradation:**\n", before=TRIGGER + '"do x"\n'),
    "conditions": filled(". If no Task tool ", before=TRIGGER + '"do x"\n'),
    "delegate this": filled("delegate this. "),
    "please delegate this": filled("please delegate this. "),
    "do not delegate this": filled("do not delegate this. "),
    "a sentence that never ends": filled("use a subagent "),
    "requests of a person": filled("Use a subagent to fix src/a.py.\n\n"),
    "models without an end": filled("(model:", before="please delegate this "),
    "braces": filled("{"),
    "braces in a block": filled("{a", before="<delegate>", after="</delegate>"),
    "fences": filled("```\n", after="use a subagent to fix x"),
    "headings": filled("# a\n", after="\ndelegate this."),
    "a list without an end": filled("- a\n\n", before="Please use a subagent to check:\n"),
    "characters beyond ASCII": filled("é «à» … 😀 "),
    "the longest lower case": filled("\u0130"),
}


def seconds(text: str, rounds: int = 1) -> float:
    """CPU seconds that detection takes, the least of some rounds."""
    least = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        detect(text)
        least = min(least, time.process_time() - start)
    return least


def milliseconds_of(*arguments: str) -> float:
    """CPU milliseconds of a Python process, the least of some rounds."""
    least = float("inf")
    for _ in range(15):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least * 1000


def main() -> None:
    sizes = [float(size) for size in sys.argv[1:]] or [1, 2, 4, 8, 10]
    print("CPU seconds by size; growth: seconds of the largest over the smallest, per byte (1.0 is linear)")
    print(f"{'':32}" + "".join(f"{size:>6g} MB" for size in sizes) + "   growth")
    for name, shape in SHAPES.items():
        taken = [seconds(shape(int(size * 1_000_000))) for size in sizes]
        growth = taken[-1] / max(taken[0], 0.001) / (sizes[-1] / sizes[0])
        print(f"{name:32}" + "".join(f"{second:9.2f}" for second in taken) + f"{growth:9.2f}", flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".md") as small:
        small.write("Please use a subagent to check the links in README.md.\n")
        small.flush()
        base = milliseconds_of("-c", "import click, msgspec")
        command = milliseconds_of(
            "-c", "from deputy.interfaces.cli import main; main()", "detect", os.fspath(small.name)
        )
    print(f"deputy detect small.md: {command:.0f} ms CPU, {command - base:.0f} over importing click and msgspec")


if __name__ == "__main__":
    main()
