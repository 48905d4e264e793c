"""Clients that are killed in the middle of a call: what they asked for is found again, and nothing is left running."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.command_house import entries, until
from tests.support.fork_server import Popen
from tests.support.mcp_clients import ERAS, LEGACY, MODERN, TOKEN, Wire, serve_http, tasks
from tests.support.scripts import talk, turn

A_CLIENT = str(Path(__file__).with_name("a_client.py"))
SLOW = talk(turn("never said", delay_seconds=60), times=9)
QUICK = talk(turn("done after all"), times=9)


def killed_in_the_middle(house, mode: str, url: str = "") -> list[int]:
    """Kill a client once its subagent is at work; the processes that it had started."""
    call = json.dumps({"arguments": tasks("a"), "env": house.env})
    client = Popen([sys.executable, A_CLIENT, mode, url, TOKEN, call], cwd=house.workspace, stderr=subprocess.DEVNULL)
    house.started.append(client)
    until(lambda: [entry for entry in entries(house) if entry["parent"] and entry["under_way"]])
    started = Path(f"/proc/{client.pid}/task/{client.pid}/children").read_text().split()
    client.send_signal(signal.SIGKILL)
    client.wait()
    return [int(pid) for pid in started]


def statuses(house) -> set[str]:
    return {entry["status"] for entry in entries(house)}


def collected(wire: Wire, run: str) -> dict:
    return wire.answer(wire.call("DelegateResult", {"session_id": run, "wait": 60}))["result"]["structuredContent"]


@pytest.mark.rule("deliver")
@pytest.mark.parametrize("mode", ERAS)
def test_over_stdio_its_server_goes_too_and_the_run_is_gone_on_with(house, mode):
    house.env["DEPUTY_MODEL"] = house.script("work", SLOW)
    servers = killed_in_the_middle(house, mode)
    assert servers
    until(lambda: not any(_is_alive(pid) for pid in servers))
    root, child = entries(house)
    assert (root["status"], child["status"]) == ("interrupted", "interrupted")

    house.script("work", QUICK)
    resumed = house.run("resume", root["session_id"], "--json")
    assert (resumed.returncode, json.loads(resumed.stdout)["status"]) == (0, "completed")
    with Wire(house) as wire:
        wire.shake_hands()
        assert collected(wire, root["session_id"])["results"][0]["report"] == "done after all"


def test_over_http_in_the_older_era_the_run_goes_on_and_is_collected(house):
    house.env["DEPUTY_MODEL"] = house.script("work", talk(turn("done after all", delay_seconds=2)))
    with serve_http(house) as url:
        killed_in_the_middle(house, LEGACY, url)
        until(lambda: statuses(house) == {"completed"})
        (run,) = (entry["session_id"] for entry in entries(house) if entry["parent"] is None)
        with Wire(house) as wire:
            wire.shake_hands()
            assert collected(wire, run)["results"][0]["report"] == "done after all"


def test_over_http_in_the_newer_era_to_be_gone_is_to_cancel_and_the_run_can_be_gone_on_with(house):
    house.env["DEPUTY_MODEL"] = house.script("work", SLOW)
    with serve_http(house) as url:
        killed_in_the_middle(house, MODERN, url)
        until(lambda: statuses(house) == {"cancelled"})
    house.script("work", QUICK)
    (run,) = (entry["session_id"] for entry in entries(house) if entry["parent"] is None)
    with Wire(house, "--yes") as wire:
        wire.shake_hands()
        wire.answer(wire.call("DelegateResume", {"session_id": run}))
        assert collected(wire, run)["results"][0]["report"] == "done after all"


@pytest.mark.rule("recover")
def test_a_server_that_is_killed_itself_leaves_the_same(house):
    house.env["DEPUTY_MODEL"] = house.script("work", SLOW)
    with serve_http(house, ending=signal.SIGKILL) as url:
        client = Popen(
            [sys.executable, A_CLIENT, MODERN, url, TOKEN, json.dumps({"arguments": tasks("a")})],
            stderr=subprocess.DEVNULL,
        )
        house.started.append(client)
        until(lambda: [entry for entry in entries(house) if entry["parent"] and entry["under_way"]])
    assert client.wait(60) != 0
    until(lambda: statuses(house) == {"interrupted"})
    house.script("work", QUICK)
    (run,) = (entry["session_id"] for entry in entries(house) if entry["parent"] is None)
    with Wire(house) as wire:
        wire.shake_hands()
        wire.answer(wire.call("DelegateResume", {"session_id": run}))
        assert collected(wire, run)["results"][0]["report"] == "done after all"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
