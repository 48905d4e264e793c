"""CPU per turn and of start-up beside another commit, interleaved; the goal is at most 1.05 times that commit's.

Both commits run the same benchmark with the packages of this environment: only the folder of their source differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from startup import once
from subagents import FILES, RESULT

ROOT = Path(__file__).resolve().parent.parent
BENCH = str(Path(__file__).with_name("subagents.py"))
GOAL = 1.05
SIZES = ((50, 10), (50, 50), (500, 10))
STARTS = {"deputy --help": ["--help"], "deputy ps": ["ps"], "deputy detect": ["detect", "README.md"]}


def sources(commit: str, folder: str) -> dict[str, str]:
    """The source folders of that commit and of this tree."""
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return {commit[:12]: f"{folder}/src", "this tree": str(ROOT / "src")}


def environment(source: str, home: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "", "DEPUTY_HOME": home}


def turns_ms(trees: dict[str, str], count: int, turns: int, rounds: int) -> dict[str, float]:
    """The least CPU per turn of each tree, in milliseconds."""
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(FILES):
            (Path(folder) / f"file_{number}.txt").write_text(RESULT)
        argv = [sys.executable, BENCH, "serve", str(turns), "0"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as provider:
            assert provider.stdout is not None
            url = f"http://127.0.0.1:{provider.stdout.readline().strip()}"
            for number in range(rounds):
                for name in list(trees) if number % 2 else reversed(trees):
                    argv = [sys.executable, BENCH, "ours", url, folder, str(count)]
                    run = subprocess.run(
                        argv, env=environment(trees[name], folder), stdout=subprocess.PIPE, text=True, check=True
                    )
                    used = json.loads(run.stdout.splitlines()[-1])["cpu"] / (count * turns) * 1000
                    best[name] = min(used, best.get(name, used))
            provider.terminate()
    return best


def start_ms(trees: dict[str, str], arguments: list[str], rounds: int) -> dict[str, float]:
    """The least CPU of a whole command of each tree, in milliseconds."""
    best: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as home:
        for number in range(3 * rounds):
            for name in list(trees) if number % 2 else reversed(trees):
                argv = (sys.executable, "-m", "deputy", *arguments)
                used = once(argv, environment(trees[name], home))
                best[name] = min(used, best.get(name, used))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trees = sources(options.commit, folder)
        before, after = trees
        print(f"{f'CPU ms, least of {options.rounds} rounds':34} {before:>12} {after:>10} {'ratio':>7} {'goal':>9}")
        for count, turns in SIZES:
            best = turns_ms(trees, count, turns, options.rounds)
            show(f"a turn, {count} subagents, {turns} turns", best[before], best[after])
        for name, arguments in STARTS.items():
            best = start_ms(trees, arguments, options.rounds)
            show(f"{name}", best[before], best[after])


def show(name: str, before: float, after: float) -> None:
    print(f"{name:34} {before:12.3f} {after:10.3f} {after / before:6.2f}× {f'≤ {GOAL}×':>9}", flush=True)


if __name__ == "__main__":
    main()
