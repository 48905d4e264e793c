"""Hostile MCP servers: they cost bounded time and memory, cannot deceive, and leave nothing behind."""

import asyncio
import gzip
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.command_house import until

from deputy.config.settings import McpServer
from deputy.core.errors import DeputyError
from deputy.engine.ports import ToolContext
from deputy.tools import mcp_servers
from deputy.tools.mcp_servers import McpServers

SERVER = str(Path(__file__).with_name("hostile_mcp_server.py"))
CONTEXT = ToolContext()


def run(check, *way: str, seconds: float = 60):
    async def main():
        docs = McpServer(command=sys.executable, args=(SERVER, *way), timeout_seconds=seconds)
        async with McpServers({"docs": docs}) as servers:
            return await check(servers)

    before = _children()
    try:
        return asyncio.run(main())
    finally:
        assert _children() == before, "something of it is left"


async def called(servers, name: str = "mcp__docs__go"):
    await servers.ready(["mcp__docs"])
    return await next(tool for tool in servers.tools() if tool.name == name).run({}, CONTEXT)


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("way", ["floods", "chatters", "overwhelms", "crumbles"])
def test_one_that_says_too_much_is_heard_no_more(way):
    before = _resident_bytes()
    output = run(called, way)
    assert (output.is_error, "'docs' failed" in output.text) == (True, True)
    assert _resident_bytes() - before < 64_000_000


def test_what_is_no_message_is_passed_over():
    assert run(called, "babbles").text == "gone"


@pytest.mark.parametrize("way", ["regex", "unstructured"])
def test_what_it_promises_of_its_answers_is_not_held_against_them(way):
    # Matching what "regex" answers with the pattern that it promises would never end.
    assert run(called, way).text == "gone"


@pytest.mark.parametrize("way", ["malformed", "nameless", "asks"])
def test_a_wrong_answer_is_reported_to_the_model_and_the_server_can_be_asked_again(way):
    async def check(servers):
        return await called(servers), await called(servers)

    for output in run(check, way):
        assert output.text == "The MCP server 'docs' sent an invalid answer."
        assert (output.is_error, output.is_our_own) == (True, True)
        assert 0 < len(output.data) < 400


def test_the_list_of_tools_is_read_again_for_one_that_goes_by_another(tmp_path):
    async def check(servers):
        return await called(servers), await called(servers)

    refused, again = run(check, "mismatches", str(tmp_path / "starts"))
    # What the server says is data.
    assert refused.text == "The MCP server 'docs' failed."
    assert refused.data.startswith("Header mismatch")
    assert again.text == "gone"


def test_one_that_never_starts_is_given_up(monkeypatch):
    monkeypatch.setattr(mcp_servers, "START_SECONDS", 0.5)

    async def check(servers):
        with pytest.raises(DeputyError, match="'docs' did not start: TimeoutError"):
            await servers.named(["mcp__docs__go"])

    run(check, "never starts")


@pytest.mark.parametrize("is_running", [True, False])
def test_one_that_is_still_starting_is_not_waited_for_at_the_end(is_running, tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_servers, "START_SECONDS", 10)
    place = tmp_path / "runs"

    async def check(servers):
        before = _children()
        waiting = asyncio.create_task(servers.named(["mcp__docs__go"]))
        await asyncio.to_thread(until, place.exists if is_running else lambda: _children() != before)
        return waiting

    with pytest.raises(DeputyError, match="'docs' was closed"):
        run(check, "never starts", str(place)).result()


def test_one_that_hangs_is_replaced_in_the_end_and_the_others_are_not_held_up():
    async def check(servers):
        output = [await called(servers) for _ in range(mcp_servers.MOST_FAILURES)]
        link = servers._links["docs"]
        return output, link._client

    output, client = run(check, "hangs", seconds=0.2)
    assert all("did not answer within" in one.text for one in output)
    assert client is None


def test_one_that_will_not_go_is_ended():
    assert "did not answer" in run(called, "stays", seconds=0.2).text


def test_one_that_swells_its_words_is_cut_down():
    async def check(servers):
        await servers.ready(["mcp__docs"])
        return servers.tools()

    tools = run(check, "swells")
    assert 0 < len(tools) < 40
    assert sum(len(str(tool.schema)) + len(tool.description) for tool in tools) < 300_000
    assert not any("\x1b" in tool.description for tool in tools)


def test_one_that_tells_of_tools_without_end_is_not_listened_to_for_ever():
    async def check(servers):
        return await servers.every()

    assert 1 < len(run(check, "pages")) <= 20


def test_names_are_never_those_of_our_own_tools_and_the_first_of_two_counts():
    async def check(servers):
        await servers.ready(["mcp__docs"])
        return {tool.name: tool.description for tool in servers.tools()}

    named = run(check, "collides")
    assert list(named) == ["mcp__docs__Read", "mcp__docs__a_b", "mcp__docs__mcp__docs__Read"]
    assert named["mcp__docs__a_b"].endswith("called a b")


def test_a_tool_that_was_granted_as_a_reader_and_is_none_any_more_is_not_called(tmp_path):
    async def check(servers):
        await servers.ready(["mcp__docs"])
        (go,) = servers.tools()
        assert go.traits.reads_only
        return await go.run({}, CONTEXT), await go.run({}, CONTEXT)

    died, again = run(check, "turns", str(tmp_path / "was-started"))
    assert "'docs' failed" in died.text
    assert "removed or changed 'mcp__docs__go'; nothing was done" in again.text


@pytest.mark.parametrize("is_packed", [True, False])
def test_an_address_that_answers_without_end_is_not_read_without_end(is_packed):
    async def answer(request):
        headers = {"Content-Type": "application/json"}
        if is_packed:
            return web.Response(body=gzip.compress(b" " * 100_000_000), headers={**headers, "Content-Encoding": "gzip"})
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)

    before = _resident_bytes()
    at_address(answer, "'docs' did not start")
    assert _resident_bytes() - before < 80_000_000


@pytest.mark.parametrize(
    ("kind", "before", "problem"),
    [
        ("application/json", b"", "more than 100,000 values"),
        ("text/event-stream", b': it"s\n\ndata: ', "ended without a response"),
    ],
)
def test_an_address_that_answers_with_tiny_values_is_left_before_they_are_read(kind, before, problem):
    # Reading them all takes a second in which nothing else goes on, in a thread as well.
    pieces = 16_000_000 // 65_536
    sent: list[int] = []

    async def answer(request):
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        await response.write(before + b'{"jsonrpc":"2.0","id":1,"result":[1')
        sent.append(0)
        with suppress(ConnectionError):
            for _ in range(pieces):
                await response.write(b",1" * 32_768)
                sent[-1] += 1
            await response.write(b"]}\n\n")
        return response

    at_address(answer, problem)
    assert sent
    assert max(sent) < pieces // 2


def at_address(answer, problem: str) -> None:
    """A server that answers so is found to have this problem."""

    async def main():
        app = web.Application()
        app.router.add_route("*", "/mcp", answer)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        try:
            async with McpServers({"docs": McpServer(url=f"http://127.0.0.1:{port}/mcp")}) as servers:
                with pytest.raises(DeputyError, match=problem):
                    await servers.named(["mcp__docs__go"])
        finally:
            await runner.cleanup()

    asyncio.run(main())
