"""What is sent to a model: in pieces, whole, and not kept."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from aiohttp import web
from aiohttp.test_utils import TestServer

from deputy.models.http_client import PIECE_BYTES, HttpClient, RequestBody, read_what_came


def test_a_body_arrives_whole_whatever_its_size_and_is_let_go_of_before_the_answer_comes() -> None:
    async def main() -> None:
        come: asyncio.Queue[bytes] = asyncio.Queue()
        may_answer = asyncio.Event()

        async def hear(request: web.Request) -> web.Response:
            await come.put(await request.read())
            await may_answer.wait()
            return web.Response(text="heard")

        app = web.Application(client_max_size=64 * PIECE_BYTES)
        app.router.add_post("/", hear)
        async with TestServer(app) as server, aclosing(HttpClient()) as http, asyncio.TaskGroup() as group:
            for size in (0, 1, PIECE_BYTES - 1, PIECE_BYTES, 5 * PIECE_BYTES + 7):
                content = bytes(number % 251 for number in range(size))
                may_answer.clear()
                body = RequestBody(content)
                asking = group.create_task(http.post(server.make_url("/"), {}, body))
                assert await come.get() == content
                assert body.decode() == ""
                assert body.size == size
                may_answer.set()
                (await asking).close()

    asyncio.run(main())


def test_an_answer_is_read_whole_and_its_connection_used_again_however_it_is_cut() -> None:
    async def main() -> None:
        sizes = [1, 7, 150, 4_000, 70_000, 3, 200, 300_000, 12]
        content = b"".join(bytes([number % 251]) * size for number, size in enumerate(sizes))
        ports: list[int] = []

        async def say(request: web.Request) -> web.StreamResponse:
            assert request.transport is not None
            ports.append(request.transport.get_extra_info("peername")[1])
            response = web.StreamResponse()
            response.enable_chunked_encoding()
            await response.prepare(request)
            at = 0
            for size in sizes * (1 if request.path == "/once" else 20):
                await response.write(content[at % len(content) : at % len(content) + size])
                at += size
            await response.write_eof()
            return response

        async def read(http: HttpClient, server: TestServer, path: str) -> bytes:
            response = await http.post(server.make_url(path), {}, RequestBody(b""))
            came: list[bytes] = []
            while chunk := await read_what_came(response.content):
                came.append(chunk)
                # More comes meanwhile, as it does to a process that is busy.
                await asyncio.sleep(0)
            response.close()
            return b"".join(came)

        app = web.Application()
        app.router.add_post("/{path:.*}", say)
        async with TestServer(app) as server, aclosing(HttpClient()) as http:
            for path, times in (("/once", 1), ("/often", 20), ("/once", 1)):
                assert await read(http, server, path) == content * times
        assert len(set(ports)) == 1

    asyncio.run(main())


def test_an_answer_without_a_body_ends_at_once() -> None:
    async def main() -> None:
        app = web.Application()
        app.router.add_post("/", _nothing)
        async with TestServer(app) as server, aclosing(HttpClient()) as http:
            response = await http.post(server.make_url("/"), {}, RequestBody(b""))
            assert await read_what_came(response.content) == b""
            response.close()

    asyncio.run(main())


async def _nothing(_: web.Request) -> web.Response:
    return web.Response(status=204)
