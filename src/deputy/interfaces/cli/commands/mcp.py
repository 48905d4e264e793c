"""`deputy mcp`: serve Delegate to MCP clients, over stdio or HTTP."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import (
    Console,
    RunOptions,
    check_model,
    log_observer,
    show_json,
    warn,
    with_console,
    with_run_options,
)
from deputy.interfaces.cli.runner import run_command
from deputy.interfaces.mcp_clients import own_command, require_sdk

if TYPE_CHECKING:
    import asyncio

    from deputy.interfaces.mcp.server_state import Options

EXAMPLES = """\b
Examples:
  deputy mcp --json          print the config for a client, to paste
  deputy mcp                 serve one client, which starts it, over stdio
  deputy mcp --yes --model sonnet
  deputy mcp --http 8765     serve many clients of this machine

\b
Before subagents start, a person must approve: in the client, if it supports
forms, else with `deputy approve ID` in any terminal while the call waits.
--yes starts them without asking. So does policy = "allow" under [approval] in
~/.config/deputy/config.toml. They only read, unless --allow names more tools.

\b
HTTP clients need a token and send it as `Authorization: Bearer TOKEN`. It is
DEPUTY_MCP_TOKEN, else a generated token in the file mcp-token in Deputy's
home; the path is printed."""

_LOOPBACK = "127.0.0.1"


@click.command("mcp", epilog=EXAMPLES)
@click.option(
    "--http", "port", type=click.IntRange(0, 65535), metavar="PORT", help="Serve HTTP on PORT (0: any free port)."
)
@click.option("--host", metavar="ADDRESS", help="The address for HTTP; by default only this machine.")
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="Another host name that HTTP clients use.")
@with_run_options(
    "model",
    "workspace",
    "allow",
    "yes",
    allow="Let tasks name this tool; repeat it for more.",
    yes="Start subagents without asking.",
)
@with_console("Print the config for a client; with --http, the address.")
def command(
    console: Console,
    port: int | None,
    host: str | None,
    names: tuple[str, ...],
    options: RunOptions,
) -> int:
    """Serve Delegate to MCP clients."""
    if port is None and (host is not None or names):
        given = ("--host", host) if host is not None else ("--allow-host", names[0])
        raise UsageError(*given, "this option is for HTTP; also give --http PORT")
    require_sdk()
    served = _server_options(options)
    if console.as_json and port is None:
        given = [("--model", options.model)] if options.model else []
        given += [("--allow", name) for name in options.allow]
        flags = [*(part for pair in given for part in pair), *(["--yes"] if options.yes else [])]
        start, *words = own_command("mcp", *flags)
        show_json({"mcpServers": {"deputy": {"command": start, "args": words}}})
        return 0
    if port is None:
        return run_command(lambda stop: _serve_stdio(served, stop))
    return run_command(lambda stop: _serve_http(console, served, host or _LOOPBACK, port, names, stop))


def _server_options(options: RunOptions) -> Options:
    from deputy.config import load_effective_settings, load_user
    from deputy.core.request import READ_ONLY_TOOLS
    from deputy.interfaces.mcp.server_state import Options

    workspace = str(options.workspace)
    if options.model is not None:
        check_model(options.model, workspace)
    policy = load_effective_settings(workspace).approval
    return Options(
        workspace=Path(workspace).absolute(),
        model=options.model,
        approval="granted" if options.yes or policy == "allow" else policy,
        approval_seconds=load_user().mcp.approval_seconds,
        allow=READ_ONLY_TOOLS | set(options.allow),
        observer=log_observer(),
    )


async def _serve_stdio(options: Options, stop: asyncio.Event) -> int:
    from deputy.interfaces.mcp.server import make_server
    from deputy.interfaces.mcp.server_state import ServerState
    from deputy.interfaces.mcp.stdio_transport import serve_stdio

    async with ServerState(options) as server_state:
        await serve_stdio(make_server(server_state), server_state, stop)
    return 0


async def _serve_http(
    console: Console, options: Options, host: str, port: int, names: tuple[str, ...], stop: asyncio.Event
) -> int:
    from deputy.interfaces.mcp.http_transport import serve_http
    from deputy.interfaces.mcp.server import make_server
    from deputy.interfaces.mcp.server_state import ServerState

    def announce(url: str, token: str) -> None:
        if console.as_json:
            show_json({"url": url, "token_in": token})
            sys.stdout.flush()
        else:
            warn(f"MCP on {url} (the token is in {token})")

    async with ServerState(options) as server_state:
        await serve_http(
            make_server(server_state), server_state, stop, host=host, port=port, names=names, announce=announce
        )
    return 0
