"""How a call is approved: by the client's person, by a policy, or from a terminal; else it is refused."""

import asyncio
import json
import os
import time
from contextlib import asynccontextmanager
from itertools import pairwise, product

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from tests.support.command_house import entries, until
from tests.support.mcp_clients import ERAS, LEGACY, MODERN, TOKEN, here, serve_http, stdio, tasks, text_of
from tests.support.scripts import talk, turn

from deputy.core.events import Returned
from deputy.interfaces.mcp import server_state
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

TRANSPORTS = ("stdio", "http")
IS_WHOLE = os.environ.get("DEPUTY_SUITE") == "all"
# What becomes of an answer is the same code for all transports.
DENIED = [*product(TRANSPORTS, ERAS)] if IS_WHOLE else [(TRANSPORTS[0], ERAS[-1])]


def person(action: str, seen: list, content: dict | None = None):
    async def answer(context, params):
        seen.append(params.message)
        return ElicitResult(action=action, content=content)

    return {"elicitation_callback": answer}


def call_with(house, mode, client, tool="Delegate", arguments=None, **options):
    model = house.script("ok", talk(turn("found it")))

    async def main():
        async with here(house, mode=mode, client=client, model=model, **options) as connected:
            return await connected.call_tool(tool, arguments or tasks("a"))

    return asyncio.run(main())


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize("mode", ERAS)
def test_the_person_of_a_client_that_can_ask_is_asked_once_and_approves(house, mode):
    seen: list[str] = []
    result = call_with(house, mode, person("accept", seen, {"choice": "yes"}))
    assert result.structured_content["completed"] == 1
    whole, one = result.structured_content["usage"], result.structured_content["results"][0]["usage"]
    assert (whole["requests"], whole["cost"], one["cost"]) == (1, None, None)
    assert len(seen) == 1
    assert "Start 1 subagent · risk: medium" in seen[0]
    assert "  task 1 prompt: the work of a" in seen[0].splitlines()
    assert len([entry for entry in entries(house) if entry["parent"] is None]) == 1


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(("action", "content"), [("decline", None), ("cancel", None), ("accept", {"choice": "no"})])
def test_a_no_starts_nothing(house, mode, action, content):
    result = call_with(house, mode, person(action, [], content))
    assert result.is_error
    assert "not approved" in text_of(result)
    assert [entry["status"] for entry in entries(house)] == ["rejected"]


@pytest.mark.parametrize("mode", ERAS)
def test_a_start_is_approved_like_a_call_that_waits(house, mode):
    seen: list[str] = []
    arguments = tasks("a")
    result = call_with(house, mode, person("decline", seen), tool="DelegateStart", arguments=arguments)
    assert len(seen) == 1
    assert result.structured_content["tasks"] == []


def test_by_policy_it_is_granted_or_refused_without_asking(house):
    seen: list[str] = []
    granted = call_with(house, LEGACY, person("decline", seen), approval="granted")
    refused = call_with(house, LEGACY, person("accept", seen), approval="refuse")
    assert granted.structured_content["completed"] == 1
    assert refused.is_error
    assert "this server refuses" in text_of(refused)
    assert seen == []


@pytest.mark.parametrize("mode", ERAS)
def test_without_an_answer_in_time_it_is_refused(house, mode):
    result = call_with(house, mode, {}, approval_seconds=0.01)
    assert result.is_error
    assert result.structured_content["results"][0]["status"] == "rejected"


@asynccontextmanager
async def connected(house, transport: str, mode: str, **client):
    """A client of a server that is a process of its own."""
    if transport == "stdio":
        async with Client(stdio(house), mode=mode, **client) as opened:
            yield opened
        return
    wire = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
    with serve_http(house, "--model", house.env["DEPUTY_MODEL"]) as url:
        async with wire, Client(streamable_http_client(url, http_client=wire), mode=mode, **client) as opened:
            yield opened


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_form_reaches_the_person_over_every_transport(house, transport, mode):
    house.env["DEPUTY_MODEL"] = house.script("ok", talk(turn("found it")))
    seen: list[str] = []

    async def main():
        async with connected(house, transport, mode, **person("accept", seen, {"choice": "yes"})) as client:
            return await client.call_tool("Delegate", tasks("a"))

    assert asyncio.run(main()).structured_content["completed"] == 1
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("transport", "mode", "option", "status"),
    [
        *((transport, mode, (), "completed") for transport in TRANSPORTS for mode in ERAS),
        *((transport, mode, ("--deny",), "rejected") for transport, mode in DENIED),
    ],
)
def test_a_call_waits_for_an_answer_from_another_terminal_and_can_be_seen_waiting(
    house, transport, mode, option, status
):
    house.env["DEPUTY_MODEL"] = house.script("ok", talk(turn("found it")))

    async def main():
        async with connected(house, transport, mode) as client:
            call = asyncio.create_task(client.call_tool("Delegate", tasks("a")))
            waiting = await asyncio.to_thread(until, lambda: _waiting(house))
            shown = await asyncio.to_thread(house.run, "ps")
            answered = await asyncio.to_thread(house.approve, waiting, *option, "--json")
            return waiting, shown.stdout, json.loads(answered.stdout), await call

    waiting, shown, answered, result = asyncio.run(main())
    assert waiting[-6:-2] in shown
    assert "Start 1 subagent: a (risk: medium)" in shown
    choice = "no" if option else "yes"
    assert (answered["session_id"], answered["choice"], answered["taken"]) == (waiting, choice, True)
    assert entries(house)[0]["status"] == status
    assert result.is_error == bool(option)


def _waiting(house) -> str | None:
    return next((entry["session_id"] for entry in entries(house) if entry["status"] == "waiting"), None)


def test_a_waiting_client_learns_how_to_approve_and_that_it_still_waits(house, monkeypatch):
    monkeypatch.setattr(server_state, "HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr(server_state, "GAP_SECONDS", 0.01)
    heard: list[tuple[float, str]] = []

    async def main():
        enough = asyncio.Event()

        async def hear(progress, total, message):
            heard.append((progress, message))
            if len(heard) == 5:
                enough.set()

        async with here(house, model="offline:scout") as client:
            call = asyncio.create_task(client.call_tool("Delegate", tasks("a"), progress_callback=hear))
            await enough.wait()
            call.cancel()
            await asyncio.wait([call])

    asyncio.run(main())
    numbers = [number for number, _ in heard]
    assert all(earlier < later for earlier, later in pairwise(numbers))
    assert f"deputy approve {entries(house)[0]['session_id']}" in heard[-1][1]


def test_the_client_that_asks_cannot_approve(house):
    async def main():
        async with here(house, model="offline:scout") as client:
            started = await client.call_tool("DelegateStart", tasks("a"))
            run = started.structured_content["session_id"]
            return started, await client.call_tool("DelegateResume", {"session_id": run, "answer": "yes"})

    started, resumed = asyncio.run(main())
    assert started.structured_content["status"] == "waiting"
    assert "deputy approve" in started.structured_content["next"]
    assert resumed.is_error
    assert "waits for approval" in text_of(resumed)
    assert entries(house)[0]["status"] == "waiting"


def test_a_run_whose_server_is_gone_can_still_be_approved_and_gone_on_with(house):
    model = house.script("ok", talk(turn("found it")))

    async def main():
        async with here(house, model=model) as client:
            return (await client.call_tool("DelegateStart", tasks("a"))).structured_content["session_id"]

    run = asyncio.run(main())
    approved = house.approve(run)
    assert approved.returncode == 0
    assert f"deputy resume {run}" in approved.stderr
    resumed = house.run("resume", run, "--json")
    assert resumed.returncode == 0, resumed
    assert json.loads(resumed.stdout)["status"] == "completed"


def test_what_comes_back_with_an_answer_is_sealed(house):
    async def main():
        async with here(house, mode=MODERN, client=person("accept", []), model="offline:scout") as client:
            mine = await client.session.call_tool("Delegate", tasks("a"), allow_input_required=True)
            for state in ("sess_1_aaaaaa", mine.request_state[:-4] + "AAAA"):
                with pytest.raises(MCPError, match="requestState"):
                    await client.session.call_tool(
                        "Delegate", tasks("a"), request_state=state, allow_input_required=True
                    )

    asyncio.run(main())


def test_approve_says_what_does_not_wait(house):
    assert house.run("approve", "sess_1_aaaaaa").returncode == 3
    house.run("delegate", "-t", "a=count the files", "--yes")
    ended = entries(house)[0]["session_id"]
    answered = house.run("approve", ended)
    assert (answered.returncode, "does not wait" in answered.stderr) == (3, True)


@pytest.mark.rule("delegate.approve")
def test_a_call_whose_server_is_gone_is_refused_when_its_time_is_up(house):
    async def main():
        async with here(house, model="offline:scout", approval_seconds=1.5) as client:
            return (await client.call_tool("DelegateStart", tasks("a"))).structured_content

    started = asyncio.run(main())
    assert started["status"] == "waiting"

    async def look():
        async with here(house, model="offline:scout") as client:
            # Another client, of another server, which only looks.
            return await client.call_tool("DelegateResult", {"session_id": started["session_id"], "wait": 60})

    assert asyncio.run(look()).structured_content["results"][0]["status"] == "rejected"
    assert [entry["status"] for entry in entries(house)] == ["rejected"]


@pytest.mark.rule("delegate.approve")
def test_a_client_that_never_comes_back_with_the_answer_has_nothing_started(house):
    client = person("accept", [], {"choice": "yes"})

    async def main():
        async with here(house, mode=MODERN, client=client, model="offline:scout", approval_seconds=0.05) as opened:
            await opened.session.call_tool("Delegate", tasks("a"), allow_input_required=True)
            await asyncio.to_thread(until, lambda: entries(house)[0]["status"] == "rejected")

    asyncio.run(main())
    assert len(entries(house)) == 1


def waiting_run(house, **options) -> str:
    """A run that waits for approval, and whose server is gone."""

    async def main():
        async with here(house, model="offline:scout", **options) as client:
            return (await client.call_tool("DelegateStart", tasks("a"))).structured_content["session_id"]

    return asyncio.run(main())


def test_resuming_a_run_that_waits_for_approval_says_how_to_approve_it(house):
    run = waiting_run(house)
    resumed = house.run("resume", run)
    assert resumed.returncode == 2
    assert f"deputy approve {run}" in resumed.stderr


@pytest.mark.rule("delegate.approve")
def test_a_yes_that_comes_too_late_is_a_no(house):
    run = waiting_run(house, approval_seconds=0.5)
    with SqliteQueries.open_any(house.home) as reader:
        until(lambda: reader.state(run).answer_by < time.time())
    answered = house.approve(run, "--json")
    assert (json.loads(answered.stdout)["choice"], "too late" in answered.stderr) == ("no", True)


def late_run(house, **options) -> str:
    """The same, when the time in which it could be approved is over."""
    run = waiting_run(house, approval_seconds=0.3, **options)
    with SqliteQueries.open_any(house.home) as reader:
        until(lambda: reader.state(run).answer_by < time.time())
    return run


def events(house, run: str) -> list:
    with SqliteQueries.open_any(house.home) as reader:
        return [record.event for record in reader.records(run)]


@pytest.mark.rule("registry.monitor")
@pytest.mark.rule("delegate.approve")
def test_several_readers_at_once_refuse_an_expired_call_once(house):
    run = late_run(house)
    looking = [house.start("ps", "--json") for _ in range(3)]
    listed = [json.loads(each.communicate()[0])["delegations"] for each in looking]
    assert listed == [[], [], []]
    ended = [event.outcome for event in events(house, run) if isinstance(event, Returned)]
    assert [(outcome.status, outcome.code) for outcome in ended] == [("rejected", "NOT_APPROVED")]
    shown = json.loads(house.run("show", run, "--json").stdout)
    assert (shown["status"], shown["question"]) == ("rejected", None)
    again = house.run("approve", run)
    assert (again.returncode, "does not wait" in again.stderr) == (3, True)


@pytest.mark.rule("delegate.approve")
def test_a_yes_that_came_in_time_is_not_taken_back_later(house):
    run = waiting_run(house, approval_seconds=8)
    assert house.approve(run).returncode == 0
    with SqliteQueries.open_any(house.home) as reader:
        until(lambda: reader.state(run).answer_by < time.time())
    assert [entry["status"] for entry in json.loads(house.run("ps", "--json").stdout)["delegations"]] == ["waiting"]
    resumed = house.run("resume", run, "--json")
    assert (resumed.returncode, json.loads(resumed.stdout)["status"]) == (0, "completed"), resumed


@pytest.mark.rule("delegate.approve")
def test_a_policy_approves_what_a_run_had_asked_and_a_text_does_not(house):
    run = waiting_run(house)
    refused = house.run("resume", run, "--answer", "yes")
    assert (refused.returncode, f"`deputy approve {run}`" in refused.stderr) == (2, True), refused
    resumed = house.run("resume", run, "--json", "--yes")
    assert (resumed.returncode, json.loads(resumed.stdout)["status"]) == (0, "completed"), resumed


@pytest.mark.rule("delegate.approve")
def test_a_yes_to_a_run_that_is_gone_on_with_too_late_is_a_no(house):
    run = late_run(house)
    refused = house.run("resume", run, "--json", "--yes")
    # Whether it is refused by this very process or before it looked is a matter of chance.
    assert refused.returncode in (2, 6), refused
    assert json.loads(house.run("show", run, "--json").stdout)["outcome"]["errors"][0]["code"] == "NOT_APPROVED"
