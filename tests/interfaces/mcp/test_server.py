"""What clients can list, read and call, and what they are told when they ask for the wrong thing."""

import asyncio
import json
import signal
import unicodedata

import pytest
from mcp import MCPError
from msgspec import UNSET
from tests.support.command_house import entries, until
from tests.support.mcp_clients import ERAS, here, tasks, text_of
from tests.support.scripts import call as scripted_call
from tests.support.scripts import talk, turn
from tests.tools.test_mcp_servers import configured

from deputy.core.task import DelegateArguments
from deputy.core.tool_arguments import arguments_schema
from deputy.interfaces.mcp import delegate_tools, run_tools
from deputy.journal.sqlite.sqlite_queries import SqliteQueries


def calls(house, *asked: tuple[str, dict], **options) -> list:
    async def main():
        async with here(house, **{"model": "offline:scout", "approval": "granted", **options}) as client:
            return [await client.call_tool(name, arguments) for name, arguments in asked]

    return asyncio.run(main())


def call(house, name: str, arguments: dict, **options):
    return calls(house, (name, arguments), **options)[0]


@pytest.mark.rule("delegate.schema")
def test_every_tool_says_what_it_takes_and_whether_it_changes_anything(house):
    async def main():
        async with here(house) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    tools = asyncio.run(main())
    assert tools["Delegate"].input_schema == arguments_schema(DelegateArguments)
    assert "when it pays" in tools["Delegate"].description
    assert tools["Delegate"].annotations.read_only_hint is False
    assert tools["DelegateStatus"].annotations.read_only_hint is True
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools.values())


@pytest.mark.rule("delegate.schema")
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "tasks is missing"),
        ({"tasks": []}, "tasks is []; it must be a list of 1 to 8 tasks"),
        ({"tasks": [{"label": "a", "prompt": " "}]}, "tasks[0].prompt is ' '"),
        ({"tasks": [{"label": "a", "prompt": "x", "color": 1}]}, "tasks[0].color is not a field"),
        ({**tasks("a"), "concurrency": 9}, "concurrency is 9"),
        ({"tasks": [{"label": "a", "prompt": "x", "tools": ["Delegate"]}]}, "names Delegate"),
        ({"tasks": [{"label": "a", "prompt": "x", "model": "script:/etc/passwd"}]}, "tasks[0].model is 'script:/etc"),
        (
            {"tasks": [{"label": "a", "prompt": "x", "model": "script:/nowhere"}]},
            "only the person who runs Deputy may name a script",
        ),
    ],
)
def test_a_bad_call_is_refused_with_the_fields_name_and_nothing_is_opened(house, arguments, problem):
    result = call(house, "Delegate", arguments)
    assert result.is_error
    assert problem in text_of(result)
    assert entries(house) == []


@pytest.mark.parametrize("era", ERAS)
def test_the_trace_of_a_call_is_kept_with_its_run(house, era):
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def main():
        async with here(house, mode=era, model="offline:scout", approval="granted") as client:
            await client.call_tool("Delegate", tasks("a"), meta={"traceparent": traceparent})
            await client.call_tool("Delegate", tasks("b"), meta={"traceparent": "00-no"})

    asyncio.run(main())
    with SqliteQueries.open_any(house.home) as queries:
        kept = {state.label: state.lineage.traceparent for state in queries.ended(10) if state.label}
    assert kept == {"a": traceparent, "b": UNSET}


@pytest.mark.rule("delegate.key")
def test_a_missing_key_is_reported_before_asking(house, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    result = call(house, "Delegate", tasks("a"), model="anthropic:claude-sonnet-4-5", approval="ask")
    text = (
        "Cannot spawn subagents: no API key for provider anthropic. Set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN, or"
    )
    assert text_of(result).startswith(text)


@pytest.mark.rule("honest.model")
def test_without_a_model_a_call_is_refused_before_anything_starts(house, monkeypatch):
    for name, value in house.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DEPUTY_MODEL", "")
    result = call(house, "Delegate", tasks("a"), model=None)
    assert result.is_error
    assert text_of(result).startswith("Cannot spawn subagents: no model is configured. Set the key of a provider")
    assert entries(house) == []


def test_tasks_only_read_unless_the_server_was_told_otherwise(house):
    model = house.script("w", talk(turn("wrote it"), times=2))
    writing = {"tasks": [{"label": "a", "prompt": "x", "tools": ["Write"]}]}
    refused = call(house, "Delegate", writing, model=model)
    allowed = call(house, "Delegate", writing, model=model, allow=frozenset({"Read", "Write"}))
    assert refused.structured_content["results"][0]["status"] == "rejected"
    assert allowed.structured_content["completed"] == 1


def test_a_task_may_name_subtask_where_the_server_allows_it(house):
    wanted = {"type": "check", "description": "Check the sum."}
    asks = turn("", scripted_call("Subtask", requests=[wanted]))
    model = house.script("w", talk(turn("It is right."), when="Check the sum."), talk(asks, turn("Checked.")))
    naming = {"tasks": [{"label": "a", "prompt": "x", "tools": ["Read", "Subtask"]}]}
    allowed = call(house, "Delegate", naming, model=model, allow=frozenset({"Read", "Subtask"}))
    refused = call(house, "Delegate", naming, model=model)
    assert allowed.structured_content["results"][0]["report"] == "Checked."
    error = refused.structured_content["results"][0]["error"]
    assert (error["code"], "'Subtask'" in error["message"]) == ("GRANT_EXCEEDED", True)


@pytest.mark.rule("honest.calls")
def test_a_continuation_of_a_task_without_subtask_fails_over_mcp_too(house):
    asks = {"content": "", "status": "CONTINUATION", "notes": {"subtask_request": {"type": "a", "description": "b"}}}
    model = house.script("w", talk(turn(json.dumps(asks)), turn(json.dumps(asks))))
    (result,) = call(house, "Delegate", tasks("a"), model=model).structured_content["results"]
    assert (result["outcome"], result["error"]["code"]) == ("failed", "INVALID_REQUEST")


def test_of_configured_servers_tasks_may_name_the_tools_that_only_read(house, monkeypatch):
    configured(house)
    monkeypatch.setenv("HOME", house.env["HOME"])
    model = house.script("w", talk(turn("done"), times=2))
    reads, writes = (
        {"tasks": [{"label": "a", "prompt": "x", "tools": [f"mcp__docs__{name}"]}]} for name in ("search", "publish")
    )
    looked, published, unknown = calls(
        house,
        ("Delegate", reads),
        ("Delegate", writes),
        ("Delegate", {"tasks": [{"label": "a", "prompt": "x", "tools": ["mcp__no__x"]}]}),
        model=model,
    )
    assert looked.structured_content["completed"] == 1
    assert published.structured_content["results"][0]["status"] == "rejected"
    assert "no MCP server has that name" in text_of(unknown)


def test_results_come_as_json_where_they_are_asked_for(house):
    result = call(house, "Delegate", tasks("a", **{"return": "json"}))
    form = json.loads(text_of(result))
    assert form == result.structured_content
    assert (form["completed"], form["results"][0]["label"]) == (1, "a")


def test_a_started_run_is_followed_collected_and_gone_on_with(house):
    model = house.script("q", talk(turn("Which one? [AWAITING_HUMAN_INPUT]"), turn("The second it is.")))

    async def main():
        async with here(house, model=model, approval="granted") as client:
            run = (await client.call_tool("DelegateStart", tasks("a"))).structured_content["session_id"]
            blocked = await client.call_tool("DelegateResult", {"session_id": run})
            child = blocked.structured_content["results"][0]
            way = f"To answer, call DelegateResume with the answer and session_id {child['session_id']}."
            assert blocked.structured_content["next"] == way
            assert text_of(blocked).endswith(f"]\n\n{way}")
            await client.call_tool("DelegateResume", {"session_id": run, "answer": "the second"})
            done = await client.call_tool("DelegateResult", {"session_id": run})
            where = await client.call_tool("DelegateStatus", {"session_id": run})
            return child, done, where

    child, done, where = asyncio.run(main())
    assert (child["status"], child["question"]) == ("blocked", "Which one?")
    assert done.structured_content["results"][0]["report"] == "The second it is."
    assert where.structured_content["tasks"][0]["status"] == "completed"


def test_a_run_that_takes_longer_than_the_wait_is_reported_and_can_be_cancelled(house):
    model = house.script("slow", talk(turn("never said", delay_seconds=60)))

    async def main():
        async with here(house, model=model, approval="granted") as client:
            run = (await client.call_tool("DelegateStart", tasks("a"))).structured_content["session_id"]
            early = await client.call_tool("DelegateResult", {"session_id": run, "wait": 0})
            stopped = await client.call_tool("DelegateCancel", {"session_id": run})
            return early, stopped, await client.call_tool("DelegateResult", {"session_id": run})

    early, stopped, late = asyncio.run(main())
    assert early.structured_content["status"] == "running"
    assert stopped.structured_content["status"] == "cancelled"
    assert late.structured_content["results"][0]["status"] == "cancelled"


def test_a_run_that_is_cancelled_while_it_waits_for_approval_is_over(house):
    async def main():
        async with here(house, model="offline:scout") as client:
            started = (await client.call_tool("DelegateStart", tasks("a"))).structured_content
            assert started["status"] == "waiting"
            return await client.call_tool("DelegateCancel", {"session_id": started["session_id"]})

    output = asyncio.run(main()).structured_content
    assert (output["status"], output["next"]) == ("cancelled", "DelegateResult returns the results.")


def test_a_run_whose_process_does_not_stop_it_in_time_is_being_cancelled(house, monkeypatch):
    monkeypatch.setattr(run_tools, "_CANCEL_SECONDS", 0.05)
    model = house.script("slow", talk(turn("never said", delay_seconds=60)))
    process = house.start("delegate", "-t", "a=work", "--yes", "--model", model)
    until(lambda: [entry for entry in entries(house) if entry["under_way"]])
    process.send_signal(signal.SIGSTOP)
    output = call(house, "DelegateCancel", {"session_id": entries(house)[0]["session_id"]}).structured_content
    assert output["status"] == "cancelling"
    assert "DelegateResult waits for its end" in output["next"]


def test_an_answer_to_a_run_that_is_at_work_is_refused_and_not_lost_silently(house):
    model = house.script("slow", talk(turn("never said", delay_seconds=60)))

    async def main():
        async with here(house, model=model, approval="granted") as client:
            run = (await client.call_tool("DelegateStart", tasks("a"))).structured_content["session_id"]
            said = await client.call_tool("DelegateResume", {"session_id": run, "answer": "the second"})
            looked = await client.call_tool("DelegateResume", {"session_id": run})
            await client.call_tool("DelegateCancel", {"session_id": run})
            return said, looked

    said, looked = asyncio.run(main())
    assert said.is_error
    assert "the run is running" in text_of(said)
    assert "the answer was not taken" in text_of(said)
    assert looked.structured_content["status"] == "running"


@pytest.mark.parametrize("name", ["DelegateStatus", "DelegateResult", "DelegateCancel", "DelegateResume"])
def test_unknown_runs_and_arguments_are_refused(house, name):
    call(house, "Delegate", tasks("a"))
    unknown, wrong, odd = calls(
        house, (name, {"session_id": "sess_1_aaaaaa"}), (name, {"session_id": 7}), (name, {"session": "x"})
    )
    assert all(result.is_error for result in (unknown, wrong, odd))
    assert "sess_1_aaaaaa" in text_of(unknown)


def test_an_unknown_run_is_named_where_there_is_no_journal_yet(house):
    (unknown,) = calls(house, ("DelegateStatus", {"session_id": "sess_1_aaaaaa"}))
    assert "sess_1_aaaaaa" in text_of(unknown)


def test_too_many_calls_at_once_are_refused_and_the_others_are_not(house, monkeypatch):
    monkeypatch.setattr(delegate_tools, "MOST_CALLS", 1)
    model = house.script("slow", talk(turn("never said", delay_seconds=60)), talk(turn("found it")))

    async def main():
        async with here(house, model=model, approval="granted") as client:
            begun = asyncio.Event()

            async def heard(*_):
                begun.set()

            first = asyncio.create_task(client.call_tool("Delegate", tasks("a"), progress_callback=heard))
            await begun.wait()
            second = await client.call_tool("Delegate", tasks("b"))
            first.cancel()
            await asyncio.wait([first])
            return second

    assert "ask again" in text_of(asyncio.run(main()))


@pytest.mark.parametrize("mode", ERAS)
def test_what_runs_leave_can_be_read_by_its_address(house, mode):
    async def main():
        async with here(house, mode=mode, model="offline:scout", approval="granted") as client:
            assert (await client.list_resources()).resources == []
            templates = (await client.list_resource_templates()).resource_templates
            await client.call_tool("Delegate", tasks("a"))
            listed = {str(one.uri): one for one in (await client.list_resources(cache_mode="bypass")).resources}
            pages = {uri: (await client.read_resource(uri)).contents[0] for uri in listed}
            for uri in ("deputy://runs/sess_1_aaaaaa/outcome", "deputy://runs/x/secrets", "file:///etc/passwd"):
                with pytest.raises(MCPError, match="Unknown resource"):
                    await client.read_resource(uri)
            return templates, pages

    templates, pages = asyncio.run(main())
    assert [one.name for one in templates] == ["transcript", "notes", "outcome"]
    kinds = sorted(uri.rpartition("/")[2] for uri in pages)
    assert kinds == ["notes", "outcome", "outcome", "transcript"]
    said = next(page.text for uri, page in pages.items() if uri.endswith("/transcript"))
    assert "the work of a" in said
    outcome = json.loads(next(page.text for uri, page in pages.items() if uri.endswith("/outcome")))
    assert outcome["status"] == "completed"


@pytest.mark.rule("delegate.advice")
def test_the_advice_for_parents_is_a_prompt_too(house):
    async def main():
        async with here(house) as client:
            listed = (await client.list_prompts()).prompts
            with pytest.raises(MCPError, match="Unknown prompt"):
                await client.get_prompt("nothing")
            return listed, await client.get_prompt("delegate", {"work": "Fix the login."})

    listed, got = asyncio.run(main())
    assert [prompt.name for prompt in listed] == ["delegate"]
    words = got.messages[0].content.text
    assert "Two to four" in words
    assert words.endswith("Fix the login.")


def test_texts_are_looked_into_and_agents_listed_and_nothing_is_run(house):
    folder = house.workspace / ".deputy" / "agents"
    folder.mkdir(parents=True)
    (folder / "reviewer.md").write_text("---\nname: reviewer\ndescription: Reviews.\n---\nReview.\n")
    found, agents, wrong, odd = calls(
        house,
        ("Detect", {"text": "Please spawn a subagent to count the files."}),
        ("Agents", {}),
        ("Detect", {}),
        ("Agents", {"dir": "/"}),
    )
    assert found.structured_content["requests"][0]["prompt"] == "count the files."
    assert [agent["name"] for agent in agents.structured_content["agents"]] == ["reviewer"]
    assert wrong.is_error
    assert odd.is_error
    assert entries(house) == []


@pytest.mark.rule("redact.where")
def test_an_unknown_tool_is_an_error_of_the_protocol_that_repeats_no_secret(house):
    async def main():
        async with here(house) as client:
            with pytest.raises(MCPError, match="Unknown tool") as tool:
                await client.call_tool("password=hunter2hunter2", {})
            with pytest.raises(MCPError, match="Unknown resource") as resource:
                await client.read_resource("deputy://runs/x?password=hunter2hunter2")
        assert "hunter2" not in f"{tool.value} {resource.value} {resource.value.error}"

    asyncio.run(main())


def test_a_home_that_cannot_be_used_is_reported_and_not_a_crash(house):
    house.home.write_text("a file")
    first, second = calls(house, ("Delegate", tasks("a")), ("Delegate", tasks("a")))
    assert first.is_error
    assert second.is_error


def test_what_goes_wrong_outside_a_call_is_an_error_of_the_protocol_in_plain_words(house):
    house.home.write_text("a file")

    async def main():
        async with here(house) as client:
            with pytest.raises(MCPError) as raised:
                await client.read_resource("deputy://runs/sess_1_aaaaaa/outcome")
            return raised.value.error

    error = asyncio.run(main())
    assert error.code in (-32602, -32603)
    assert error.message


@pytest.mark.rule("text.visible")
def test_nothing_that_a_reader_cannot_see_reaches_a_client(house):
    model = house.script("odd", talk(turn("found\x1b]0;owned\x07 it\x9b2J \u202e\U000e0041\u2028#\u200b## [b] ✓")))

    async def main():
        async with here(house, model=model, approval="granted") as client:
            wanted = {"tasks": [{"label": "a", "prompt": "look\u200b"}]}
            refused = await client.call_tool("Delegate", {"tasks": [{"label": "a\nb", "prompt": "look"}]})
            called = await client.call_tool("Delegate", wanted)
            run = json.loads(text_of(await client.call_tool("DelegateStart", wanted)))["session_id"]
            await client.call_tool("DelegateResult", {"session_id": run})
            child = called.structured_content["results"][0]["session_id"]
            pages = [await client.read_resource(f"deputy://runs/{child}/{kind}") for kind in ("outcome", "transcript")]
            return refused, called, [page.contents[0].text for page in pages]

    refused, called, pages = asyncio.run(main())
    assert "tasks[0].label" in text_of(refused)
    text, data = text_of(called), json.dumps(called.structured_content, ensure_ascii=False)
    for said in (text, data, *pages):
        assert not [letter for letter in said if unicodedata.category(letter) in ("Cc", "Cf", "Zl") and letter != "\n"]
    assert "found it #" in text
    assert "\n### [a] ✓" in text


def test_what_goes_wrong_outside_a_tools_call_is_reported_without_secrets(house, monkeypatch):
    monkeypatch.setenv("DOCS_API_KEY", "swordfish-of-the-deep")
    house.home = house.workspace.parent / "swordfish-of-the-deep"
    house.home.write_text("no directory")

    async def main():
        async with here(house) as client:
            with pytest.raises(MCPError) as output:
                await client.read_resource("deputy://runs/sess_1_aaaaaa/outcome")
            return output

    output = asyncio.run(main())
    assert "[redacted]" in str(output.value)
    assert "swordfish" not in str(output.value)
