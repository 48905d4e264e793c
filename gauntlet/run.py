"""`make gauntlet`: run subjects through scenarios, count, and print the verdicts.

usage: python -m gauntlet.run [--only NAMES] [--scenario NAMES] [--jobs N] [--times N] [--out FILE]
"""

from __future__ import annotations

import argparse
import http.client
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import msgspec

from gauntlet.environment import BUILD, ROOT, RUNS, python_of
from gauntlet.provider import SECRET
from gauntlet.scenario import PARENT, Scenario, load, prompt_of
from gauntlet.verdict import Observed, Verdict, judge

SUBJECTS = (
    "deputy_library",
    "deputy_cli",
    "deputy_mcp",
    "pydantic_ai_subagents",
    "openai_agents_sdk",
    "langgraph_deepagents",
    "claude_code",
    "codex_cli",
)
MARK = "GAUNTLET_TRIAL"
SETTLE_SECONDS = 10.0


class Provider:
    """The provider's process."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "gauntlet.provider"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Load a trial, or read its counts."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def subject_of(name: str) -> Any:
    """The module of a subject."""
    return importlib.import_module(f"gauntlet.subjects.{name}")


def missing(subject: Any, scenario: Scenario) -> str:
    """Why a subject has no way to do this; empty: it has one."""
    wanted = [scenario.name, *sorted(scenario.limits.asked), *scenario.needs]
    return next((subject.LACKS[one] for one in wanted if one in subject.LACKS), "")


def run_trial(provider: Provider, name: str, scenario: Scenario) -> Verdict:
    """One subject in one scenario."""
    subject = subject_of(name)
    if reason := missing(subject, scenario):
        return Verdict(subject=name, scenario=scenario.name, verdict="not offered", reason=reason)
    place = RUNS / name / scenario.name
    shutil.rmtree(place, ignore_errors=True)
    plan = prepare(place, provider, scenario, python_of(name))
    trial = Path(plan["url"]).name
    provider.ask("POST", f"/{trial}", {"scenario": msgspec.to_builtins(scenario), "dialect": subject.dialect(plan)})
    seen = play(provider, subject, scenario, plan, trial)
    verdict = judge(name, scenario, seen)
    (place / "verdict.json").write_bytes(msgspec.json.format(msgspec.json.encode(verdict)))
    (place / "log.json").write_text(json.dumps(seen.log, indent=1))
    return verdict


def prepare(place: Path, provider: Provider, scenario: Scenario, python: str) -> dict[str, Any]:
    """The folders of a trial, and the plan that the subject gets."""
    for part in ("workspace", "home", "state"):
        (place / part).mkdir(parents=True)
    workspace = place / "workspace"
    (workspace / "plan.txt").write_text("The plan: win.\nThen rest.\nThen go on.\n")
    (workspace / "notes.txt").write_text("A note.\nAnother note.\nThe last note.\n")
    (workspace / "settings.txt").write_text(f"name = demo\nkey = {SECRET}\n")
    if scenario.name == "huge-output":
        (workspace / "huge.txt").write_text("0123456789abcdef" * (10 * 1024 * 1024 // 16))
    tasks = [{"label": scenario.label(one), "prompt": prompt_of(one)} for one in scenario.names]
    plan = {
        "scenario": scenario.name,
        "url": f"http://127.0.0.1:{provider.port}/{uuid.uuid4().hex[:12]}",
        "place": str(place),
        "workspace": str(workspace),
        "home": str(place / "home"),
        "state": str(place / "state"),
        "prompt": f"{PARENT}. Have subagents look into the parts, and then say that all is done.",
        "tasks": tasks,
        "limits": {name: getattr(scenario.limits, name) for name in scenario.limits.asked},
        "needs": list(scenario.needs),
        "is_direct": bool(scenario.many),
        "is_resumed": False,
        "path": str(place / "plan.json"),
        "root": str(ROOT),
        "python": python,
    }
    (place / "plan.json").write_text(json.dumps(plan))
    return plan


def play(provider: Provider, subject: Any, scenario: Scenario, plan: dict[str, Any], trial: str) -> Observed:
    """Start the subject, send the signal, resume it where the scenario says so, and count what is left."""
    started = time.time()
    deadline = started + scenario.seconds
    place = Path(plan["place"])
    with (place / "output.txt").open("wb") as output, (place / "errors.txt").open("wb") as errors:
        process = start(subject, plan, trial, output, errors)
        signalled = 0.0
        if scenario.signal is not None and wait_for_moment(provider, scenario, trial, plan, process, deadline):
            signalled = time.time()
            send(process, scenario.signal.kind)
        was_killed = not wait(process, deadline)
        ended = time.time()
        if was_killed:
            kill_group(process)
        if "resume" in scenario.needs and signalled:
            provider.ask("POST", f"/{trial}/resumed")
            plan["is_resumed"] = True
            Path(plan["path"]).write_text(json.dumps(plan))
            process = start(subject, plan, trial, output, errors)
            was_killed = not wait(process, time.time() + scenario.seconds)
            if was_killed:
                kill_group(process)
    settle = time.time() + SETTLE_SECONDS
    while (left := marked(trial, plan)) and time.time() < settle:
        time.sleep(0.1)
    for pid in left:
        end_process(pid)
    text = "".join((place / one).read_text(errors="replace") for one in ("output.txt", "errors.txt"))
    log = provider.ask("GET", f"/{trial}")["log"]
    return Observed(
        log=log,
        output=text,
        started=started,
        ended=ended,
        signalled=signalled,
        left=0 if was_killed else len(left),
        secret=SECRET,
        was_killed=was_killed,
    )


def start(
    subject: Any, plan: dict[str, Any], trial: str, output: IO[bytes], errors: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a subject in a process group of its own, with nothing of our environment but what it needs."""
    argv, more = subject.command(plan)
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    env = {**kept, "HOME": plan["home"], "NO_COLOR": "1", "TERM": "dumb", MARK: trial, **more}
    return subprocess.Popen(
        argv,
        cwd=plan["workspace"],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
        start_new_session=True,
    )


def wait(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Wait for the end; False at the hard limit."""
    try:
        process.wait(max(1.0, deadline - time.time()))
    except subprocess.TimeoutExpired:
        return False
    return True


def wait_for_moment(
    provider: Provider,
    scenario: Scenario,
    trial: str,
    plan: dict[str, Any],
    process: subprocess.Popen[bytes],
    deadline: float,
) -> bool:
    """Wait for the moment of a signal; False when it never came."""
    moment = scenario.signal
    assert moment is not None
    while time.time() < deadline - 8 and process.poll() is None:
        log = provider.ask("GET", f"/{trial}")["log"]
        asked = {row["child"] for row in log}
        answered = {row["child"] for row in log if row["done"] and time.time() - row["done"] > 1.0}
        runs = not moment.running or any(moment.running == commands(pid).strip() for pid in marked(trial, plan))
        if answered.issuperset(moment.after) and asked.issuperset(moment.asked) and runs:
            return True
        time.sleep(0.1)
    return False


def send(process: subprocess.Popen[bytes], kind: str) -> None:
    """Ctrl-C reaches the whole group, as from a terminal; other signals only the process itself."""
    if kind == "INT":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(getattr(signal, f"SIG{kind}"))


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a subject at the hard limit."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def marked(trial: str, plan: dict[str, Any]) -> list[int]:
    """The processes of a trial, by a variable that they inherit, or by the home or folder that they work in."""
    mark, place = f"{MARK}={trial}".encode(), f"{plan['place']}/"
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                environ = (entry / "environ").read_bytes()
                is_ours = (
                    mark in environ or place.encode() in environ or f"{(entry / 'cwd').readlink()}/".startswith(place)
                )
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if is_ours and state not in "ZX":
                found.append(int(entry.name))
    return found


def commands(pid: int) -> str:
    """The command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def end_process(pid: int) -> None:
    """End what a subject left behind."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def shown(verdict: Verdict) -> str:
    """One line of the report."""
    numbers = " ".join(f"{name}={value:g}" for name, value in verdict.counters.items())
    mark = {"held": "✓", "missed": "✗", "not offered": "–"}[verdict.verdict]
    tail = verdict.reason if not verdict.over else f"[{', '.join(verdict.over)}] {verdict.reason}"
    return f"{mark} {verdict.subject:<15} {verdict.scenario:<27} {verdict.verdict:<12} {numbers} {tail}".rstrip()


def main() -> int:
    """Run what the arguments name."""
    # A shell starts background jobs with SIGINT ignored, and subjects would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--scenario", default="")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--out", type=Path, default=BUILD / "verdicts.json")
    options = parser.parse_args()
    only = [one for one in options.only.split(",") if one]
    subjects = [name for name in SUBJECTS if not only or any(name.startswith(one) for one in only)]
    picked = [one for one in options.scenario.split(",") if one]
    every = load()
    if unknown := [*(set(picked) - set(every)), *(one for one in only if not any(s.startswith(one) for s in SUBJECTS))]:
        parser.error(f"unknown: {', '.join(unknown)}")
    scenarios = [scenario for name, scenario in every.items() if not picked or name in picked]
    for name in subjects:
        python_of(name)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    provider = Provider()
    print_lock = threading.Lock()

    def one(name: str, scenario: Scenario) -> Verdict:
        verdict = run_trial(provider, name, scenario)
        with print_lock:
            print(shown(verdict), flush=True)
        return verdict

    try:
        verdicts: list[Verdict] = []
        for _ in range(options.times):
            # The thousand siblings need the machine, so they run after all others and alone.
            light = [(name, scenario) for name in subjects for scenario in scenarios if not scenario.many]
            heavy = [(name, scenario) for name in subjects for scenario in scenarios if scenario.many]
            with ThreadPoolExecutor(options.jobs) as pool:
                verdicts += pool.map(lambda pair: one(*pair), light)
            verdicts += [one(*pair) for pair in heavy]
            options.out.write_bytes(msgspec.json.format(msgspec.json.encode(verdicts)))
    finally:
        provider.close()
    counts = {kind: sum(1 for one in verdicts if one.verdict == kind) for kind in ("held", "missed", "not offered")}
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return int(any(one.verdict == "missed" and one.subject.startswith("deputy") for one in verdicts))


if __name__ == "__main__":
    sys.exit(main())
