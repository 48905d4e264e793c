"""Going on with a run over MCP: within what the server allows, and approved like a new call."""

import asyncio
import json

import pytest
from mcp_types import ElicitResult
from tests.support.command_house import entries, until
from tests.support.mcp_clients import ERAS, Wire, here, tasks, text_of
from tests.support.scripts import call, talk, turn

RUNS = call("Run", command="echo owned > owned")
WRITERS = frozenset({"Read", "Grep", "Glob", "WebFetch", "WebSearch", "Edit", "Write", "Run"})


def ended_run(house, *turns: dict) -> str:
    """A run of a person's that has ended, and has more to do when it is gone on with."""
    model = house.script("m", talk(turn("first done"), *turns, times=9))
    return json.loads(house.run("run", "do", "--model", model, "--json").stdout)["session_id"]


def answering(action: str, content: dict | None = None):
    async def answer(context, params):
        return ElicitResult(action=action, content=content)

    return {"elicitation_callback": answer}


def resumed(house, run: str, *, answer: str | None = "go on", result: bool = True, more=None, **options):
    """What comes of going on with a run, and where it stands in the end."""

    async def main():
        async with here(house, **options) as client:
            output = await client.call_tool("DelegateResume", {"session_id": run, "answer": answer, **(more or {})})
            if not output.is_error and result:
                await client.call_tool("DelegateResult", {"session_id": run, "wait": 30})
            return output

    return asyncio.run(main())


@pytest.mark.rule("guard.subset")
def test_a_run_that_may_do_more_than_the_server_allows_is_not_gone_on_with(house):
    run = ended_run(house, turn("", RUNS), turn("second done"))
    with Wire(house) as wire:
        wire.shake_hands()
        output = wire.answer(wire.call("DelegateResume", {"session_id": run, "answer": "go on"}))["result"]
    assert output["isError"]
    assert "Edit, Run, Write" in output["content"][0]["text"]
    assert f"deputy resume {run}" in output["content"][0]["text"]
    assert "--allow Run" in output["content"][0]["text"]
    assert not (house.workspace / "owned").exists()
    assert entries(house)[0]["status"] == "completed"


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("person", "is_done"),
    [
        (answering("accept", {"choice": "yes"}), True),
        (answering("accept", {"choice": "no"}), False),
        (answering("accept", {}), False),
        (answering("decline"), False),
    ],
)
def test_a_run_goes_on_only_if_the_person_of_the_client_approves(house, mode, person, is_done):
    run = ended_run(house, turn("", RUNS), turn("second done"))
    resumed(house, run, mode=mode, client=person, allow=WRITERS)
    said = json.loads(house.run("show", run, "--json").stdout)
    assert (said["status"], said["outcome"]["report"]) == ("completed", "second done" if is_done else "first done")
    owned = house.workspace / "owned"
    assert (owned.read_text() if owned.exists() else None) == ("owned\n" if is_done else None)


@pytest.mark.rule("delegate.approve")
def test_without_a_person_to_ask_a_run_waits_and_keeps_its_outcome_without_an_answer(house):
    run = ended_run(house, turn("", RUNS), turn("second done"))
    output = resumed(house, run, allow=WRITERS, approval_seconds=3)
    assert output.structured_content["status"] == "waiting"
    assert output.structured_content["question"] == "Resume a finished run: run (risk: high)"
    assert f"deputy approve {run}" in output.structured_content["next"]
    assert not (house.workspace / "owned").exists()
    assert entries(house)[0]["status"] == "completed"


def test_a_server_that_refuses_goes_on_with_nothing(house):
    run = ended_run(house, turn("second done"))
    output = resumed(house, run, allow=WRITERS, approval="refuse")
    assert output.is_error
    assert "refuses" in text_of(output)


def test_a_run_that_was_killed_and_asks_step_by_step_is_not_gone_on_with(house):
    model = house.script("m", talk(turn("never said", delay_seconds=60), times=9))
    process = house.start("run", "do", "--model", model)
    until(lambda: [entry for entry in entries(house) if entry["under_way"]])
    process.kill()
    process.wait()
    run = entries(house)[0]["session_id"]
    output = resumed(house, run, answer=None, allow=WRITERS)
    assert output.is_error
    assert f"deputy resume {run}" in text_of(output)
    assert entries(house)[0]["status"] == "interrupted"


@pytest.mark.parametrize("action", ["accept", "zzz"])
def test_an_answer_that_is_no_clear_yes_starts_nothing(house, action):
    with Wire(house, "--model", "offline:scout") as wire:
        about = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}}
        wire.answer(wire.send("initialize", {**about, "clientInfo": {"name": "wire", "version": "1"}}))
        wire.send("notifications/initialized", is_notification=True)
        call = wire.call("Delegate", tasks("a"))
        while (asked := wire.read()).get("method") != "elicitation/create":
            pass
        line = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": action, "content": {}}}
        wire.process.stdin.write(json.dumps(line).encode() + b"\n")
        wire.process.stdin.flush()
        output = wire.answer(call)["result"]
    assert output["isError"]
    assert [entry["status"] for entry in entries(house)] == ["rejected"]


@pytest.mark.rule("commands.state")
def test_a_command_that_completed_keeps_its_outcome_and_its_task_when_it_is_gone_on_with_again(house, tmp_path):
    house.env["HOME"] = str(tmp_path / "person")
    assert house.run("task", "add", "One").returncode == 0
    path = ".deputy/work/001_one/report.md"
    writes = turn("", call("Write", path=path, content="found"))
    about = {"summary": "It is done.", "artifacts": [{"type": "research", "path": path}]}
    meta = {"metadata": {"session_id": "{session_id}", "agent_type": "researcher"}}
    done, half = (turn(json.dumps({"status": status, **about, **meta})) for status in ("completed", "partial"))
    model = house.script("m", talk(writes, half, *[done] * 4, times=9))
    run = json.loads(house.run("research", "1", "--yes", "--json", "--model", model).stdout)["session_id"]

    async def main():
        async with here(house, allow=WRITERS, approval="granted") as client:
            for _ in range(2):
                await client.call_tool("DelegateResume", {"session_id": run, "answer": "go on"})
                await client.call_tool("DelegateResult", {"session_id": run, "wait": 30})

    asyncio.run(main())
    shown = json.loads(house.run("task", "show", "1", "--json").stdout)
    assert (entries(house)[0]["status"], shown["status"]) == ("completed", "researched")


@pytest.mark.rule("delegate.cancel")
def test_a_run_that_waits_for_an_answer_is_cancelled_over_mcp(house):
    ask = call("Ask", question="Which one?")
    model = house.script("m", talk(turn("", ask)))
    assert house.run("delegate", "-t", "a=x", "--model", model, "--yes").returncode == 5
    [run] = [entry["session_id"] for entry in entries(house) if entry["command"] == "delegate"]

    async def main():
        async with here(house) as client:
            return await client.call_tool("DelegateCancel", {"session_id": run})

    output = json.loads(text_of(asyncio.run(main())))
    assert (output["status"], [task["status"] for task in output["tasks"]]) == ("cancelled", ["cancelled"])
    assert "question" not in output


@pytest.mark.rule("resume.progress")
@pytest.mark.rule("approve.exact")
def test_another_budget_and_model_are_approved_and_used(house):
    run = ended_run(house, turn("never"))
    good = house.script("good", talk(turn("second done"), times=9))
    refused = resumed(house, run, more={"model": good}, result=False)
    assert "only the person who runs Deputy may name a script" in text_of(refused)
    seen = []

    async def accept(context, params):
        seen.append(params.message)
        return ElicitResult(action="accept", content={"choice": "yes"})

    more = {"budget": {"requests": 9}, "model": "offline:scout"}
    resumed(house, run, more=more, client={"elicitation_callback": accept}, allow=WRITERS)
    said = json.loads(house.run("show", run, "--json").stdout)
    assert (said["status"], said["outcome"]["model"]) == ("completed", "offline:scout")
    assert "9 requests" in seen[0]
    assert "offline:scout" in seen[0]


def test_the_status_of_a_run_names_the_page_that_is_served_and_never_its_token(house):
    model = house.script("slow", talk(turn("never said", delay_seconds=60), times=9))
    page = house.start("web", "--no-open", "--json")
    address = json.loads(b"".join(iter(page.stdout.readline, b"}\n")) + b"}")
    token = (house.home / "web-token").read_text().strip()

    async def main():
        async with here(house, model=model) as client:
            started = await client.call_tool("DelegateStart", tasks("a"))
            page.terminate()
            page.wait()
            run = started.structured_content["session_id"]
            return started, await client.call_tool("DelegateStatus", {"session_id": run})

    started, later = asyncio.run(main())
    run = started.structured_content["session_id"]
    assert started.structured_content["page"] == f"{address['url']}/run/{run}"
    assert token not in text_of(started) + str(started.structured_content)
    assert "page" not in later.structured_content
