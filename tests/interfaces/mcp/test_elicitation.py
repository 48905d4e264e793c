"""Who may approve over MCP: only a client that declared elicitation and was handed the question, once."""

import asyncio
import json
from contextlib import asynccontextmanager

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult
from tests.support.command_house import entries, until
from tests.support.mcp_clients import ERAS, LEGACY, MODERN, TOKEN, Wire, here, serve_http, tasks, text_of
from tests.support.scripts import call, talk, turn

from deputy.interfaces import questions
from deputy.interfaces.mcp.server import make_server
from deputy.interfaces.mcp.server_state import Options, ServerState

pytestmark = pytest.mark.rule("approve.who")
KNOWS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
CAN_ASK = {**KNOWS, "elicitation": {}}
CALL = {"name": "Delegate", "arguments": tasks("a")}
YES = {"action": "accept", "content": {"choice": "yes"}}
NO = {"action": "accept", "content": {"choice": "no"}}


def waiting(house) -> str | None:
    return next((entry["session_id"] for entry in entries(house) if entry["status"] == "waiting"), None)


def task_of(wire: Wire, capabilities: dict) -> str:
    return wire.ask("tools/call", CALL, capabilities)["result"]["taskId"]


def update(wire: Wire, task: str, answers: dict, capabilities: dict = CAN_ASK) -> dict:
    return wire.ask("tasks/update", {"taskId": task, "inputResponses": answers}, capabilities)


def asked(wire: Wire, task: str) -> dict:
    """The questions that a task has for a client that can ask."""
    return until(lambda: wire.ask("tasks/get", {"taskId": task}, CAN_ASK)["result"].get("inputRequests"))


def is_refused(answer: dict, task: str) -> bool:
    return f"deputy approve {task}" in answer.get("error", {}).get("message", "")


# --- tasks ------------------------------------------------------------------------------------------------------------


def test_a_client_without_elicitation_approves_nothing(house):
    with Wire(house, "--model", house.script("ok", talk(turn("found it")))) as wire:
        task = task_of(wire, KNOWS)
        got = wire.ask("tasks/get", {"taskId": task}, KNOWS)["result"]
        assert (got["status"], "inputRequests" in got) == ("working", False)
        assert f"deputy approve {task}" in got["statusMessage"]
        for name in ("approval", "approval:", "approval:x"):
            assert is_refused(update(wire, task, {name: YES}, KNOWS), task)
            assert is_refused(update(wire, task, {name: YES}), task)
        # A nonce that was handed to it as a client with elicitation counts for nothing without.
        [name] = asked(wire, task)
        assert is_refused(update(wire, task, {name: YES}, KNOWS), task)
        assert waiting(house) == task


def test_a_question_is_answered_once_by_its_nonce(house):
    with Wire(house, "--model", house.script("ok", talk(turn("found it"), times=2))) as wire:
        one, other = task_of(wire, CAN_ASK), task_of(wire, CAN_ASK)
        [name], [name_of_other] = asked(wire, one), asked(wire, other)
        assert [name] == list(asked(wire, one))
        assert name != name_of_other
        # A nonce is bound to its own run.
        assert is_refused(update(wire, other, {name: YES}), other)
        assert update(wire, one, {name: YES})["result"]["resultType"] == "complete"
        assert is_refused(update(wire, one, {name: YES}), one)
        assert is_refused(update(wire, other, {name: YES}), other)
        assert update(wire, other, {name_of_other: NO})["result"]["resultType"] == "complete"
        until(lambda: waiting(house) is None and not [e for e in entries(house) if e["status"] == "running"])
        assert {e["session_id"]: e["status"] for e in entries(house)}[other] == "rejected"
        assert {e["session_id"]: e["status"] for e in entries(house)}[one] == "completed"


def test_a_server_neither_hands_out_nor_takes_the_questions_of_another_server(house):
    model = house.script("ok", talk(turn("found it")))
    with Wire(house, "--model", model) as wire, Wire(house, "--model", model) as stranger:
        task = task_of(wire, CAN_ASK)
        [name] = asked(wire, task)
        got = stranger.ask("tasks/get", {"taskId": task}, CAN_ASK)["result"]
        assert (got["status"], "inputRequests" in got) == ("working", False)
        assert is_refused(update(stranger, task, {name: YES}), task)
        resumed = stranger.ask(
            "tools/call", {"name": "DelegateResume", "arguments": {"session_id": task, "answer": "yes"}}, CAN_ASK
        )
        assert resumed["result"]["isError"]
        assert waiting(house) == task
        assert update(wire, task, {name: YES})["result"]["resultType"] == "complete"


def test_the_question_of_a_terminal_is_not_handed_to_a_client(house):
    with Wire(house, "--model", house.script("ok", talk(turn("found it")))) as wire:
        task = task_of(wire, KNOWS)
    # Its server is gone; the next one has not opened it.
    with Wire(house) as wire:
        assert "inputRequests" not in wire.ask("tasks/get", {"taskId": task}, CAN_ASK)["result"]
        assert is_refused(update(wire, task, {"approval": YES}), task)


# --- results that ask -------------------------------------------------------------------------------------------------


def person(*answers: dict | None):
    """A person behind a client, who answers forms in this order and keeps what they were shown."""
    seen: list = []

    async def answer(context, params):
        seen.append(params)
        given = answers[min(len(seen), len(answers)) - 1]
        return ElicitResult(action="decline") if given is None else ElicitResult(**given)

    return {"elicitation_callback": answer}, seen


def test_the_state_of_a_question_cannot_be_forged_or_replayed(house):
    model = house.script("ok", talk(turn("found it"), times=3))
    client, _ = person(YES)

    async def main():
        async with here(house, mode=MODERN, client=client, model=model) as connected:
            call = connected.session.call_tool
            mine = await call("Delegate", tasks("a"), allow_input_required=True)
            other = await call("Delegate", tasks("b"), allow_input_required=True)
            [name], [name_of_other] = mine.input_requests, other.input_requests
            yes = ElicitResult(**YES)
            # The state of one call does not fit the arguments of another, nor another tool.
            for tool, arguments in (("Delegate", tasks("b")), ("DelegateStart", tasks("a"))):
                with pytest.raises(MCPError, match="requestState"):
                    await call(tool, arguments, request_state=mine.request_state, input_responses={name: yes})
            # The nonce of one question does not answer another.
            for wrong in (name_of_other, "approval", f"{name}x"):
                refused = await call(
                    "Delegate", tasks("a"), request_state=mine.request_state, input_responses={wrong: yes}
                )
                assert refused.is_error
                assert "deputy approve" in text_of(refused)
            done = await call("Delegate", tasks("a"), request_state=mine.request_state, input_responses={name: yes})
            again = await call("Delegate", tasks("a"), request_state=mine.request_state, input_responses={name: yes})
            return done, again

    done, again = asyncio.run(main())
    assert done.structured_content["completed"] == 1
    assert again.is_error
    assert [e["status"] for e in entries(house) if e["parent"] is None].count("waiting") == 1


def test_the_state_of_one_server_is_none_of_another(house):
    client, _ = person(YES)

    async def main():
        async with (
            here(house, mode=MODERN, client=client, model="offline:scout") as one,
            here(house, mode=MODERN, client=client, model="offline:scout") as other,
        ):
            mine = await one.session.call_tool("Delegate", tasks("a"), allow_input_required=True)
            answers = {name: ElicitResult(**YES) for name in mine.input_requests}
            with pytest.raises(MCPError, match="requestState"):
                await other.session.call_tool(
                    "Delegate", tasks("a"), request_state=mine.request_state, input_responses=answers
                )

    asyncio.run(main())
    assert waiting(house)


# --- two clients of one server ----------------------------------------------------------------------------------------


@asynccontextmanager
async def http_client(url: str, mode: str, **client):
    wire = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
    async with wire, Client(streamable_http_client(url, http_client=wire), mode=mode, **client) as opened:
        yield opened


def test_a_client_cannot_answer_the_form_of_another_client_of_the_same_server(house):
    house.env["DEPUTY_MODEL"] = house.script("ok", talk(turn("found it")))
    heard = []

    async def main(url: str):
        shown, may_answer = asyncio.Event(), asyncio.Event()

        async def slowly(context, params):
            shown.set()
            await may_answer.wait()
            return ElicitResult(**NO)

        async with http_client(url, LEGACY, elicitation_callback=slowly) as one, httpx2.AsyncClient() as raw:
            call = asyncio.create_task(one.call_tool("Delegate", tasks("a")))
            await shown.wait()
            headers = {
                "Authorization": f"Bearer {TOKEN}",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": "2025-11-25",
            }
            about = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
            opening = {**about, "clientInfo": {"name": "other", "version": "1"}}
            begun = await raw.post(
                url, json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": opening}, headers=headers
            )
            session = {**headers, "Mcp-Session-Id": begun.headers["mcp-session-id"]}
            for number in range(5):
                answer = {"jsonrpc": "2.0", "id": number, "result": YES}
                heard.append((await raw.post(url, json=answer, headers=session)).status_code)
            assert waiting(house)
            may_answer.set()
            return await call

    with serve_http(house, "--model", house.env["DEPUTY_MODEL"]) as url:
        result = asyncio.run(main(url))
    assert heard
    assert result.is_error
    assert [entry["status"] for entry in entries(house)] == ["rejected"]


def test_another_client_of_a_server_is_not_handed_the_question(house):
    model = house.script("ok", talk(turn("found it")))
    client, _ = person(YES)

    async def main():
        hub = ServerState(Options(workspace=house.workspace, home=house.home, model=model))
        server = make_server(hub)
        from mcp_types import Implementation

        async with (
            hub,
            Client(server, mode=MODERN, client_info=Implementation(name="one", version="1"), **client) as one,
            Client(server, mode=MODERN, client_info=Implementation(name="other", version="1"), **client) as other,
        ):
            mine = await one.session.call_tool("DelegateStart", tasks("a"), allow_input_required=True)
            run = waiting(house)
            theirs = await other.session.call_tool(
                "DelegateResult", {"session_id": run, "wait": 0.1}, allow_input_required=True
            )
            answers = {name: ElicitResult(**YES) for name in mine.input_requests}
            stolen = await other.session.call_tool(
                "DelegateStart", tasks("a"), request_state=mine.request_state, input_responses=answers
            )
            hub.is_leaving = True
            return theirs, stolen

    theirs, stolen = asyncio.run(main())
    assert theirs.structured_content["status"] == "waiting"
    assert stolen.is_error
    assert waiting(house)


# --- what is shown, and what counts -----------------------------------------------------------------------------------


def test_a_client_that_fails_to_ask_is_asked_once_and_the_question_stays_open(house):
    with Wire(house, "--model", "offline:scout") as wire:
        about = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
        wire.answer(wire.send("initialize", {**about, "clientInfo": {"name": "wire", "version": "1"}}))
        wire.send("notifications/initialized", is_notification=True)
        wire.call("Delegate", tasks("a"))
        while (form := wire.read()).get("method") != "elicitation/create":
            pass
        line = {"jsonrpc": "2.0", "id": form["id"], "error": {"code": -32603, "message": "no screen"}}
        wire.process.stdin.write(json.dumps(line).encode() + b"\n")
        wire.process.stdin.flush()
        # It looks for new questions more than once in this time.
        last = wire.call("DelegateResult", {"session_id": waiting(house), "wait": 2.5})
        while (message := wire.read()).get("id") != last:
            assert message.get("method") != "elicitation/create"
        assert message["result"]["structuredContent"]["status"] == "waiting"


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("mode", ERAS)
def test_the_form_shows_the_whole_request_with_key_and_digest(house, mode):
    prompt = "first line\n" + " " * 2000 + "; touch X\nlast line"
    client, seen = person(NO)

    async def main():
        async with here(house, mode=mode, client=client, model="offline:scout") as connected:
            return await connected.call_tool("Delegate", {"tasks": [{"label": "a", "prompt": prompt}]})

    result = asyncio.run(main())
    assert result.is_error
    [form] = seen
    run = entries(house)[0]["session_id"]
    for piece in ("first line", "«2,000 spaces»; touch X", "last line", f"deputy approve {run} --key", "--digest "):
        assert piece in form.message
    assert form.requested_schema["properties"]["choice"]["enum"] == ["yes", "no"]


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("mode", ERAS)
def test_a_request_that_is_too_long_for_a_form_can_only_be_denied_by_it(house, monkeypatch, mode):
    monkeypatch.setattr(questions, "MOST_TEXT", 2000)
    client, seen = person(YES)

    async def main():
        async with here(house, mode=mode, client=client, model="offline:scout") as connected:
            return await connected.call_tool("Delegate", {"tasks": [{"label": "a", "prompt": "line\n" * 5000}]})

    result = asyncio.run(main())
    assert result.is_error
    run = entries(house)[0]["session_id"]
    assert f"deputy approve {run} --details" in seen[0].message
    assert "bytes are not shown" in seen[0].message
    assert seen[0].requested_schema["properties"]["choice"]["enum"] == ["no"]


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("mode", ERAS)
def test_a_call_whose_context_file_changed_is_asked_again(house, mode):
    notes = house.workspace / "notes.txt"
    notes.write_text("harmless")
    model = house.script("ok", talk(turn("found it")))
    seen: list = []

    async def answer(context, params):
        seen.append(params.message)
        if len(seen) == 1:
            notes.write_text("something else")
            return ElicitResult(**YES)
        return ElicitResult(**NO)

    async def main():
        client = {"elicitation_callback": answer}
        async with here(house, mode=mode, client=client, model=model) as connected:
            call = {"tasks": [{"label": "a", "prompt": "Read it.", "context": ["notes.txt"]}]}
            return await connected.call_tool("Delegate", call)

    result = asyncio.run(main())
    assert len(seen) == 2
    assert seen[0] != seen[1]
    assert result.is_error
    assert [entry["status"] for entry in entries(house)] == ["rejected"]


@pytest.mark.rule("approve.child")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(("choice", "is_done"), [("yes", True), ("no", False)])
def test_a_command_of_a_subagent_is_asked_by_the_client_that_waits(house, mode, choice, is_done):
    run_it = call("Run", command="echo owned > owned")
    model = house.script("m", talk(turn("", run_it), turn("done")))
    client, seen = person(YES, {"action": "accept", "content": {"choice": choice}})

    async def main():
        allow = frozenset({"Read", "Run"})
        async with here(house, mode=mode, client=client, model=model, allow=allow) as connected:
            task = {"label": "a", "prompt": "do", "tools": ["Read", "Run"], "isolation": "none"}
            return await connected.call_tool("Delegate", {"tasks": [task]})

    result = asyncio.run(main())
    assert len(seen) == 2, json.dumps(result.structured_content)
    assert "echo owned > owned" in seen[1].message
    assert (house.workspace / "owned").exists() is is_done
