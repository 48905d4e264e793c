"""Fuzz the readers of hostile input with atheris, guided by coverage.

usage: python -m tests.fuzz.run [--runs 100000] [--seconds 600] [--only sse,config] [--keep]
"""

import argparse
import base64
import hashlib
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/fuzz"
CORPUS = ROOT / "tests/corpus/fuzz"
LONGEST = 1024
KEPT_INPUTS, KEPT_BYTES = 60, 600


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=int, default=0, help="end each target after so many seconds; 0 means never")
    parser.add_argument("--only", default="")
    parser.add_argument("--keep", action="store_true", help="write small inputs that cover most to tests/corpus/fuzz")
    parser.add_argument("--fuzz", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fuzz:
        return fuzz(options.fuzz, options.runs, options.seconds)
    from tests.fuzz.targets import TARGETS

    chosen = [name for name in options.only.split(",") if name] or list(TARGETS)
    if unknown := set(chosen) - set(TARGETS):
        print(f"no target is called {', '.join(sorted(unknown))}; there are: {', '.join(TARGETS)}")
        return 2
    failed = 0
    for name in chosen:
        began = time.monotonic()
        command = [sys.executable, "-m", "tests.fuzz.run", "--fuzz", name]
        command += ["--runs", str(options.runs), "--seconds", str(options.seconds)]
        folder(name)
        with (BUILD / f"{name}.log").open("w") as log:
            code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log, check=False).returncode
        seconds = time.monotonic() - began
        count = inputs_run((BUILD / f"{name}.log").read_text(errors="replace"))
        print(f"{name:12} {count:>10,} inputs  {seconds:6.0f} s  {'ok' if not code else 'FAILED'}", flush=True)
        if code:
            failed += 1
            print(
                "".join(
                    f"  {line}\n" for line in (BUILD / f"{name}.log").read_text(errors="replace").splitlines()[-40:]
                )
            )
        elif options.keep:
            keep(name)
    return int(failed > 0)


def inputs_run(log: str) -> int:
    """How many inputs a target has read, by its log."""
    found = re.findall(r"^stat::number_of_executed_units: (\d+)|^#(\d+)", log, re.MULTILINE)
    return max((int(total or number) for total, number in found), default=0)


def folder(name: str) -> Path:
    """The folder of a target's inputs, with what is known so far."""
    from tests.fuzz.targets import TARGETS

    inputs = BUILD / name
    inputs.mkdir(parents=True, exist_ok=True)
    target = TARGETS[name]
    files = [path.read_bytes() for pattern in target.files for path in sorted((ROOT / "tests").glob(pattern))]
    if name == "sse":
        # The first two bytes are the protocol and the size of the pieces.
        files = [bytes([number, 80]) + seed for number, seed in enumerate(files)]
    for data in (*kept(name), *files, *target.examples):
        (inputs / hashlib.sha1(data).hexdigest()).write_bytes(data[:LONGEST])
    words = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in target.words)
    (BUILD / f"{name}.dict").write_text("".join(f'"{word}"\n' for word in words))
    return inputs


def kept(name: str) -> list[bytes]:
    """The inputs in the repository."""
    path = CORPUS / f"{name}.txt"
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def keep(name: str) -> None:
    """Keep a few small inputs of the last run; those that are kept already stay."""
    before = kept(name)
    found = sorted((path.read_bytes() for path in (BUILD / name).iterdir()), key=lambda data: (-len(set(data)), data))
    new = [data for data in found if len(data) <= KEPT_BYTES and data not in before][
        : max(0, KEPT_INPUTS - len(before))
    ]
    lines = [base64.b64encode(data).decode() for data in (*before, *new)]
    (CORPUS / f"{name}.txt").write_text("\n".join(lines) + "\n")


def fuzz(name: str, runs: int, seconds: int) -> int:
    """Fuzz one target in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["deputy", "yaml", "tomllib", "msgspec"]):
        from tests.fuzz.targets import TARGETS

    arguments = [
        sys.argv[0],
        f"-runs={runs}",
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST}",
        f"-dict={BUILD / f'{name}.dict'}",
        f"-artifact_prefix={BUILD}/{name}-",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        str(BUILD / name),
    ]
    atheris.Setup(arguments, TARGETS[name].read)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
