"""Run the tests nearest to the files on which safety rests, and print the branch coverage of each file.

usage: python -m tests.mutants.coverage_report [--jobs 2] [--file guard]
"""

import argparse
import json
import subprocess
import sys

from coverage import CoverageData
from coverage.exceptions import CoverageException
from tests.mutants.core_files import FILES
from tests.mutants.planted import ROOT

GOAL = 95.0
REPORT, DATA, SETTINGS = (ROOT / f"build/coverage-core.{kind}" for kind in ("json", "data", "ini"))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--file", default="", help="only files with this in their path")
    options = parser.parse_args()
    files = [file for file in FILES if options.file in file]
    tests = sorted({path for file in files for path in FILES[file]})
    REPORT.parent.mkdir(exist_ok=True)
    SETTINGS.write_text(
        f"[run]\nbranch = true\ndata_file = {DATA}\ninclude =\n" + "".join(f"    {file}\n" for file in files)
    )
    # Tracing makes the slowest tests several times slower.
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--timeout=900",
        "--processes",
        str(options.jobs),
    ]
    covered = [f"--cov-config={SETTINGS}", "--cov", "--cov-context=test", f"--cov-report=json:{REPORT}"]
    code = subprocess.run([*command, *covered, *tests], cwd=ROOT, check=False).returncode
    if code:
        return code
    found = json.loads(REPORT.read_text())["files"]
    short = 0
    for file in files:
        percent, lines = found[file]["summary"]["percent_covered"], found[file]["missing_lines"]
        short += percent < GOAL
        branches = [f"{start}→{end}" for start, end in found[file]["missing_branches"] if start not in lines]
        missing = ", ".join([*map(str, lines), *branches])
        print(f"{'ok   ' if percent >= GOAL else 'SHORT'} {percent:5.1f} %  {file}  {missing[:100]}")
    print(f"{len(files) - short} of {len(files)} files have at least {GOAL:g} % of their lines and branches covered")
    return int(short > 0)


def tests_by_line(file: str) -> dict[int, list[str]]:
    """Which tests reached each line of a file in the last run; nothing if the file or a test is newer than the run."""
    paths = [ROOT / file, *(path for tests in FILES[file] for path in [ROOT / tests, *(ROOT / tests).rglob("*.py")])]
    try:
        if max(path.stat().st_mtime for path in paths if path.is_file()) > DATA.stat().st_mtime:
            return {}
        data = CoverageData(str(DATA))
        data.read()
        found = data.contexts_by_lineno(str(ROOT / file))
    except (OSError, CoverageException):
        return {}
    # A line that runs while its module is imported has no test, and so no entry: every test depends on it.
    return {
        line: sorted({context.partition("|")[0].partition("[")[0] for context in contexts})
        for line, contexts in found.items()
        if all(contexts)
    }


if __name__ == "__main__":
    sys.exit(main())
