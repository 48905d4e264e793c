"""The bounds of HTTP servers, over real sockets, with both servers that are used: uvicorn and aiohttp.web."""

import asyncio
import errno
import gc
import logging
import socket
from contextlib import ExitStack, asynccontextmanager, suppress

import h11
import pytest
import uvicorn
from aiohttp import web

from deputy.interfaces.background import background
from deputy.interfaces.http_bounds import (
    LOG_SECONDS,
    MOST_CONNECTIONS,
    MOST_RECORDS,
    BoundedListener,
    BoundedLog,
    HttpBounds,
    connection_limit,
)

pytestmark = pytest.mark.rule("http.bounds")
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
OK = b"HTTP/1.1 200 OK"
SERVERS = ("uvicorn", "aiohttp")


class Page:
    """An application that answers once it is told to; gives the port it is served on."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.requests = asyncio.Queue()
        self.peers = ExitStack()

    async def asgi(self, scope, receive, send):
        self.requests.put_nowait(scope["path"])
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def aiohttp(self, request):
        self.requests.put_nowait(request.path)
        await self.may_answer.wait()
        return web.Response(text="ok")


@asynccontextmanager
async def served(kind: str, **bounds):
    page = Page()
    with page.peers, socket.create_server(("127.0.0.1", 0)) as sock:
        if kind == "uvicorn":
            config = uvicorn.Config(page.asgi, interface="asgi3", http="h11", log_config=None, lifespan="off")
            config.load()
            state = uvicorn.server.ServerState()

            def make():
                return config.http_protocol_class(config=config, server_state=state, app_state={})

            def waits(protocol):
                return protocol.conn.their_state is h11.IDLE
        else:
            make = web.Server(page.aiohttp)

            def waits(protocol):
                return protocol._current_request is None and not protocol._messages

        listener = BoundedListener(sock, make, waits, HttpBounds(**{"connections": 100, **bounds}))
        async with background(listener.accept()):
            page.port = sock.getsockname()[1]
            yield page


class Peer:
    """A client by hand."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._sock, data)

    async def answer(self) -> bytes:
        """The status line of a response, once its body has come."""
        received = b""
        while not received.endswith(b"ok"):
            more = await self._loop.sock_recv(self._sock, 1000)
            assert more, received
            received += more
        return received.split(b"\r\n")[0]

    async def is_closed(self) -> bool:
        try:
            return await self._loop.sock_recv(self._sock, 1) == b""
        except ConnectionError:
            return True


async def connect(page: Page) -> Peer:
    sock = page.peers.enter_context(socket.socket())
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", page.port))
    return Peer(sock)


def run(kind: str, body, **bounds) -> None:
    async def main():
        async with asyncio.timeout(60), served(kind, **bounds) as page:
            await body(page)

    asyncio.run(main())


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("sent", [b"", b"G", REQUEST[:-2]])
def test_a_connection_without_a_full_head_in_time_is_closed(kind, sent):
    async def body(page):
        peer = await connect(page)
        await peer.send(sent)
        assert await peer.is_closed()

    run(kind, body, head_seconds=0.05)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_head_that_comes_byte_by_byte_is_not_given_more_time(kind):
    async def body(page):
        peer = await connect(page)
        await peer.send(b"GET / HTTP/1.1\r\nX-Long: ")

        async def drip():
            with suppress(ConnectionError):
                while True:
                    await peer.send(b"x")
                    await asyncio.sleep(0)

        async with background(drip()):
            assert await peer.is_closed()

    run(kind, body, head_seconds=0.05)


@pytest.mark.parametrize("kind", SERVERS)
def test_the_head_of_a_later_request_has_the_same_time(kind):
    async def body(page):
        peer = await connect(page)
        await peer.send(REQUEST)
        assert await peer.answer() == OK
        await peer.send(REQUEST[:-2])
        assert await peer.is_closed()

    run(kind, body, head_seconds=0.05)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_request_that_takes_long_to_answer_is_not_cut_off(kind):
    async def body(page):
        page.may_answer.clear()
        asking = await connect(page)
        await asking.send(REQUEST)
        await page.requests.get()
        # Each of these has the whole time for its head, one after the other.
        for _ in range(2):
            assert await (await connect(page)).is_closed()
        page.may_answer.set()
        assert await asking.answer() == OK

    run(kind, body, head_seconds=0.05)


@pytest.mark.parametrize("kind", SERVERS)
def test_at_the_limit_the_connection_that_waited_longest_makes_room(kind):
    async def body(page):
        waiting = [await connect(page) for _ in range(4)]
        for peer in waiting:
            await peer.send(REQUEST[:-2])
        asking = await connect(page)
        await asking.send(REQUEST)
        assert await asking.answer() == OK
        assert await waiting[0].is_closed()
        await waiting[3].send(b"\r\n")
        assert await waiting[3].answer() == OK

    run(kind, body, connections=4)


@pytest.mark.parametrize("kind", SERVERS)
def test_a_connection_that_is_being_served_is_never_closed_to_make_room(kind):
    async def body(page):
        page.may_answer.clear()
        serving = [await connect(page) for _ in range(2)]
        for peer in serving:
            await peer.send(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            await page.requests.get()
        late = await connect(page)
        await late.send(REQUEST)
        page.may_answer.set()
        for peer in (*serving, late):
            assert await peer.answer() == OK

    run(kind, body, connections=2)


def test_a_listener_that_cannot_listen_any_more_raises_instead_of_trying_forever():
    async def main():
        with socket.socket() as sock:
            listener = BoundedListener(sock, asyncio.Protocol, lambda _: True, HttpBounds())
            with pytest.raises(OSError, match=r".") as raised:
                await listener.accept()
            return raised.value.errno

    assert asyncio.run(main()) == errno.EINVAL


def test_a_connection_that_arrives_as_the_server_ends_is_closed():
    async def arrive_and_end(turns: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as sock:
            task = asyncio.create_task(BoundedListener(sock, asyncio.Protocol, lambda _: True, HttpBounds()).accept())
            await asyncio.sleep(0)
            with socket.create_connection(sock.getsockname()):
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])

    for turns in range(6):
        asyncio.run(arrive_and_end(turns))
    # A socket that nothing has closed is a ResourceWarning here.
    gc.collect()


@pytest.mark.parametrize(("allowed", "limit"), [(64, 32), (10, 8), (1024, 512), (100_000, MOST_CONNECTIONS)])
def test_connections_leave_half_of_the_descriptors(monkeypatch, allowed, limit):
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, allowed))
    assert connection_limit() == limit
    assert HttpBounds() == HttpBounds(head_seconds=10, connections=limit)


def test_the_log_is_bounded_and_says_how_much_it_left_out(capsys):
    now = 0.0
    log = BoundedLog(lambda: now)
    secret = "sk-ant-api03-" + "a" * 95

    def write(text: str) -> None:
        log.handle(logging.LogRecord("x", logging.ERROR, "", 0, text, None, None))

    write(f"\x1b[31mkey {secret}")
    for _ in range(1000):
        write("x" * 100_000)
    written = capsys.readouterr().err
    assert "\x1b" not in written
    assert secret not in written
    assert (written.count("\n"), len(written) < MOST_RECORDS * 10_000) == (MOST_RECORDS, True)
    now = LOG_SECONDS
    write("again")
    assert capsys.readouterr().err == "deputy: 991 more log messages were dropped\ndeputy: again\n"
