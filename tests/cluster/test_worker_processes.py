"""Real workers: processes of `deputy worker` on one store."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.support.command_house import CommandHouse
from tests.support.postgres import queue_database

from deputy import Deputy
from deputy.interfaces.placed_calls import no_worker
from deputy.journal.postgres.postgres_queries import PostgresQueries
from deputy.journal.postgres.store_address import StoreAddress

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
