"""Ask a small model on this machine the twenty questions about the sample project, and count its answers.

usage: python -m tests.local_model.try_questions FOLDER [--seeds 1,2,3] [--threads 2] [--window 8192] [--only 3,7]
  [--show] (the whole conversations)
"""

import argparse
import asyncio
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from collections import Counter
from pathlib import Path

from tests.local_model.unpack import WEIGHTS

from deputy import Deputy, Outcome, Progress, Task

HERE = Path(__file__).parent
MODEL = "qwen2.5-coder-1.5b"
SETTINGS = """[providers.llamacpp.models."{model}"]
seed = {seed}
temperature = 0.2
max_output = 500
"""
SECONDS = 1200
"""For one question, on a slow machine."""
START_SECONDS = 120
LOOKS = frozenset({"Read", "Grep"})
"""The tools that look into a file."""


def judged(question: dict, outcome: Outcome, calls: list[Progress]) -> str:
    """The class of an answer: right, wrong, no call or no evidence."""
    failed = {id(call) for call in calls if call.event == "tool_error"}
    looks = sum(call.event == "tool_call" and call.tool in LOOKS for call in calls)
    has_looked = looks > sum(call.tool in LOOKS for call in calls if id(call) in failed)
    if outcome.status == "completed" and not has_looked:
        # A listing of the folder answers a question about the folder.
        listed = question.get("by_listing") and any(call.event == "tool_call" for call in calls)
        if not listed:
            return "claimed without evidence"
    if not any(call.event == "tool_call" for call in calls):
        return "no call"
    found = all(re.search(pattern, outcome.report, re.I) for pattern in question["answer"])
    is_wrong = any(re.search(pattern, outcome.report, re.I) for pattern in question.get("wrong", ()))
    return "right" if outcome.status == "completed" and found and not is_wrong else "wrong"


async def ask(question: dict, number: int) -> tuple[str, Outcome, list[Progress]]:
    calls: list[Progress] = []

    def watch(progress: Progress) -> None:
        if progress.event in ("tool_call", "tool_error"):
            calls.append(progress)

    task = Task(label=f"question-{number}", prompt=question["task"], timeout=SECONDS)
    async with Deputy(
        f"llamacpp:{MODEL}", workspace=HERE / "project", watch=watch, inline=False, fallback=False
    ) as deputy:
        (outcome,) = await deputy.delegate([task])
    return judged(question, outcome, calls), outcome, calls


def print_conversation(home: Path, outcome: Outcome) -> None:
    for file in (home / "subagent").glob(f"*{outcome.session_id}*.transcript.json"):
        for message in json.loads(file.read_text())["messages"]:
            calls = [call["arguments"] for call in message.get("tool_calls", ())]
            print(f"    {message['role']}: {message['content'][:1500]} {calls or ''}".replace("\n", "\n      "))


async def ask_all(questions: list[tuple[int, dict]], seed: int, *, show: bool) -> Counter[str]:
    counts: Counter[str] = Counter()
    for number, question in questions:
        begun = time.monotonic()
        kind, outcome, calls = await ask(question, number)
        counts[kind] += 1
        names = " ".join(f"{call.tool}{'!' if call.event == 'tool_error' else ''}" for call in calls) or "-"
        said = " ".join(outcome.report.split())[:70]
        seconds = time.monotonic() - begun
        if show:
            print_conversation(Path(os.environ["DEPUTY_HOME"]), outcome)
        print(f"{seed}.{number:02} {kind:24} {outcome.status:9} {seconds:4.0f} s  {names}  | {said}", flush=True)
    return counts


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_server(folder: Path, window: int, threads: int, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """The server on a free port, when it answers."""
    port = free_port()
    command = [sys.executable, str(HERE / "serve.py"), str(folder / WEIGHTS), str(port), str(window), str(threads)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with log.open("wb") as output:
        server = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    address = f"http://127.0.0.1:{port}/v1"
    for _ in range(START_SECONDS):
        time.sleep(1)
        if server.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{address}/models", timeout=1):
                return server, address
        except OSError:
            continue
    server.kill()
    sys.exit(f"The server did not start; see {log}.")


def run(arguments: argparse.Namespace, home: Path) -> None:
    questions = list(enumerate(tomllib.loads((HERE / "questions.toml").read_text())["question"], 1))
    if arguments.only:
        questions = [(number, question) for number, question in questions if str(number) in arguments.only.split(",")]
    log = Path(arguments.folder) / "server.log"
    server, address = start_server(Path(arguments.folder), arguments.window, arguments.threads, log)
    os.environ |= {"HOME": str(home), "DEPUTY_HOME": str(home / "deputy"), "LLAMACPP_BASE_URL": address}
    config = home / ".config" / "deputy" / "config.toml"
    config.parent.mkdir(parents=True)
    totals: list[Counter[str]] = []
    try:
        for seed in map(int, arguments.seeds.split(",")):
            config.write_text(SETTINGS.format(model=MODEL, seed=seed))
            totals.append(asyncio.run(ask_all(questions, seed, show=arguments.show)))
    finally:
        server.kill()
        server.wait()
    print(f"\nof {len(questions)} questions, per seed, and the median:")
    for kind in ("right", "wrong", "no call", "claimed without evidence"):
        counts = [total[kind] for total in totals]
        print(f"  {kind:26}{'  '.join(map(str, counts))}   median {statistics.median(counts):g}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--window", type=int, default=8192)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true")
    home = Path(tempfile.mkdtemp(prefix="deputy-local-model-"))
    try:
        run(parser.parse_args(), home)
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
