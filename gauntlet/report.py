"""Write docs/comparison.md and docs/pictures/comparison.svg from the verdicts of `gauntlet.run --times 3`.

usage: python -m gauntlet.report [--note FILE] [VERDICTS...]

A note says how the verdicts were put together, when they are not those of one clean run.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tomllib
from collections import defaultdict
from datetime import UTC, datetime
from html import escape
from pathlib import Path

import msgspec

from gauntlet.environment import BUILD, ROOT, version_of
from gauntlet.run import SUBJECTS, subject_of
from gauntlet.scenario import Scenario, load
from gauntlet.verdict import Verdict

PAGE = ROOT / "docs" / "comparison.md"
PICTURE = ROOT / "docs" / "pictures" / "comparison.svg"
REMEDIES = Path(__file__).with_name("remedies.toml")
WORDS = {
    "lost": "lost",
    "late_seconds": "s late",
    "exit_seconds": "s to exit",
    "processes": "processes left",
    "false_completed": "false “completed”",
    "requests": "calls",
    "over_requests": "calls over",
    "over_spawns": "children over",
    "over_depth": "levels over",
    "over_bytes": "bytes over",
    "repeats": "repeated",
    "paid_twice": "paid twice",
    "secrets": "shown",
    "hidden": "hidden",
}
KINDS = {"deputy_library": "library", "deputy_cli": "program", "claude_code": "program", "codex_cli": "program"}
"""Peers of one kind are compared; all others are libraries."""
Cells = dict[tuple[str, str], list[Verdict]]


def cells_of(verdicts: list[Verdict]) -> Cells:
    """The verdicts of all runs, by scenario and subject."""
    cells: Cells = defaultdict(list)
    for verdict in verdicts:
        cells[verdict.scenario, verdict.subject].append(verdict)
    return cells


def worst(runs: list[Verdict]) -> Verdict:
    """The verdict of a cell: a miss in one run is a miss."""
    return next((one for one in runs if one.verdict == "missed"), runs[0])


def unstable(cells: Cells) -> list[str]:
    """The cells whose runs differ."""
    return [f"{one} of {two}" for (one, two), runs in cells.items() if len({run.verdict for run in runs}) > 1]


def short(verdict: Verdict) -> str:
    """A cell of the table."""
    if verdict.verdict == "held":
        return "✓"
    if verdict.verdict == "not offered":
        return "–"
    numbers = [f"{verdict.counters[name]:,.0f} {WORDS[name]}" for name in verdict.over if verdict.counters.get(name)]
    if "hung" in verdict.over:
        numbers = ["did not end"]
    return f"✗ {', '.join(numbers) or verdict.reason}"


def better_peers(cells: Cells, subjects: list[str], scenario: str) -> tuple[list[str], list[str]]:
    """The subjects of Deputy that a peer outdoes in a scenario, and those peers."""
    peers = [name for name in subjects if not name.startswith("deputy")]
    held = [name for name in peers if worst(cells[scenario, name]).verdict == "held"]
    behind: list[str] = []
    for name in subjects:
        if name.startswith("deputy"):
            verdict = worst(cells[scenario, name]).verdict
            alike = [one for one in held if KINDS.get(one, "library") == KINDS.get(name)]
            if (verdict == "missed" and held) or (verdict == "not offered" and alike):
                behind.append(name)
    return behind, held if behind else []


def page(cells: Cells, scenarios: dict[str, Scenario], subjects: list[str], runs: int, note: str = "") -> str:
    """The Markdown page."""
    titles = {name: subject_of(name).TITLE for name in subjects}
    remedies = tomllib.loads(REMEDIES.read_text())
    behind_lines: list[str] = []
    for scenario in scenarios.values():
        behind, held = better_peers(cells, subjects, scenario.name)
        if behind:
            who = f"{', '.join(titles[one] for one in behind)}; {', '.join(titles[one] for one in held)} held"
            behind_lines.append(f"- **{scenario.title}** ({who}). {remedies[scenario.name]}")
    heads = ["scenario", *(titles[name] for name in subjects)]
    rows = [[one.title, *(short(worst(cells[one.name, name])) for name in subjects)] for one in scenarios.values()]
    counts = [
        [kind, *(str(sum(worst(cells[one, name]).verdict == kind for one in scenarios)) for name in subjects)]
        for kind in ("held", "missed", "not offered")
    ]
    lacks = [
        f"| {titles[name]} | {reason} | {', '.join(names)} |"
        for name in subjects
        for reason, names in reasons(cells, scenarios, name).items()
    ]
    differ = unstable(cells)
    stable = "gave the same verdicts" if not differ else f"differ in {len(differ)}: {', '.join(differ)}"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=-1, text=True, check=True).stdout
    made = f"{datetime.now(UTC):%Y-%m-%d}, commit {commit.strip()}, Python {platform.python_version()}, Linux"
    return PAGE_TEXT.format(
        scenarios=len(scenarios),
        behind="\n".join(behind_lines) or "- None.",
        made=made,
        runs=f"{runs} verdicts each, put together as below"
        if note
        else f"{runs} runs {stable}"
        if runs > 1
        else "One run",
        note=f"{note}\n" if note else "",
        versions="\n".join(f"| {titles[name]} | {version_of(name)} |" for name in subjects),
        table=table(heads, rows),
        counts=table(["", *heads[1:]], counts),
        lacks="\n".join(lacks),
    )


def reasons(cells: Cells, scenarios: dict[str, Scenario], subject: str) -> dict[str, list[str]]:
    """What a subject does not offer: the scenarios by reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in scenarios:
        verdict = worst(cells[name, subject])
        if verdict.verdict == "not offered":
            found[verdict.reason].append(name)
    return found


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


PAGE_TEXT = """# Deputy and its peers under faults

`make gauntlet-report` writes this page. {scenarios} scenarios, each with a hostile provider, tool or signal on one
machine, run through Deputy and through what people use instead: agent frameworks by their public API, coding agents
as programs, each with its documented settings for limits. Verdicts come from counting, at the provider, in what
reached the caller, and in `/proc`. The scenarios, the counters and one file per subject are in `gauntlet/` of the
repository.

![Verdicts of all subjects](pictures/comparison.svg)

## Where a peer does better

{behind}

## Verdicts

✓ held · ✗ missed, with the numbers · – not offered: the subject has no setting for it, or a program would write it
itself.
{runs} ({made}).

{table}

{counts}

{note}## What is not offered

| subject | reason | scenarios |
| --- | --- | --- |
{lacks}

## Versions

| subject | version |
| --- | --- |
{versions}

## What this does not show

Scripted models answer at once, so nothing here is about speed, prices or the quality of answers. A scenario shows one
fault at one moment; the tests and campaigns of Deputy cover more moments. Limits are small, so that trials are short:
a subject whose smallest limit is larger counts as not offering it. The authors of Deputy chose the scenarios.
Corrections to a subject's file are welcome. """

# --- the picture ------------------------------------------------------------------------------------------------------

LEFT, TOP, WIDTH, HEIGHT = 440, 130, 62, 22
COLOURS = {"held": "#2e7d32", "missed": "#c62828", "not offered": "#9e9e9e"}
MARKS = {"held": "✓", "missed": "✗", "not offered": "–"}


def picture(cells: Cells, scenarios: dict[str, Scenario], subjects: list[str]) -> str:
    """The verdicts as an SVG: marks and colours, readable on light and dark pages."""
    wide, high = LEFT + WIDTH * len(subjects) + 60, TOP + HEIGHT * len(scenarios) + 46
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" font-family="sans-serif" font-size="13">',
        "<title>Verdicts of all subjects in all scenarios</title>",
        f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
    ]
    for column, name in enumerate(subjects):
        x = LEFT + WIDTH * column + WIDTH // 2
        title = escape(subject_of(name).TITLE)
        weight = ' font-weight="bold"' if name.startswith("deputy") else ""
        parts.append(f'<text transform="translate({x},{TOP - 8}) rotate(-40)" fill="#222222"{weight}>{title}</text>')
    for row, scenario in enumerate(scenarios.values()):
        y = TOP + HEIGHT * row
        if row % 2 == 0:
            parts.append(f'<rect y="{y}" width="{wide}" height="{HEIGHT}" fill="#f4f4f4"/>')
        parts.append(f'<text x="8" y="{y + 15}" fill="#222222" font-size="12">{escape(scenario.title)}</text>')
        for column, name in enumerate(subjects):
            verdict = worst(cells[scenario.name, name])
            x = LEFT + WIDTH * column
            parts.append(
                f'<rect x="{x + 6}" y="{y + 2}" width="{WIDTH - 12}" height="{HEIGHT - 4}" rx="3" '
                f'fill="{COLOURS[verdict.verdict]}"><title>{escape(short(verdict))}</title></rect>'
                f'<text x="{x + WIDTH // 2}" y="{y + 16}" text-anchor="middle" fill="#ffffff">'
                f"{MARKS[verdict.verdict]}</text>"
            )
    y = TOP + HEIGHT * len(scenarios) + 16
    parts.append(f'<text x="8" y="{y}" fill="#222222" font-weight="bold">held</text>')
    for column, name in enumerate(subjects):
        held = sum(worst(cells[one, name]).verdict == "held" for one in scenarios)
        x = LEFT + WIDTH * column + WIDTH // 2
        parts.append(f'<text x="{x}" y="{y}" text-anchor="middle" fill="#222222" font-weight="bold">{held}</text>')
    legend = " · ".join(f"{MARKS[kind]} {kind}" for kind in COLOURS)
    parts.append(f'<text x="8" y="{y + 22}" fill="#555555" font-size="12">{legend}</text></svg>')
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write the page and the picture."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--note", type=Path)
    parser.add_argument("verdicts", type=Path, nargs="*", default=[BUILD / "verdicts.json"])
    options = parser.parse_args()
    sources: list[Path] = options.verdicts
    verdicts = [one for source in sources for one in msgspec.json.decode(source.read_bytes(), type=list[Verdict])]
    scenarios = load()
    cells = cells_of(verdicts)
    subjects = [name for name in SUBJECTS if all((one, name) in cells for one in scenarios)]
    runs = min(len(found) for found in cells.values())
    note = options.note.read_text() if options.note else ""
    PAGE.write_text(page(cells, scenarios, subjects, runs, note))
    PICTURE.write_text(picture(cells, scenarios, subjects))
    print(f"wrote {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")
    for one in unstable(cells):
        print(f"the runs differ: {one}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
