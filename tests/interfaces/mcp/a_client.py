"""A client as a process of its own, to be killed: it calls Delegate and waits, and never comes to anything else."""

import asyncio
import json
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def main(mode: str, url: str, token: str, call: dict) -> None:
    if url:
        wire = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
        server = streamable_http_client(url, http_client=wire)
    else:
        server = StdioServerParameters(command=sys.executable, args=["-m", "deputy", "mcp", "--yes"], env=call["env"])
    async with Client(server, mode=mode) as client:
        await client.call_tool("Delegate", call["arguments"])


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])))
