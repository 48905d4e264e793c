"""Sessions of an editor: turns, tool calls, subagents, permissions, cancel and load."""

import asyncio
import json

import pytest
from tests.support.acp_editor import Editor
from tests.support.command_house import entries
from tests.support.scripts import call, talk, turn, write_script

from deputy.backends.acp import jsonrpc
from deputy.core.limits import Budget
from deputy.interfaces import questions
from deputy.interfaces.acp import acp_session

DELEGATE = call("Delegate", tasks=[{"label": "a", "prompt": "the first"}, {"label": "b", "prompt": "the second"}])
CHILDREN = (
    talk(turn("", call("Note", content="a finding")), turn("report a"), when="the first"),
    talk(turn("report b"), when="the second"),
)


@pytest.fixture
def place(house, monkeypatch):
    """A workspace, and a function that says what the model says."""
    for name, value in house.env.items():
        monkeypatch.setenv(name, value)

    def script(*conversations):
        monkeypatch.setenv("DEPUTY_MODEL", write_script(house.workspace.parent / "script.json", *conversations))

    house.says = script
    return house


def test_a_turn_shows_text_tool_calls_plan_and_subagents_in_order(place, monkeypatch):
    monkeypatch.setattr(acp_session, "LOOK_SECONDS", 0.001)
    place.workspace.joinpath("x.txt").write_text("hello")
    place.says(
        talk(turn("I look. ", call("Read", path="x.txt")), turn("I ask. ", DELEGATE), turn("Done."), when="go"),
        CHILDREN[0],
        # It ends after the client was shown both at work.
        talk(turn("report b", delay_seconds=0.3), when="the second"),
    )

    async def main():
        async with Editor(place.workspace) as editor:
            session = await editor.open()
            assert await editor.prompt(session, "go") == "end_turn"
            return editor, session

    editor, session = asyncio.run(main())
    assert editor.text == "I look. I ask. Done."
    assert [(one["title"], one["kind"]) for one in editor.of("tool_call")] == [
        ("Read x.txt", "read"),
        ("Delegate [2 subagents]", "other"),
    ]
    assert editor.of("tool_call")[0]["locations"] == [{"path": str(place.workspace / "x.txt")}]
    assert editor.ends() == {"tool:1.0": "completed", "tool:2.0": "completed"}
    kinds = [one["sessionUpdate"] for one in editor.updates if "message" not in one["sessionUpdate"]]
    assert kinds.index("tool_call") < kinds.index("tool_call_update")
    plans = [[entry["status"] for entry in plan["entries"]] for plan in editor.of("plan")]
    assert (plans[0], plans[-1]) == (["pending", "pending"], ["completed", "completed"])
    assert editor.of("plan")[0]["entries"][0]["content"] == "a: the first"
    live = [one["content"][0]["content"]["text"] for one in editor.of("tool_call_update") if "content" in one]
    assert any("[a]" in text and "[b]" in text for text in live[:-1]), live
    assert "report a" in live[-1]
    assert "report b" in live[-1]
    assert entries(place)[0]["session_id"] == session
    assert entries(place)[0]["delivered"]


@pytest.mark.rule("approve.who", "approve.exact")
def test_a_permission_shows_the_whole_call_with_its_key_and_digest_and_a_no_stops_it(place, monkeypatch):
    async def too_slow(*_):
        await asyncio.Event().wait()

    # Nothing else sends the call in time, so that the question itself must.
    monkeypatch.setattr(acp_session.AcpSession, "_follow", too_slow)
    place.says(talk(turn("", call("Write", path="x.txt", content="new")), turn("Not written."), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            known = []

            def deny(asked):
                known.append(asked["toolCall"]["toolCallId"] in editor.ends())
                return "no"

            editor.choose = deny
            assert await editor.prompt(await editor.open(), "go") == "end_turn"
            assert known == [True], "the client was asked about a call that it did not know"
            return editor

    editor = asyncio.run(main())
    [asked] = editor.asked
    meta = asked["_meta"]["deputy"]
    assert asked["toolCall"]["toolCallId"] == "tool:1.0"
    assert [one["optionId"] for one in asked["options"]] == ["yes", "always", "no"]
    shown = asked["toolCall"]["content"][0]["content"]["text"]
    assert all(word in shown for word in ("Use Write", "x.txt", "+new", meta["digest"], f"--key {meta['key']}"))
    assert editor.ends() == {"tool:1.0": "failed"}
    assert not place.workspace.joinpath("x.txt").exists()


def test_only_an_offered_option_approves(place, monkeypatch):
    monkeypatch.setattr(questions, "MOST_TEXT", 50)
    place.says(talk(turn("", call("Write", path="x.txt", content="new")), turn("Not written."), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            assert await editor.prompt(await editor.open(), "go") == "end_turn"
            return editor

    editor = asyncio.run(main())
    assert [one["optionId"] for one in editor.asked[0]["options"]] == ["no"]
    assert not place.workspace.joinpath("x.txt").exists()


def test_an_approval_of_a_subagent_is_asked_in_the_session_and_ended_there(place):
    place.says(
        talk(
            turn(
                "",
                call("Delegate", tasks=[{"label": "w", "prompt": "write it", "tools": ["Write"], "isolation": "none"}]),
            ),
            turn("Done."),
            when="go",
        ),
        talk(turn("", call("Write", path="x.txt", content="new")), turn("written"), when="write it"),
    )

    async def main():
        async with Editor(place.workspace) as editor:
            session = await editor.open()
            assert await editor.prompt(session, "go") == "end_turn"
            return editor, session

    editor, session = asyncio.run(main())
    start, write = editor.asked
    assert start["toolCall"]["title"] == "Start 1 subagent"
    assert (write["sessionId"], write["toolCall"]["title"]) == (session, "[w] Use Write")
    assert write["_meta"]["deputy"]["sessionId"] != session
    assert editor.ends()[write["toolCall"]["toolCallId"]] == "completed"
    assert place.workspace.joinpath("x.txt").read_text() == "new"


def test_a_cancelled_turn_ends_as_cancelled_withdraws_its_question_and_the_next_prompt_goes_on(place):
    place.says(
        talk(turn("I write. ", call("Write", path="x.txt", content="new")), turn("Something else."), when="go"),
    )

    async def main():
        async with Editor(place.workspace) as editor:
            editor.choose = lambda asked: None
            session = await editor.open()
            running = asyncio.create_task(editor.prompt(session, "go"))
            await editor.until(lambda: editor.asked)
            code, words = await editor.refused(
                "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "x"}]
            )
            assert (code, "a turn is running" in words) == (jsonrpc.INVALID_PARAMS, True)
            editor.notify("session/cancel", sessionId=session)
            assert await running == "cancelled"
            assert editor.withdrawn == [1]
            assert editor.ends() == {"tool:1.0": "failed"}
            assert await editor.prompt(session, "do something else") == "end_turn"
            return editor

    assert asyncio.run(main()).text == "I write. Something else."
    assert [entry["status"] for entry in entries(place)] == ["completed"]


def test_a_request_can_be_cancelled_by_its_id(place):
    place.says(talk(turn("never said", delay_seconds=60), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            session = await editor.open()
            running = asyncio.create_task(editor.prompt(session, "go"))
            await asyncio.to_thread(lambda: [None for _ in iter(lambda: bool(entries(place)), True)])
            editor.notify("$/cancel_request", requestId=3)
            return await running

    assert asyncio.run(main()) == "cancelled"


def test_a_client_that_leaves_interrupts_its_turn_and_a_loaded_session_goes_on_with_the_next_prompt(place):
    place.says(talk(turn("I look. ", call("Glob", pattern="*")), turn("never said", delay_seconds=60), when="go"))

    async def leave():
        async with Editor(place.workspace) as editor:
            session = await editor.open()
            turn = asyncio.create_task(editor._connection.ask("session/prompt", _prompt(session, "go")))
            await editor.until(lambda: editor.ends().get("tool:1.0") == "completed")
        turn.cancel()
        return session

    session = asyncio.run(leave())
    assert [entry["status"] for entry in entries(place)] == ["interrupted"]
    place.says(talk(turn("I look. "), turn("Here again."), turn("Once more."), when="go"))

    async def come_back(method):
        async with Editor(place.workspace) as editor:
            await editor.load(session, method)
            replayed = [(one["sessionUpdate"], one.get("status")) for one in editor.updates]
            assert await editor.prompt(session, "again") == "end_turn"
            return replayed, editor.text

    replayed, text = asyncio.run(come_back("session/load"))
    assert replayed == [
        ("user_message_chunk", None),
        ("agent_message_chunk", None),
        ("tool_call", "pending"),
        ("tool_call_update", "in_progress"),
        ("tool_call_update", "completed"),
    ]
    assert text == "I look. Here again."
    assert asyncio.run(come_back("session/resume")) == ([], "Once more.")


def _prompt(session, text):
    return {"sessionId": session, "prompt": [{"type": "text", "text": text}]}


def test_a_question_in_words_ends_the_turn_and_the_next_prompt_answers_it(place):
    place.says(talk(turn("", call("Ask", question="Which colour?")), turn("Blue it is."), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            session = await editor.open()
            assert await editor.prompt(session, "go") == "end_turn"
            before = editor.text
            assert await editor.prompt(session, "blue") == "end_turn"
            return before, editor.text

    before, text = asyncio.run(main())
    assert before == "Which colour?"
    assert text.endswith("Blue it is.")


@pytest.mark.parametrize(
    ("turns", "budget", "reason", "words"),
    [
        (
            (turn("I look.", call("Glob", pattern="*")), turn("So far.")),
            Budget(requests=2),
            "max_turn_requests",
            "budget",
        ),
        (
            (turn("I look.", call("Glob", pattern="*")), turn(faults=("context_exhausted",))),
            None,
            "max_tokens",
            "context",
        ),
    ],
    ids=["budget", "context"],
)
def test_a_turn_that_reaches_a_limit_says_which(place, turns, budget, reason, words):
    place.says(talk(*turns, turn("The end."), when="go"))

    async def main():
        async with Editor(place.workspace, budget=budget) as editor:
            return await editor.prompt(await editor.open(), "go"), editor.text

    stop, text = asyncio.run(main())
    assert (stop, words in text.lower()) == (reason, True), text


def test_a_failed_turn_is_an_error_and_never_an_answer(place):
    place.says(talk(turn(faults=("refused",)), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            return await editor.refused("session/prompt", **_prompt(await editor.open(), "go"))

    code, words = asyncio.run(main())
    assert code == jsonrpc.INTERNAL_ERROR
    assert words


def test_secrets_in_arguments_and_results_do_not_reach_the_client(place, monkeypatch):
    monkeypatch.setenv("SOME_API_TOKEN", "canary-5f2e9d7c1b3a")
    place.workspace.joinpath("x.txt").write_text("token canary-5f2e9d7c1b3a here")
    place.says(talk(turn("", call("Grep", pattern="canary-5f2e9d7c1b3a", path=".")), turn("Found."), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            await editor.prompt(await editor.open(), "go")
            return editor.updates

    updates = asyncio.run(main())
    assert any(one.get("status") == "completed" for one in updates)
    assert "canary-5f2e9d7c1b3a" not in json.dumps(updates)


@pytest.mark.parametrize(
    ("blocks", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\n\nb"),
        ([{"type": "resource_link", "name": "x", "uri": "file:///a%20b.py"}], "[x](/a b.py)"),
        ([{"type": "resource", "resource": {"uri": "https://a.b/c", "text": "body"}}], "https://a.b/c:\n\nbody"),
    ],
)
def test_a_prompt_becomes_text(blocks, text):
    assert acp_session.prompt_text(blocks) == text


def test_every_message_fits_the_schema_of_the_protocols_own_sdk(place):
    from acp import schema

    place.says(
        talk(turn("I ask. ", DELEGATE), turn("", call("Write", path="y", content="z")), turn("Done."), when="go"),
        *CHILDREN,
    )

    async def main():
        async with Editor(place.workspace) as editor:
            schema.InitializeResponse.model_validate(await editor.ask("initialize", protocolVersion=1))
            opened = await editor.ask("session/new", cwd=str(place.workspace), mcpServers=[])
            session = schema.NewSessionResponse.model_validate(opened).session_id
            schema.PromptResponse.model_validate(await editor.ask("session/prompt", **_prompt(session, "go")))
            schema.CloseSessionResponse.model_validate(await editor.ask("session/close", sessionId=session))
            await editor.load(session)
            return editor, session

    editor, session = asyncio.run(main())
    assert len(editor.of("plan")) > 2
    assert len(editor.of("user_message_chunk")) == 1
    for update in editor.updates:
        schema.SessionNotification.model_validate({"sessionId": session, "update": update})
    for asked in editor.asked:
        schema.RequestPermissionRequest.model_validate(asked)
