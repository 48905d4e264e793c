"""Actions of the page: real `deputy` processes, on runs that are live elsewhere, interrupted, blocked and ended."""

import asyncio
import json
import signal

import pytest
from tests.support.command_house import CommandHouse, entries, until
from tests.support.fork_server import Popen
from tests.support.scripts import call, talk, turn
from tests.support.web_client import open_page

from deputy.interfaces.web.board import FIELDS


def forked(arguments, *, start_new_session, **more):
    """A real process of its own, without a second of imports."""
    assert start_new_session
    return Popen(arguments, **more)


@pytest.fixture
def house(tmp_path, monkeypatch):
    made = CommandHouse(tmp_path)
    monkeypatch.setattr("deputy.interfaces.web.jobs.Popen", forked)
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def field(row, name):
    return row[FIELDS.index(name)]


def run_of(house, label: str, status: str) -> str:
    """The run with a label, once it has a status."""

    def found():
        return [one["session_id"] for one in entries(house) if (one["label"], one["status"]) == (label, status)]

    return until(found)[0]


async def ended(client, job_id: str):
    """A job, once it has ended."""
    board = await client.get("/api/board")
    async with client.follow(board["cursor"]) as stream:
        while True:
            jobs = {one["id"]: one for one in (await client.get("/api/board"))["jobs"]}
            if jobs[job_id]["state"] != "running":
                return jobs[job_id]
            await stream.next()


def test_a_selection_is_cancelled_by_its_topmost_runs(house):
    model = house.script("slow", talk(turn("never said", delay_seconds=60), times=4))
    house.start("delegate", "-t", "a=x", "-t", "b=y", "--yes", "--model", model)
    child = run_of(house, "a", "running")

    async def main():
        async with open_page(house.home) as client:
            board = await client.get("/api/board")
            ids = [row[0] for row in board["runs"]]
            status, content = await client.post("/api/cancel", {"ids": ids})
            assert status == 202
            (job,) = content["jobs"]
            assert (job["run"], job["action"]) == (field(board["runs"][0], "id"), "cancel")
            assert (await client.post("/api/cancel", {"ids": []}))[0] == 400
            assert (await client.post("/api/cancel", {"ids": ["sess_none"]}))[0] == 404
            return await ended(client, job["id"])

    assert asyncio.run(main())["state"] == "done"
    assert {one["status"] for one in entries(house)} == {"cancelled"}
    assert child


def test_an_interrupted_run_is_resumed_and_the_work_outlives_the_server(house):
    model = house.script(
        "twice", talk(turn("never said", delay_seconds=60)), talk(turn("all is well", delay_seconds=1))
    )
    process = house.start("delegate", "-t", "a=x", "--yes", "--model", model)
    run_of(house, "a", "running")
    process.send_signal(signal.SIGKILL)
    process.wait()
    house.script("twice", talk(turn("all is well", delay_seconds=1)))

    async def main():
        async with open_page(house.home) as client:
            board = await client.get("/api/board")
            top = field(board["runs"][0], "id")
            assert [field(row, "status") for row in board["runs"]] == ["interrupted", "interrupted"]
            status, job = await client.post(f"/api/runs/{top}/resume", {})
            assert (status, job["state"]) == (202, "running")

    asyncio.run(main())
    # The server has ended; the process that it started works on.
    run_of(house, "a", "completed")
    until(lambda: {one["status"] for one in entries(house)} == {"completed"})


def test_a_blocked_run_is_answered_by_a_resume_and_an_ended_one_starts_again(house):
    model = house.script(
        "asks",
        talk(turn("", call("Ask", question="Which one?")), turn("the second it is"), turn("more"), when="Choose."),
        talk(turn("again"), times=9),
    )
    house.run("run", "Choose.", "--json", "--model", model)
    (entry,) = entries(house)
    run = entry["session_id"]
    assert entry["status"] == "blocked"

    async def main():
        async with open_page(house.home) as client:
            (one,) = (await client.get("/api/board"))["waiting"]
            assert (one["question"], one["needs_resume"]) == ("Which one?", True)
            given = {"key": one["key"], "digest": one["digest"], "words": "the second"}
            assert (await client.post(f"/api/runs/{run}/answer", {**given, "digest": "0"}))[0] == 409
            status, sent = await client.post(f"/api/runs/{run}/answer", given)
            assert (status, sent["counted"]) == (200, True)
            assert (await ended(client, sent["job"]["id"]))["state"] == "done"
            status, job = await client.post(f"/api/runs/{run}/again", {"prompt": "Choose now."})
            assert (status, job["action"]) == (202, "again")
            assert (await ended(client, job["id"]))["state"] == "done"
            status, job = await client.post(f"/api/runs/{run}/pin", {})
            assert (await ended(client, job["id"]))["state"] == "done"
            status, job = await client.post(f"/api/runs/{run}/resume", {"message": "one more"})
            return await ended(client, job["id"])

    assert asyncio.run(main())["exit"] == 0
    assert [one["status"] for one in entries(house)] == ["completed", "completed"]
    prompts = [json.loads(house.run("show", one["session_id"], "--json").stdout)["prompt"] for one in entries(house)]
    assert sorted(prompts) == ["Choose now.", "Choose."]


def test_tasks_start_again_and_wait_for_approval_on_the_page(house):
    model = house.script("tasks", talk(turn("fine"), times=9))
    house.run("delegate", "-t", "a=Look.", "--yes", "--json", "--model", model)

    async def main():
        async with open_page(house.home) as client:
            top, child = [row[0] for row in (await client.get("/api/board"))["runs"]]
            for run in (top, child):
                status, job = await client.post(f"/api/runs/{run}/again", {})
                assert status == 202
                board = await client.get("/api/board")
                async with client.follow(board["cursor"]) as stream:
                    while not (waiting := (await client.get("/api/board"))["waiting"]):
                        await stream.next()
                (one,) = waiting
                given = {"key": one["key"], "digest": one["digest"], "approve": True}
                assert (await client.post(f"/api/runs/{one['run']}/answer", given))[1]["counted"]
                assert (await ended(client, job["id"]))["state"] == "done"

    asyncio.run(main())
    assert [one["status"] for one in entries(house)] == ["completed"] * 6


def test_a_run_that_cannot_be_resumed_says_why(house):
    model = house.script("tasks", talk(turn("fine"), times=9))
    house.run("delegate", "-t", "a=Look.", "--yes", "--json", "--model", model)

    async def main():
        async with open_page(house.home) as client:
            top = (await client.get("/api/board"))["runs"][0][0]
            _, job = await client.post(f"/api/runs/{top}/resume", {"message": "more"})
            return await ended(client, job["id"])

    job = asyncio.run(main())
    assert job["state"] == "failed"
    assert "all its tasks are completed" in job["said"]
