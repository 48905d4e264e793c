"""Run the tests of the files on which safety rests, and print the branch coverage of each.

usage: python -m tests.mutants.coverage_report [--jobs 2]
"""

import argparse
import json
import subprocess
import sys

from tests.mutants.core_files import FILES
from tests.mutants.planted import ROOT

GOAL = 95.0
REPORT = ROOT / "build/coverage-core.json"
PACKAGES = ("deputy.core", "deputy.engine", "deputy.journal", "deputy.tools")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    tests = sorted({path for paths in FILES.values() for path in paths})
    covered = [f"--cov={package}" for package in PACKAGES]
    command = [sys.executable, "-m", "pytest", "-n", str(options.jobs), "--cov-branch", f"--cov-report=json:{REPORT}"]
    REPORT.parent.mkdir(exist_ok=True)
    code = subprocess.run([*command, *covered, *tests], cwd=ROOT, check=False).returncode
    if code:
        return code
    found = json.loads(REPORT.read_text())["files"]
    short = 0
    for file in FILES:
        percent, lines = found[file]["summary"]["percent_covered"], found[file]["missing_lines"]
        short += percent < GOAL
        branches = [f"{start}→{end}" for start, end in found[file]["missing_branches"] if start not in lines]
        missing = ", ".join([*map(str, lines), *branches])
        print(f"{'ok   ' if percent >= GOAL else 'SHORT'} {percent:5.1f} %  {file}  {missing[:100]}")
    print(f"{len(FILES) - short} of {len(FILES)} files have at least {GOAL:g} % of their lines and branches covered")
    return int(short > 0)


if __name__ == "__main__":
    sys.exit(main())
