"""What the command line costs before it does anything, as CPU time beside the imports it cannot do without."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS = 15


def cpu_ms(*argv: str) -> float:
    """The least CPU time of a child process over several runs: noise only ever adds."""
    return min(once(argv) for _ in range(RUNS))


def once(argv: tuple[str, ...], environment: dict[str, str] | None = None) -> float:
    process = subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # reaped above
    return (usage.ru_utime + usage.ru_stime) * 1000


def main() -> None:
    deputy = str(Path(sys.executable).parent / "deputy")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "small.md"
        small.write_text("Please spawn a subagent to review src/auth.py for security problems. Return JSON.\n")
        rows = [
            ("deputy --help", (deputy, "--help"), "import click", 30),
            ("deputy detect small.md", (deputy, "detect", str(small)), "import click, msgspec", 40),
        ]
        print(f"{'start-up, CPU ms (least of ' + str(RUNS) + ')':42} {'floor':>7} {'ours':>7} {'over':>7} {'goal':>7}")
        for name, argv, floor_imports, goal in rows:
            floor = cpu_ms(sys.executable, "-c", floor_imports)
            ours = cpu_ms(*argv)
            print(f"{name:42} {floor:7.1f} {ours:7.1f} {ours - floor:7.1f} {'≤ ' + str(goal):>7}")


if __name__ == "__main__":
    main()
