"""The server that the suites are run against: our own factory with the suite's fixtures, on a port of this machine."""

import asyncio
import sys
from pathlib import Path

import uvicorn
from tests.mcp_suite.fixtures import BOOK, fixture_tools, mount

from deputy.interfaces.mcp.http_transport import http_app
from deputy.interfaces.mcp.server import make_server
from deputy.interfaces.mcp.server_state import Options, ServerState

TOKEN = "a-token-for-the-suite"


class WithToken:
    """The suite sends no token: it is put in here, before our own door."""

    def __init__(self, app) -> None:
        self._app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {TOKEN}".encode())]}
        await self._app(scope, receive, send)


async def serve(port: int, home: Path) -> None:
    async with ServerState(Options(workspace=Path.cwd(), home=home, model="offline:scout", approval="granted")) as hub:
        server = make_server(hub, more=fixture_tools(), books=(BOOK,))
        mount(server)
        app = WithToken(http_app(server, token=TOKEN))
        await uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", ws="none")).serve()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
