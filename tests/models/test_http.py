"""What is sent to a model: in pieces, whole, and not kept."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.test_utils import TestServer

from deputy.models.http import PIECE_BYTES, Body, Http


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
        async with TestServer(app) as server, Http() as http, asyncio.TaskGroup() as group:
            for size in (0, 1, PIECE_BYTES - 1, PIECE_BYTES, 5 * PIECE_BYTES + 7):
                content = bytes(number % 251 for number in range(size))
                may_answer.clear()
                body = Body(content)
                asking = group.create_task(http.post(server.make_url("/"), {}, body))
                assert await come.get() == content
                assert body.decode() == ""
                assert body.size == size
                may_answer.set()
                (await asking).close()

    asyncio.run(main())
