"""The web page's server in this process, and a client that keeps a copy of the board as the page does."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
from msgspec import json

from deputy.interfaces.web.board import FIELDS
from deputy.interfaces.web.web_server import ServedPage, WebOptions, serving

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path


STATUS = FIELDS.index("status")


class WebClient:
    """Requests with the token, unless a header is changed; None removes one."""

    def __init__(self, page: ServedPage, session: aiohttp.ClientSession) -> None:
        self.page = page
        self._session = session

    async def ask(
        self, method: str, path: str, body: object = None, data: bytes | None = None, **changed: str | None
    ) -> tuple[int, Any]:
        """The status and the content of a response."""
        headers = self._headers({name.replace("_", "-"): value for name, value in changed.items()})
        sent = data if data is not None else json.encode(body) if body is not None else None
        async with self._session.request(method, f"{self.page.url}{path}", data=sent, headers=headers) as answer:
            content = await answer.read()
            is_json = answer.content_type == "application/json"
            return answer.status, json.decode(content) if is_json else content

    async def get(self, path: str) -> Any:
        status, content = await self.ask("GET", path)
        assert status == 200, (status, content)
        return content

    async def post(self, path: str, body: object) -> tuple[int, Any]:
        return await self.ask("POST", path, body)

    def _headers(self, changed: dict[str, str | None]) -> dict[str, str]:
        given: dict[str, str | None] = {
            "Authorization": f"Bearer {self.page.token}",
            "Content-Type": "application/json",
        }
        return {name: value for name, value in {**given, **changed}.items() if value is not None}

    @asynccontextmanager
    async def follow(self, after: str, run: str = "") -> AsyncGenerator[Stream]:
        path = f"{self.page.url}/api/follow?after={after}&run={run}"
        async with self._session.get(path, headers=self._headers({})) as response:
            assert response.status == 200
            yield Stream(response)


class Stream:
    """The frames of /api/follow."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[str, str, Any]:
        """The next frame: event, id and data."""
        event = position = ""
        data: Any = None
        async for line in self._response.content:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            match name:
                case "event":
                    event = value
                case "id":
                    position = value
                case "data":
                    data = json.decode(value)
                case "":
                    return event, position, data
                case _:
                    pass
        raise AssertionError("the stream ended")

    async def until(self, is_so: Callable[[str, Any], bool]) -> Any:
        """The data of the first frame for which something is so."""
        while True:
            event, _, data = await self.next()
            if is_so(event, data):
                return data


class Mirror:
    """The board as a page knows it: a snapshot, changed by frames."""

    def __init__(self, board: dict[str, Any]) -> None:
        self.position: str = board["cursor"]
        self.rows = {row[0]: row for row in board["runs"]}
        self.waiting = {(one["run"], one["key"]): one for one in board["waiting"]}
        self.doing = {run: doing[:2] for run, doing in board["doing"].items()}
        """What each live run does, without the time."""
        self.is_reset = False

    def apply(self, event: str, position: str, data: Any) -> None:
        self.position = position or self.position
        match event:
            case "rows":
                self.rows |= {row[0]: row for row in data["rows"]}
                for row in data["rows"]:
                    if row[STATUS] not in ("running", "waiting", "interrupted"):
                        self.doing.pop(row[0], None)
            case "doing":
                self.doing |= {run: doing[:2] for run, doing in data.items()}
            case "waiting":
                if "all" in data:
                    self.waiting.clear()
                self.waiting |= {(one["run"], one["key"]): one for one in data.get("all", data.get("add", ()))}
                for run, key in data.get("drop", ()):
                    self.waiting.pop((run, key), None)
            case "gone":
                for run in data["runs"]:
                    self.rows.pop(run, None)
            case "reset":
                self.is_reset = True
            case _:
                pass


@asynccontextmanager
async def open_page(home: Path, **options: Any) -> AsyncGenerator[WebClient]:
    """Serve the page of a home, and a client for it."""
    async with serving(WebOptions(home=home, **options)) as page, aiohttp.ClientSession() as session:
        yield WebClient(page, session)
