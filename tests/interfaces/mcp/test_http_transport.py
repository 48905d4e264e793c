"""HTTP on loopback: a real server, who gets in, and who does not."""

import asyncio
import http.client
import json
import re
import resource
import socket
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.support.command_house import CommandHouse, entries, until
from tests.support.mcp_clients import ERAS, META, MODERN, TOKEN, serve_http, tasks
from tests.support.scripts import talk, turn


@pytest.fixture(scope="module")
def served(tmp_path_factory):

    house = CommandHouse(tmp_path_factory.mktemp("http"))
    scripted = (
        talk(turn("never said", delay_seconds=60), when="the work of slow"),
        talk(turn("found it"), times=200),
    )
    model = house.script("many", *scripted)
    with serve_http(house, DEPUTY_MODEL=model) as url:
        house.port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/mcp", url).group(1))
        yield house
    house.close()


@asynccontextmanager
async def client_of(house, mode):
    url = f"http://127.0.0.1:{house.port}/mcp"
    wire = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
    async with wire, Client(streamable_http_client(url, http_client=wire), mode=mode) as client:
        yield client


@pytest.mark.parametrize("mode", ERAS)
def test_both_eras_are_served(served, mode):
    heard = []

    async def hear(*output):
        heard.append(output)

    async def main():
        async with client_of(served, mode) as client:
            await client.list_tools()
            return await client.call_tool("Delegate", tasks("a", "b"), progress_callback=hear)

    result = asyncio.run(main())
    assert [one["report"] for one in result.structured_content["results"]] == ["found it", "found it"]
    assert heard


def test_a_hundred_calls_at_once_over_http_all_come_back(served):
    async def main():
        async with client_of(served, MODERN) as client, asyncio.TaskGroup() as group:
            return [group.create_task(client.call_tool("Delegate", tasks(f"t{n}"))) for n in range(100)]

    results = [call.result() for call in asyncio.run(main())]
    assert all(one.structured_content["completed"] == 1 for one in results)


def test_a_modern_client_that_hangs_up_has_cancelled(served):
    async def main():
        started = asyncio.Event()

        async def heard(*_):
            started.set()

        async with client_of(served, MODERN) as client:
            call = asyncio.create_task(client.call_tool("Delegate", tasks("slow"), progress_callback=heard))
            await started.wait()
            call.cancel()
            await asyncio.wait([call])

    asyncio.run(main())
    until(lambda: [entry for entry in entries(served) if entry["label"] == "slow" and entry["status"] == "cancelled"])


# --- who gets in ------------------------------------------------------------------------------------------------------

BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}).encode()
GOOD = {
    "Host": "127.0.0.1",
    "Authorization": f"Bearer {TOKEN}",
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": MODERN,
    "Mcp-Method": "tools/list",
}


def ask(house, body: bytes = BODY, path: str = "/mcp", method: str = "POST", **changed) -> tuple[int, bytes]:
    headers = {**GOOD, **{name.replace("_", "-"): value for name, value in changed.items()}}
    connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            if value is not None:
                connection.putheader(name, value)
        if "Content-Length" not in headers:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_correct_request_gets_in(served):
    status, body = ask(served)
    assert status == 200
    assert b"DelegateStart" in body


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1:80@evil.example",
        "127.0.0.1:evil",
        "127.0.0.1:80:80",
        "[::1].evil.example",
        "[::1]:x",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "localhost ",
        "LOCALHOST.",
        "127.0.0.1:٣",
    ],
)
def test_a_name_that_is_not_ours_is_refused_before_the_token_is_looked_at(served, host):
    try:
        status, body = ask(served, Host=None if host is None else host.encode(), Authorization=None)
    except (ConnectionError, http.client.HTTPException):
        return
    # A space after a value is no part of it; then it is the token that is missing.
    assert status in ({400, 401} if host in (None, "localhost ") else {400, 421}), body


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:65535", "[::1]", "[::1]:80"])
def test_the_names_of_this_machine_are_ours(served, host):
    assert ask(served, Host=host)[0] == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        "https://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "http://127.0.0.1:80@evil.example",
        "file://",
        "127.0.0.1",
        "chrome-extension://abc",
        "",
    ],
)
def test_a_page_of_elsewhere_is_refused_even_with_the_token(served, origin):
    assert ask(served, Origin=origin)[0] == 403


def test_a_page_of_this_machine_gets_in_with_the_token_alone(served):
    assert ask(served, Origin="http://localhost:3000")[0] == 200
    assert ask(served, Origin="http://localhost:3000", Authorization=None)[0] == 401


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
    ],
)
def test_without_the_token_nothing_is_served(served, given):
    status, _ = ask(served, Authorization=given)
    assert status == 401
    assert ask(served, Authorization=given, path="/elsewhere", method="GET", body=b"")[0] == 401


def test_bodies_that_are_too_large_are_refused_whatever_they_say_of_themselves(served):
    large = b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (5 * 1024 * 1024) + b'"}'
    assert ask(served, large)[0] == 413
    assert ask(served, b"", Content_Length=str(10**12))[0] == 413
    assert _chunked(served, large) == 413


def _chunked(house, body: bytes) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", house.port, timeout=60)
    try:
        pieces = [body[at : at + 65536] for at in range(0, len(body), 65536)]
        connection.request("POST", "/mcp", iter(pieces), GOOD, encode_chunked=True)
        return connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        return 413
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1", 200),
        ("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-Host: evil.example", 200),
        ("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1", 400),
        ("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example", 400),
        ("POST /mcp HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: 127.0.0.1", 421),
        ("POST http://127.0.0.1/mcp HTTP/1.1\r\nHost: evil.example", 421),
        ("POST http://evil.example/mcp HTTP/1.1\r\nHost: 127.0.0.1", 404),
        ("POST //evil.example/mcp HTTP/1.1\r\nHost: 127.0.0.1", 404),
        ("POST /mcp HTTP/1.0", 421),
        ("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:", 421),
        ("POST /mcp HTTP/1.1\r\nHost: user@127.0.0.1", 421),
        ("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1, evil.example", 421),
        ("POST /mcp HTTP/1.1\r\nHost: [::ffff:127.0.0.1]", 421),
        ("POST /mcp HTTP/1.1\r\nHost: [::]", 421),
        ("POST /mcp HTTP/1.1\r\nHost: ::1", 421),
        ("POST /mcp HTTP/1.1\r\nHost: [::1%25eth0]", 421),
        ("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: null", 403),
        ("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://localhost\r\nOrigin: http://evil.example", 403),
        ("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer another", 401),
        (f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: {'x' * 200_000}", 400),
        ("CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1", 404),
        ("GET /mcp HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket", 421),
    ],
    ids=lambda value: value[:70] if isinstance(value, str) else str(value),
)
def test_requests_that_no_library_would_write_are_answered_as_they_deserve(served, head, status):
    assert _written(served.port, head) == status


def _written(port: int, head: str) -> int:
    """The status of the answer to a request written by hand, with everything that a good one has beside this."""
    others = {name: value for name, value in GOOD.items() if name != "Host"}
    lines = [head, *(f"{name}: {value}" for name, value in others.items()), f"Content-Length: {len(BODY)}"]
    with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
        wire.sendall("\r\n".join([*lines, "Connection: close", "", ""]).encode() + BODY)
        return int(wire.recv(65536).split()[1])


def test_a_server_that_has_told_its_address_is_there(house):
    with serve_http(house) as url:
        assert _written(int(url.split(":")[2].partition("/")[0]), "POST /mcp HTTP/1.1\r\nHost: localhost") == 200


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b"not json", {}),
        (b"", {}),
        (b"[]", {}),
        (b"[" * 100_000, {}),
        (b"\xff\xfe", {}),
        (b'{"jsonrpc":"2.0"}', {}),
        (BODY, {"Content_Type": "text/plain"}),
        (BODY, {"Content_Type": None}),
        (BODY, {"MCP_Protocol_Version": "1999-01-01"}),
        (b"not json", {"MCP_Protocol_Version": None}),
    ],
)
def test_what_is_no_message_is_refused(served, body, changed):
    assert 400 <= ask(served, body, **changed)[0] < 500


@pytest.mark.parametrize("mode", ["2025-11-25", MODERN])
def test_a_client_that_hangs_up_in_the_middle_of_its_request_is_no_error_of_the_server(house, tmp_path, mode):
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Length: 1000\r\n"
        f"MCP-Protocol-Version: {mode}\r\n\r\n"
    )
    with (tmp_path / "stderr").open("wb") as stderr, serve_http(house, stderr=stderr.fileno()) as url:
        address = ("127.0.0.1", int(url.rpartition(":")[2].removesuffix("/mcp")))
        with socket.create_connection(address) as hasty:
            hasty.sendall(head.encode() + b'{"jsonrpc"')
        # Once another is answered, the first was seen to.
        with socket.create_connection(address) as patient:
            patient.sendall(head.replace(TOKEN, "none").encode())
            assert b" 401 " in patient.recv(1000)
    assert (tmp_path / "stderr").read_text() == ""


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.rule("http.bounds")
@pytest.mark.parametrize("when", ["before", "after"])
def test_half_open_connections_at_the_descriptor_limit_keep_no_client_out(house, tmp_path, when):
    files = 128
    with (
        (tmp_path / "stderr").open("wb") as stderr,
        ExitStack() as connections,
        serve_http(house, stderr=stderr.fileno(), files=files if when == "before" else 1024) as url,
    ):
        port, pid = int(url.rpartition(":")[2].removesuffix("/mcp")), house.started[-1].pid
        assert _written(port, "POST /mcp HTTP/1.1\r\nHost: localhost") == 200
        # A server that was started with more has counted on them.
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (files, files))
        for _ in range(300):
            wire = connections.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            wire.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n")
        assert _written(port, "POST /mcp HTTP/1.1\r\nHost: localhost") == 200
        assert _open_files(pid) <= files // 2 + 32
    output = (tmp_path / "stderr").read_text().splitlines()
    assert len(output) == (0 if when == "before" else 1), output
