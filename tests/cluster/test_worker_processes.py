"""Real workers: processes of `deputy worker` on one store."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
from importlib.metadata import version
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.support.command_house import CommandHouse
from tests.support.postgres import fresh_database, queue_database

from deputy import Deputy
from deputy.core.model_script import ModelScript, ScriptedConversation, ScriptedTurn
from deputy.core.queue_names import no_worker
from deputy.interfaces.web.board import FIELDS, Board
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.store_address import StoreAddress
from deputy.testing import ProviderServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class WorkerHouse(CommandHouse):
    """A workspace whose runs go to workers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.url = queue_database()
        self.env |= {"DEPUTY_STORE": self.url, "DEPUTY_DISPATCH": "dbos"}
        (self.workspace / "rivers.txt").write_text("the Elbe is a river\n")

    def worker(self, *options: str, **env: str) -> subprocess.Popen[bytes]:
        """A worker that is ready."""
        process = self.start("worker", *options, ignores=None, stderr=subprocess.PIPE, **env)
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert "worker ready" in line, line + process.stderr.read().decode()
        return process

    def queries(self) -> PostgresQueries:
        """The queries of another process."""
        return PostgresQueries.open(StoreAddress(self.url))

    def until(self, is_so: Callable[[PostgresQueries], object]) -> None:
        """Wait until the store shows something."""
        with self.queries() as queries:
            while not is_so(queries):
                signal.sigtimedwait([], 0.02)


@pytest.fixture
def house(tmp_path: Path) -> Iterator[WorkerHouse]:
    made = WorkerHouse(tmp_path)
    try:
        yield made
    finally:
        for process in made.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


@pytest.mark.rule("cluster.place")
@pytest.mark.rule("cluster.drain")
def test_a_delegation_runs_on_a_worker_and_its_caller_sees_it_live(house: WorkerHouse, tmp_path: Path) -> None:
    worker = house.worker(DEPUTY_HOME=str(tmp_path / "other"))
    shown = house.run("delegate", "--yes", "--events", "-", "-t", "a=Where is `Elbe`?", "-t", "b=Where is `river`?")
    assert shown.returncode == 0, shown.stderr
    events = [json.loads(line) for line in shown.stdout.splitlines()]
    kinds = [(event["event"], event.get("label")) for event in events]
    for label in ("a", "b"):
        of_task = [kind for kind, named in kinds if named == label]
        assert of_task[0] == "started"
        assert "tool_call" in of_task
        assert of_task.count("completed") == 1
    assert kinds[-1][0] == "result"
    assert "rivers.txt" in events[-1]["results"][0]["report"]
    # No part of it ran in the process of the caller.
    assert not (house.home / "worktrees").exists() or not any((house.home / "worktrees").iterdir())
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0
    assert json.loads(house.run("workers", "--json").stdout) == {"workers": []}


@pytest.mark.rule("cluster.queued")
def test_a_run_that_no_worker_serves_says_so_and_waits_for_one(house: WorkerHouse) -> None:
    with house.terminal("delegate", "--yes", "--worker", "gpu", "Where is `Elbe`?").process as process:
        house.until(lambda queries: queries.live())
        listed = house.run("ps")
        assert "queued" in listed.stdout
        assert "@gpu" in listed.stdout
        assert no_worker("deputy.gpu") in listed.stderr
        assert "deputy worker --labels gpu" in listed.stderr
        (entry,) = json.loads(house.run("ps", "--json").stdout)["delegations"]
        assert (entry["status"], entry["queue"], entry["worker"]) == ("queued", "deputy.gpu", None)
        with house.queries() as queries:
            (row,) = json.loads(b"{" + Board(queries, "page").whole() + b"}")["runs"]
        shown = dict(zip(FIELDS, row, strict=True))
        assert (shown["status"], shown["flags"]) == ("queued", [])
        assert shown["reason"] == no_worker("deputy.gpu")
        # A worker without the label leaves it alone.
        house.worker("--labels", "eu")
        house.worker("--labels", "gpu")
        assert process.wait(60) == 0
    listed = json.loads(house.run("workers", "--json").stdout)["workers"]
    assert sorted(one["labels"] for one in listed) == [["eu"], ["gpu"]]


@pytest.mark.rule("cluster.slots")
def test_another_number_of_slots_for_the_same_label_is_refused(house: WorkerHouse) -> None:
    house.worker("--concurrency", "3")
    refused = house.run("worker", "--concurrency", "4")
    assert refused.returncode == 2
    assert "give 3, or stop the other workers first" in refused.stderr
    house.worker("--concurrency", "5", "--labels", "gpu")
    # Without a number it takes that of the others.
    house.worker()
    slots = [(one["labels"], one["slots"]) for one in json.loads(house.run("workers", "--json").stdout)["workers"]]
    assert sorted(slots) == [([], 3), ([], 3), (["gpu"], 5)]


@pytest.mark.rule("cluster.pin")
def test_a_program_with_its_own_tools_keeps_its_runs(
    house: WorkerHouse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DEPUTY_DISPATCH", "dbos")

    def weigh(thing: str) -> str:
        """Weigh something."""
        return f"{thing}: 3 kg"

    async def go() -> str:
        async with Deputy(
            "offline:scout", store=house.url, home=house.home, workspace=house.workspace, tools=[weigh]
        ) as deputy:
            (outcome,) = await deputy.delegate(["Where is `Elbe`?"])
            return outcome.status

    assert asyncio.run(go()) == "completed"
    assert "tools of this Deputy exist only in this process, so its runs stay here" in caplog.text


@pytest.mark.rule("cluster.place")
def test_here_keeps_a_run_in_its_process(house: WorkerHouse) -> None:
    assert house.run("delegate", "--yes", "--here", "Where is `Elbe`?").returncode == 0


@pytest.mark.rule("cluster.place")
def test_a_client_that_places_does_not_import_the_engine(house: WorkerHouse) -> None:
    code = (
        "import asyncio, sys\nfrom deputy import Deputy\n"
        "async def go():\n"
        f"    async with Deputy('offline:scout', store={house.url!r}) as deputy:\n"
        "        run = await deputy.start(['Where is `Elbe`?'])\n"
        "        await deputy.cancel(run)\n"
        "        print((await deputy.outcome(run)).status, 'dbos' in sys.modules, 'psycopg' in sys.modules)\n"
        "asyncio.run(go())\n"
    )
    import sys

    done = subprocess.run(
        [sys.executable, "-c", code], env=house.env, cwd=house.workspace, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["cancelled", "False", "False"], done.stderr


def _get(url: str) -> tuple[int, str]:
    try:
        with urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.rule("cluster.health")
def test_a_worker_tells_its_health_and_its_metrics(house: WorkerHouse) -> None:
    worker = house.start("worker", "--health", "0", ignores=None, stderr=subprocess.PIPE)
    assert worker.stderr is not None
    address = re.search(r"http://127\.0\.0\.1:\d+", worker.stderr.readline().decode())
    assert address is not None
    while "worker ready" not in (line := worker.stderr.readline().decode()):
        assert line
    assert _get(f"{address[0]}/livez") == (200, "live\n")
    assert _get(f"{address[0]}/readyz") == (200, "ready\n")
    assert house.run("delegate", "--yes", "Where is `Elbe`?").returncode == 0
    status, text = _get(f"{address[0]}/metrics")
    assert status == 200
    assert 'deputy_runs_total{status="completed"} 2' in text
    for name in ("runs", "slots", "takeovers_total", "fenced_total", "repeated_steps_total", "commit_seconds_count"):
        assert re.search(rf"^deputy_worker_{name}(\{{[^}}]*\}})? \d+$", text, re.MULTILINE), name
    # A web page of another name cannot read it through a browser of this machine.
    asked = Request(f"{address[0]}/metrics", headers={"Host": "evil.example"})
    with pytest.raises(HTTPError, match="421"):
        urlopen(asked)


@pytest.mark.rule("cluster.compare")
def test_the_others_see_the_names_of_a_workers_keys_and_never_a_value(house: WorkerHouse) -> None:
    assert "Start one: deputy worker" in house.run("doctor").stdout
    house.worker(ANTHROPIC_API_KEY="canary-7-canary-7", ACME_API_KEY="canary-7-canary-7")
    listed = house.run("workers", "--json")
    (one,) = json.loads(listed.stdout)["workers"]
    assert one["keys"] == ["ANTHROPIC_API_KEY"]
    assert abs(one["clock_offset_seconds"]) < 5
    checked = json.loads(house.run("doctor", "--json").stdout)
    (check,) = (check for check in checked["checks"] if check["name"] == "workers")
    assert (check["status"], check["advice"]) == ("ok", "")
    assert f"version {version('deputy-agents')}, clock" in check["found"]
    assert "keys ANTHROPIC_API_KEY" in check["found"]
    # A key of this machine that the worker lacks.
    lacking = " ".join(house.run("doctor", OPENAI_API_KEY="canary-8-canary-8").stdout.split())
    assert "· workers" in lacking
    assert "It lacks OPENAI_API_KEY" in lacking
    with house.queries() as queries:
        rows = str(queries._session.fetch("SELECT * FROM owners"))
    assert "canary" not in listed.stdout + lacking + rows


@pytest.mark.rule("cluster.health")
@pytest.mark.parametrize("given", ["x", "1:2:x", "99999", "-1"])
def test_a_health_address_that_is_none_is_refused(house: WorkerHouse, given: str) -> None:
    refused = house.run("worker", f"--health={given}")
    assert refused.returncode == 2
    assert "give a port, like 8712" in refused.stderr


@pytest.mark.rule("cluster.place")
@pytest.mark.rule("approve.exact")
def test_an_approval_of_a_run_on_a_worker_is_given_from_another_machine(house: WorkerHouse, tmp_path: Path) -> None:
    house.worker(DEPUTY_HOME=str(tmp_path / "other"))
    asking = house.terminal("delegate", "Where is `Elbe`?")
    house.until(lambda queries: any(state.status == "waiting" for state in queries.live()))
    # The worker has released the run and removed its checkout: the answer must hold for the next one.
    house.until(lambda _: not list((tmp_path / "other" / "workspaces").iterdir()))
    with house.queries() as queries:
        (root,) = (state.run for state in queries.live() if state.status == "waiting")
    approved = house.approve(root)
    assert approved.returncode == 0, approved.stderr
    assert asking.end(seconds=90) == 0


@pytest.mark.rule("cluster.lost")
def test_a_worker_without_the_key_fails_the_run_with_what_to_do_and_another_resumes_it(house: WorkerHouse) -> None:
    script = ModelScript(conversations=(ScriptedConversation(turns=(ScriptedTurn(text="The Elbe."),), times=9),))
    with ProviderServer(script, strict=False) as provider:
        worker = house.worker()
        how = (
            "delegate",
            "--yes",
            "--json",
            "--no-fallback",
            "--model",
            "anthropic:claude-sonnet-4-5",
            "Name a river.",
        )
        failed = house.run(*how)
        assert failed.returncode == 1, failed.stderr
        (result,) = json.loads(failed.stdout)["results"]
        assert "ANTHROPIC_API_KEY" in json.dumps(result), result
        assert socket.gethostname() in json.dumps(result), result
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        house.worker(**provider.environ)
        resumed = house.run("resume", result["session_id"], "--yes")
        assert resumed.returncode == 0, resumed.stderr


@pytest.mark.rule("cluster.lost")
@pytest.mark.skipif(os.environ.get("DEPUTY_SUITE") != "all", reason="takes 20 seconds: make test-cluster")
def test_every_child_completes_when_one_of_two_workers_is_killed(house: WorkerHouse) -> None:
    turn = ScriptedTurn(text="The Elbe.", delay_seconds=1.0)
    script = ModelScript(conversations=(ScriptedConversation(turns=(turn,), times=99),))
    with ProviderServer(script, strict=False) as provider:
        house.env |= provider.environ
        doomed, _ = house.worker("--concurrency", "3"), house.worker("--concurrency", "3")
        tasks = [part for n in range(8) for part in ("-t", f"t{n}=Name river {n}.")]
        caller = house.start("delegate", "--yes", "--json", "--model", "anthropic:claude-sonnet-4-5", *tasks)
        house.until(lambda _: len(provider.asked) >= 3)
        doomed.kill()
        assert caller.stdout is not None
        shown = json.loads(caller.stdout.read())
        assert shown["completed"] == 8
        with house.queries() as queries:
            (taken,) = queries._session.fetch("SELECT count(*) FROM events WHERE kind = 'adopted'")[0]
        assert len(provider.asked) <= 8 + taken


@pytest.mark.rule("store.schema")
def test_a_store_without_queues_names_the_command_that_makes_them(house: WorkerHouse) -> None:
    house.env["DEPUTY_STORE"] = fresh_database()
    refused = house.run("worker")
    assert refused.returncode == 1
    assert (
        "the tables of its queues are missing or old. Run `DEPUTY_DISPATCH=dbos deputy store migrate`."
        in refused.stderr
    )
    placed = house.run("delegate", "--yes", "Where is `Elbe`?")
    assert placed.returncode == 1
    assert "Run `deputy store migrate`." in placed.stderr
    assert json.loads(house.run("ps", "--all", "--json").stdout) == {"delegations": []}


@pytest.mark.rule("cluster.drain")
def test_a_second_signal_ends_a_worker_at_once_and_its_run_stays_live(house: WorkerHouse) -> None:
    turn = ScriptedTurn(text="The Elbe.", delay_seconds=12.0)
    script = ModelScript(conversations=(ScriptedConversation(turns=(turn,)),))
    with ProviderServer(script, strict=False) as provider:
        worker = house.worker(**provider.environ)
        house.start("delegate", "--yes", "--model", "anthropic:claude-sonnet-4-5", "Where?", **provider.environ)
        house.until(lambda _: provider.asked)
        worker.send_signal(signal.SIGTERM)
        house.until(lambda queries: not any(not one.is_draining for one in queries.workers()))
        worker.send_signal(signal.SIGTERM)
        # A drain would let the step end, and leave with 0.
        assert worker.wait(60) != 0
        with house.queries() as queries:
            assert {state.status for state in queries.live()} <= {"running", "requested"}
            assert len(queries.live()) >= 1
