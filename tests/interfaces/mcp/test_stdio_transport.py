"""Real servers as child processes, with the SDK's client and with clients that misbehave."""

import asyncio
import json
import os
import signal
import socket
import threading

import pytest
from mcp import Client
from tests.support.command_house import a_moment, entries, until
from tests.support.mcp_clients import ERAS, Wire, stdio, tasks, text_of
from tests.support.scripts import talk, turn

from deputy.interfaces.mcp import stdio_transport as stdio_transport
from deputy.interfaces.mcp.server_state import Options, ServerState
from deputy.interfaces.mcp.stdio_transport import read_message
from deputy.interfaces.stdio_streams import MOST_LINE, is_hung_up

NAMES = [
    "Delegate",
    "DelegateStart",
    "DelegateStatus",
    "DelegateResult",
    "DelegateCancel",
    "DelegateResume",
    "Detect",
    "Agents",
]


@pytest.mark.parametrize("mode", ERAS)
def test_both_eras_list_the_tools_and_call_delegate(house, mode):
    model = house.script("two", *(talk(turn(f"report of {name}"), when=f"the work of {name}") for name in ("a", "b")))

    async def main():
        async with Client(stdio(house, "--yes", DEPUTY_MODEL=model), mode=mode) as client:
            listed = (await client.list_tools()).tools
            return listed, await client.call_tool("Delegate", tasks("a", "b"))

    listed, result = asyncio.run(main())
    assert [tool.name for tool in listed] == NAMES
    assert all(tool.description and tool.title for tool in listed)
    assert "## Subagents: 2 completed of 2" in text_of(result)
    assert text_of(result).startswith("[data from Delegate ")
    assert [one["report"] for one in result.structured_content["results"]] == ["report of a", "report of b"]
    assert not any(entry["status"] == "running" for entry in entries(house))


@pytest.mark.rule("delegate.cancel")
@pytest.mark.parametrize("mode", ERAS)
def test_a_request_that_is_cancelled_cancels_the_subtree(house, mode):
    model = house.script("slow", talk(turn("never said", delay_seconds=60), times=2))

    async def main():
        started = asyncio.Event()

        async def heard(*_):
            started.set()

        async with Client(stdio(house, "--yes", DEPUTY_MODEL=model), mode=mode) as client:
            call = asyncio.create_task(client.call_tool("Delegate", tasks("a", "b"), progress_callback=heard))
            await started.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return await asyncio.to_thread(until, lambda: _all_cancelled(house))

    assert asyncio.run(main())


def _all_cancelled(house) -> bool:
    found = entries(house)
    return len(found) == 3 and {entry["status"] for entry in found} == {"cancelled"}


def test_a_hundred_calls_at_once_from_one_client_all_come_back(house):
    model = house.script("many", talk(turn("found it"), times=100))

    async def main():
        async with Client(stdio(house, "--yes", DEPUTY_MODEL=model)) as client, asyncio.TaskGroup() as group:
            return [group.create_task(client.call_tool("Delegate", tasks(f"t{n}"))) for n in range(100)]

    results = [call.result() for call in asyncio.run(main())]
    assert [one.structured_content["results"][0]["label"] for one in results] == [f"t{n}" for n in range(100)]
    assert all(one.structured_content["completed"] == 1 for one in results)
    roots = [entry for entry in entries(house) if entry["parent"] is None]
    assert len(roots) == 100
    assert all(entry["delivered"] for entry in roots)


@pytest.mark.rule("deliver")
def test_a_client_that_is_killed_leaves_a_run_that_can_be_found_gone_on_with_and_collected(house):
    slow = house.script("slow", talk(turn("never said", delay_seconds=60), times=3))
    with Wire(house, "--yes", DEPUTY_MODEL=slow) as wire:
        wire.shake_hands()
        wire.call("Delegate", tasks("a"), _meta={"progressToken": "p"})
        assert wire.read()["method"] == "notifications/progress"
        assert wire.go() == 0
    root, child = entries(house)
    assert (root["status"], child["status"]) == ("interrupted", "interrupted")

    quick = house.script("slow", talk(turn("done after all"), times=3))
    with Wire(house, DEPUTY_MODEL=quick) as wire:
        wire.shake_hands()
        where = wire.answer(wire.call("DelegateStatus", {"session_id": root["session_id"]}))
        assert where["result"]["structuredContent"]["status"] == "interrupted"
        wire.answer(wire.call("DelegateResume", {"session_id": root["session_id"]}))
        collected = wire.answer(wire.call("DelegateResult", {"session_id": root["session_id"], "return": "json"}))
    form = json.loads(collected["result"]["content"][0]["text"])
    assert (form["completed"], form["results"][0]["report"]) == (1, "done after all")


def test_a_client_that_never_reads_costs_bounded_memory_and_loses_nothing(house):
    report = "-".join(f"found-{number}" for number in range(2000))
    model = house.script("wordy", talk(turn(report), times=20))
    with Wire(house, "--yes", DEPUTY_MODEL=model) as wire:
        wire.shake_hands()
        for number in range(20):
            wire.call("Delegate", tasks(f"t{number}"))
        until(lambda: len([e for e in entries(house) if e["parent"] is None and e["status"] == "completed"]) == 20)
        before = wire.resident_bytes()
        flood = json.dumps({"jsonrpc": "2.0", "id": "again", "method": "tools/list", "params": {}}).encode() + b"\n"
        os.set_blocking(wire.process.stdin.fileno(), False)
        taken = _poured(wire, flood, 200_000)
        assert taken < 200_000, "it reads on, though its answers are not read"
        assert wire.resident_bytes() - before < 100_000_000
        assert wire.go() == 0
    runs = [entry["session_id"] for entry in entries(house) if entry["parent"] is None]
    with Wire(house, DEPUTY_MODEL=model) as wire:
        wire.shake_hands()
        for run in runs[:3]:
            got = wire.answer(wire.call("DelegateResult", {"session_id": run}))
            assert got["result"]["structuredContent"]["results"][0]["report"] == report


def test_a_client_that_reads_nothing_and_closes_only_its_side_ends_the_server(house):
    with Wire(house) as wire:
        wire.shake_hands()
        flood = json.dumps({"jsonrpc": "2.0", "id": "again", "method": "tools/list", "params": {}}).encode() + b"\n"
        os.set_blocking(wire.process.stdin.fileno(), False)
        assert _poured(wire, flood, 200_000) < 200_000
        wire.process.stdin.close()
        assert wire.process.wait(60) == 0


@pytest.mark.parametrize(
    "make", [os.pipe, lambda: [end.detach() for end in socket.socketpair()]], ids=["pipe", "socket"]
)
def test_a_closed_side_is_noticed_though_there_is_more_to_read(make):
    source, theirs = make()
    os.write(theirs, b"more")
    assert not is_hung_up(source)
    os.close(theirs)
    assert is_hung_up(source)
    os.close(source)


def _poured(wire: Wire, line: bytes, most: int) -> int:
    """How many lines a server takes before it takes no more for a while."""
    descriptor, poured, refused = wire.process.stdin.fileno(), 0, 0
    while poured < most and refused < 40:
        try:
            os.write(descriptor, line * 50)
            poured, refused = poured + 50, 0
        except BlockingIOError:
            refused += 1
            a_moment()
    return poured


def test_a_server_that_is_asked_to_stop_stops_though_its_client_stays(house):
    with Wire(house) as wire:
        wire.shake_hands()
        wire.process.send_signal(signal.SIGTERM)
        assert wire.process.wait(60) == 0


PARSE_ERROR, INVALID_REQUEST = -32700, -32600


@pytest.mark.parametrize(
    ("line", "code", "number"),
    [
        (b"not json", PARSE_ERROR, None),
        (b"\xff\xfe", PARSE_ERROR, None),
        (b'{"a":' * 20_000, PARSE_ERROR, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping"}{}', PARSE_ERROR, None),
        (b"[]", INVALID_REQUEST, None),
        (b"7", INVALID_REQUEST, None),
        (b"{}", INVALID_REQUEST, None),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', INVALID_REQUEST, 7),
        (b'{"jsonrpc":"2.0","id":"x","method":7}', INVALID_REQUEST, "x"),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', INVALID_REQUEST, 7),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', INVALID_REQUEST, None),
        (b'{"jsonrpc":"2.0","id":7,"result":"not an object"}', INVALID_REQUEST, None),
        (
            b'{"jsonrpc":"2.0","id":7,"method":"ping","params":{"a":[' + b"[]," * 100_000 + b"[]]}}",
            INVALID_REQUEST,
            None,
        ),
    ],
    ids=lambda value: value[:44].decode("latin-1") if isinstance(value, bytes) else str(value),
)
def test_what_is_no_message_is_answered_as_such(line, code, number):
    answer = read_message(line).answer
    assert (answer.error.code, answer.id) == (code, number)


def test_what_is_no_message_is_answered_and_does_not_end_it(house):
    with Wire(house) as wire:
        wire.shake_hands()
        wire.process.stdin.write(b'\n not json\n \n[]\n{"jsonrpc":"2.0","id":"odd","method":7}\n')
        before = wire.resident_bytes()
        for _ in range(20):
            wire.process.stdin.write(b"x" * MOST_LINE)
        wire.process.stdin.write(b"\n")
        listed = wire.send("tools/list")
        answers = [wire.read() for _ in range(5)]
        assert [(one["error"]["code"], one["id"]) for one in answers[:4]] == [
            (PARSE_ERROR, None),
            (INVALID_REQUEST, None),
            (INVALID_REQUEST, "odd"),
            (INVALID_REQUEST, None),
        ]
        assert f"at most {MOST_LINE:,} bytes" in answers[3]["error"]["message"]
        assert (answers[4]["id"], "tools" in answers[4]["result"]) == (listed, True)
        assert wire.resident_bytes() - before < 4 * MOST_LINE


def test_messages_are_read_without_blocking_others(monkeypatch):
    readers: list[str] = []

    def read(line):
        readers.append(threading.current_thread().name)
        return read_message(line)

    async def main():
        source, ours = os.pipe()
        hub = ServerState(Options())
        async with stdio_transport._streams(hub, source, os.open(os.devnull, os.O_WRONLY)) as (incoming, outgoing):
            os.write(ours, b'{"jsonrpc":"2.0","id":7,"method":"ping"}\n')
            message = (await incoming.receive()).message
            os.close(ours)
            await outgoing.aclose()
            await incoming.aclose()
        return message

    monkeypatch.setattr(stdio_transport, "read_message", read)
    assert asyncio.run(main()).method == "ping"
    assert readers == ["deputy-reader"]


def test_the_longest_message_is_read_and_one_byte_more_is_not(house):
    longest = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"pad": ""}}).encode()
    longest = longest.replace(b'""', b'"' + b"x" * (MOST_LINE - len(longest)) + b'"')
    assert len(longest) == MOST_LINE
    with Wire(house) as wire:
        wire.shake_hands()
        wire.process.stdin.write(longest + b"\n" + longest + b" \n")
        wire.process.stdin.flush()
        assert [("result" in one, one["id"]) for one in (wire.read(), wire.read())] == [(True, 1), (False, None)]
