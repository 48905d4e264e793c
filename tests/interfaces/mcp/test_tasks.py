"""Calls as MCP tasks: a task is a run, by the same id."""

import pytest
from tests.support.command_house import entries, until
from tests.support.mcp_clients import Wire, tasks
from tests.support.scripts import talk, turn

KNOWS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
CAN_ASK = {**KNOWS, "elicitation": {}}
CALL = {"name": "Delegate", "arguments": tasks("a")}


def get(wire: Wire, task: str, capabilities: dict = KNOWS) -> dict:
    return wire.ask("tasks/get", {"taskId": task}, capabilities)["result"]


def ended(wire: Wire, task: str) -> dict:
    return until(lambda: found if (found := get(wire, task))["status"] not in ("working", "input_required") else None)


def test_a_client_that_knows_tasks_gets_one_and_looks_after_it(house):
    slowly = talk(turn("never said", delay_seconds=60), when="the work of slow")
    model = house.script("ok", slowly, talk(turn("found it")))
    with Wire(house, "--yes", DEPUTY_MODEL=model) as wire:
        made = wire.ask("tools/call", CALL, KNOWS)["result"]
        assert made["resultType"] == "task"
        assert made["taskId"] == entries(house)[0]["session_id"]
        done = ended(wire, made["taskId"])
        assert done["status"] == "completed"
        assert done["result"]["structuredContent"]["results"][0]["report"] == "found it"

        slow = wire.ask("tools/call", {**CALL, "arguments": tasks("slow")}, KNOWS)["result"]["taskId"]
        assert get(wire, slow)["status"] == "working"
        assert wire.ask("tasks/cancel", {"taskId": slow}, KNOWS)["result"]["resultType"] == "complete"
        assert ended(wire, slow)["status"] == "cancelled"

        assert wire.ask("tasks/get", {"taskId": "sess_1_aaaaaa"}, KNOWS)["error"]["code"] == -32602
        assert wire.ask("tasks/get", {"taskId": slow})["error"]["code"] == -32021


@pytest.mark.parametrize(("choice", "completed"), [("yes", 1), ("no", 0), ("always", 0), (True, 0)])
def test_a_task_asks_for_approval_and_is_answered(house, choice, completed):
    model = house.script("ok", talk(turn("found it")))
    with Wire(house, DEPUTY_MODEL=model) as wire:
        task = wire.ask("tools/call", CALL, CAN_ASK)["result"]["taskId"]
        asking = until(lambda: found if (found := get(wire, task, CAN_ASK)).get("inputRequests") else None)
        assert asking["status"] == "input_required"
        [(name, request)] = asking["inputRequests"].items()
        assert "Start 1 subagent" in request["params"]["message"]
        answers = {name: {"action": "accept", "content": {"choice": choice}}}
        wire.ask("tasks/update", {"taskId": task, "inputResponses": answers}, CAN_ASK)
        assert ended(wire, task)["result"]["structuredContent"]["completed"] == completed


def test_a_task_outlives_the_server_that_made_it(house):
    slow = house.script("slow", talk(turn("never said", delay_seconds=60), times=2))
    with Wire(house, "--yes", DEPUTY_MODEL=slow) as wire:
        task = wire.ask("tools/call", CALL, KNOWS)["result"]["taskId"]
        until(lambda: len(entries(house)) == 2)
    quick = house.script("slow", talk(turn("done after all"), times=2))
    with Wire(house, "--yes", DEPUTY_MODEL=quick) as wire:
        assert ended(wire, task)["result"]["structuredContent"]["results"][0]["report"] == "done after all"
