"""What the server makes of requests, and of clients that misbehave."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from acp import schema
from tests.interfaces.acp.test_acp_session import place
from tests.support.acp_editor import Editor
from tests.support.command_house import entries, until
from tests.support.fork_server import Popen
from tests.support.scripts import call, talk, turn

from deputy.backends.acp import jsonrpc
from deputy.interfaces.acp import acp_server
from deputy.interfaces.acp.acp_server import mcp_servers, read_line
from deputy.interfaces.acp.acp_session import AcpSession

__all__ = ["place"]

SERVER = str(Path(__file__).parents[2] / "tools" / "mcp_server.py")


@pytest.mark.parametrize(
    ("method", "params", "code", "words"),
    [
        ("session/new", {"cwd": "relative"}, jsonrpc.INVALID_PARAMS, "absolute path"),
        ("session/new", {"cwd": "/nowhere/at/all"}, jsonrpc.INVALID_PARAMS, "exists"),
        ("session/new", {"cwd": "/a\0b"}, jsonrpc.INVALID_PARAMS, "absolute path"),
        ("session/new", {"cwd": ["/"]}, jsonrpc.INVALID_PARAMS, "absolute path"),
        ("session/load", {"cwd": "/", "sessionId": "sess_0_none"}, jsonrpc.NOT_FOUND, "sess_0_none"),
        ("session/load", {"cwd": "/"}, jsonrpc.INVALID_PARAMS, "sessionId"),
        ("session/prompt", {"sessionId": "x", "prompt": []}, jsonrpc.INVALID_PARAMS, "session/new"),
        ("session/set_mode", {"sessionId": "x"}, jsonrpc.NO_SUCH_METHOD, "session/prompt"),
        ("fs/read_text_file", {}, jsonrpc.NO_SUCH_METHOD, "Unknown method"),
    ],
)
def test_wrong_requests_are_refused_with_what_would_be_right(place, method, params, code, words):
    async def main():
        async with Editor(place.workspace) as editor:
            return await editor.refused(method, **params)

    found, said = asyncio.run(main())
    assert (found, words in said) == (code, True), said


@pytest.mark.parametrize(
    "prompt", [[], [{"type": "text", "text": "  "}], [{"type": "image", "data": "x"}], "text", None, [7]]
)
def test_a_prompt_that_is_none_is_refused_and_the_session_goes_on(place, prompt):
    place.says(talk(turn("Fine."), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            session = await editor.open()
            code, _ = await editor.refused("session/prompt", sessionId=session, prompt=prompt)
            assert code == jsonrpc.INVALID_PARAMS
            return await editor.prompt(session, "go")

    assert asyncio.run(main()) == "end_turn"


def test_requests_before_initialize_are_refused(place):
    async def main():
        editor = Editor(place.workspace)
        async with editor.server:
            return await editor.server._serve(jsonrpc.RpcRequest("session/new", {"cwd": "/"}, 1))

    assert b"initialize first" in (asyncio.run(main()) or b"")


def test_a_session_of_another_folder_is_not_loaded(place, tmp_path):
    place.says(talk(turn("Fine."), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            session = await editor.open()
            await editor.prompt(session, "go")
            await editor.ask("session/close", sessionId=session)
            code, words = await editor.refused("session/load", sessionId=session, cwd=str(tmp_path))
            assert (code, str(place.workspace) in words) == (jsonrpc.INVALID_PARAMS, True)
            await editor.load(session)
            return editor.text

    assert asyncio.run(main()) == "Fine." * 2


def test_the_title_of_a_session_has_no_part_of_a_secret(place, monkeypatch):
    monkeypatch.setenv("SOME_API_TOKEN", "canary-5f2e9d7c1b3a")
    place.says(talk(turn("hello"), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            await editor.prompt(await editor.open(), f"go{' ' * 305}canary-5f2e9d7c1b3a and more")
            return (await editor.ask("session/list"))["sessions"][0]["title"]

    title = asyncio.run(main())
    assert title.startswith("go ")
    assert "canary" not in title


def test_sessions_are_listed_by_folder_with_the_latest_first(place, tmp_path):
    place.says(talk(turn("Fine."), when="the", times=2))

    async def main():
        async with Editor(place.workspace) as editor:
            assert await editor.ask("session/list") == {"sessions": []}
            runs = []
            for text in ("the first", "the second\nline"):
                runs.insert(0, await editor.open())
                await editor.prompt(runs[0], text)
            listed = await editor.ask("session/list", cwd=str(place.workspace))
            assert schema.ListSessionsResponse.model_validate(listed)
            assert (await editor.ask("session/list"))["sessions"] == listed["sessions"]
            assert (await editor.ask("session/list", cwd=str(tmp_path)))["sessions"] == []
            return runs, listed["sessions"]

    runs, sessions = asyncio.run(main())
    assert [one["sessionId"] for one in sessions] == runs
    assert [one["title"] for one in sessions] == ["the second line", "the first"]
    assert {one["cwd"] for one in sessions} == {str(place.workspace)}


@pytest.mark.parametrize("model", ["", "script:missing.json"])
def test_a_client_that_leaves_while_a_session_opens_ends_the_server_without_an_error(place, monkeypatch, model):
    place.says(talk(turn("hello"), when="go"))
    if model:
        monkeypatch.setenv("DEPUTY_MODEL", model)

    begun, keep = asyncio.Event(), AcpSession.keep

    async def noted(self, *arguments, **options):
        begun.set()
        await keep(self, *arguments, **options)

    monkeypatch.setattr(AcpSession, "keep", noted)

    async def main():
        async with Editor(place.workspace) as editor:
            opening = asyncio.create_task(editor.open())
            await begun.wait()
        opening.cancel()
        return editor.server._keeping

    assert asyncio.run(main()) == set()


def test_a_bug_in_a_request_is_an_error_and_its_trace_has_no_secret(place, monkeypatch, capsys):
    monkeypatch.setenv("SOME_API_TOKEN", "canary-5f2e9d7c1b3a")

    def fail(_folder):
        raise RuntimeError("it has canary-5f2e9d7c1b3a")

    monkeypatch.setattr(acp_server, "listed_sessions", fail)

    async def main():
        async with Editor(place.workspace) as editor:
            return await editor.refused("session/list")

    assert asyncio.run(main()) == (jsonrpc.INTERNAL_ERROR, "A bug in Deputy: RuntimeError.")
    shown = capsys.readouterr().err
    assert "RuntimeError: it has [redacted]\n" in shown
    assert "canary" not in shown


def test_a_session_that_two_requests_load_at_once_is_opened_once(place):
    place.says(talk(turn("hello"), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            session = await editor.open()
            await editor.prompt(session, "go")
            await editor.ask("session/close", sessionId=session)
            params = {"sessionId": session, "cwd": str(place.workspace), "mcpServers": []}
            loads = [asyncio.create_task(editor._connection.ask("session/load", params)) for _ in range(2)]
            return [await one for one in loads]

    replies = asyncio.run(main())
    refusals = [one.message for one in replies if isinstance(one, jsonrpc.RpcError)]
    assert len(refusals) == 1
    assert "open here already" in refusals[0]


def test_a_closed_session_cancels_its_turn(place):
    place.says(talk(turn("never said", delay_seconds=60), when="go"))

    async def main():
        async with Editor(place.workspace) as editor:
            session = await editor.open()
            running = asyncio.create_task(editor.prompt(session, "go"))
            await asyncio.to_thread(until, lambda: entries(place))
            await editor.ask("session/close", sessionId=session)
            assert (await editor.refused("session/prompt", sessionId=session, prompt=[]))[0] == jsonrpc.INVALID_PARAMS
            return await running

    assert asyncio.run(main()) == "cancelled"


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"not json", jsonrpc.PARSE_ERROR, None),
        (b"[]", jsonrpc.PARSE_ERROR, None),
        (b'{"a":' * 20_000, jsonrpc.PARSE_ERROR, None),
        (b"\xff\xfe", jsonrpc.PARSE_ERROR, None),
        (b"{}", jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"1.0","id":7,"method":"initialize"}', jsonrpc.INVALID_REQUEST, 7),
        (b'{"jsonrpc":"2.0","id":null,"method":"initialize"}', jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"initialize"}', jsonrpc.INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":"x","method":7}', jsonrpc.INVALID_REQUEST, "x"),
        (
            b'{"jsonrpc":"2.0","id":1,"method":"x","params":[' + b"[]," * 100_000 + b"[]]}",
            jsonrpc.INVALID_REQUEST,
            None,
        ),
        (None, jsonrpc.INVALID_REQUEST, None),
    ],
    ids=lambda value: value[:44].decode("latin-1") if isinstance(value, bytes) else str(value),
)
def test_what_is_no_message_is_answered_as_such(line, code, number):
    answer = read_line(line)
    assert isinstance(answer, bytes)
    said = json.loads(answer)
    assert (said["error"]["code"], said["id"]) == (code, number)


def test_the_servers_of_a_client_become_settings_with_safe_names():
    assert mcp_servers(
        [
            {"name": "my server/1", "command": "/bin/x", "args": ["-a"], "env": [{"name": "K", "value": "v"}]},
            {"type": "http", "name": "web_2", "url": "https://a.b", "headers": [{"name": "H", "value": "v"}]},
            7,
        ]
    ) == {
        "my-server-1": {"command": "/bin/x", "args": ["-a"], "env": {"K": "v"}},
        "web-2": {"url": "https://a.b", "headers": {"H": "v"}},
    }


def test_the_tools_of_a_clients_server_are_used(place):
    place.says(talk(turn("", call("mcp__docs__search", words="x")), turn("Fine."), when="go"))
    server = {"name": "docs", "command": sys.executable, "args": [SERVER], "env": []}

    async def main():
        async with Editor(place.workspace) as editor:
            opened = await editor.ask("session/new", cwd=str(place.workspace), mcpServers=[server])
            await editor.prompt(opened["sessionId"], "go")
            return editor

    editor = asyncio.run(main())
    assert editor.ends() == {"tool:1.0": "completed"}
    assert "found x" in editor.of("tool_call_update")[-1]["content"][0]["content"]["text"]


def test_broken_lines_do_not_end_the_process_and_a_client_that_leaves_does(house):
    model = house.script("slow", talk(turn("never said", delay_seconds=60), when="go"))
    process = Popen(
        [sys.executable, "-m", "deputy", "acp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**house.env, "DEPUTY_MODEL": model},
        cwd=house.workspace,
    )
    house.started.append(process)

    def send(number, method, **params):
        line = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()

    process.stdin.write(b'not json\n{"jsonrpc":"2.0","id":9,"result":{}}\n')
    send(1, "initialize", protocolVersion=1)
    assert json.loads(process.stdout.readline())["error"]["code"] == jsonrpc.PARSE_ERROR
    assert json.loads(process.stdout.readline())["result"]["agentCapabilities"]["loadSession"] is True
    send(2, "session/new", cwd=str(house.workspace), mcpServers=[])
    session = json.loads(process.stdout.readline())["result"]["sessionId"]
    send(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
    until(lambda: entries(house))
    process.stdin.close()
    assert process.wait(60) == 0
    [entry] = entries(house)
    assert (entry["session_id"], entry["status"]) == (session, "interrupted")
