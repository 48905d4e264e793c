"""`deputy web`: the page on which a person sees, answers and stops runs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from deputy.core.errors import Unquoted, UsageError
from deputy.interfaces.cli.console import Console, show_json, warn, with_console
from deputy.interfaces.cli.runner import run_command
from deputy.interfaces.nesting import refuse_below_run

if TYPE_CHECKING:
    import asyncio

    from deputy.interfaces.web.web_server import WebOptions

EXAMPLES = """\b
Examples:
  deputy web                     open the page in the browser
  deputy web --no-open           only print its address
  deputy web --port 8711         always on the same port
  deputy web --new-token         sign out all open pages
  deputy web --host 0.0.0.0 --name deputy.example.com

\b
The page shows all runs of this user: what waits for you, what each is doing,
what it costs and why it stopped. You can approve, answer, cancel and resume.
It ends with Ctrl-C; the runs continue.

\b
Only this machine can reach it, and only with the token that the printed
address carries behind the #. The token is in the file web-token in Deputy's
home. For other machines give --host and --name, and put a server with TLS in
front; --insecure serves them without TLS. A command that a run has started
cannot open the page."""

_LOOPBACK = "127.0.0.1"


@click.command("web", epilog=EXAMPLES)
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="PORT", help="The port; 0: any free one.")
@click.option("--no-open", is_flag=True, help="Do not open a browser.")
@click.option("--host", metavar="ADDRESS", help="The address to listen on; by default only this machine.")
@click.option("--name", metavar="NAME", help="The host name that browsers use, with --host.")
@click.option("--insecure", is_flag=True, help="Let browsers use that name without TLS.")
@click.option("--new-token", is_flag=True, help="Make a new token; pages with the old one must sign in again.")
@with_console("Print the address as JSON.")
def command(
    console: Console, port: int, no_open: bool, host: str | None, name: str | None, insecure: bool, new_token: bool
) -> int:
    """See, answer and stop runs in the browser."""
    refuse_below_run("deputy web")
    if host is not None and host not in (_LOOPBACK, "localhost", "::1") and not name:
        raise UsageError("--host", host, "also give --name NAME, the host name that browsers use")
    if (name or insecure) and host is None:
        given = ("--name", name) if name else ("--insecure", Unquoted("given"))
        raise UsageError(*given, "this option is for other machines; also give --host ADDRESS")
    from deputy.interfaces.web.web_server import WebOptions
    from deputy.journal.home import home_path, make_home

    options = WebOptions(
        home=make_home(home_path()),
        host=host or _LOOPBACK,
        port=port,
        name=name or "",
        is_insecure=insecure,
        is_new_token=new_token,
    )
    return run_command(lambda stop: _serve(console, options, stop, opens=not no_open and not console.as_json))


async def _serve(console: Console, options: WebOptions, stop: asyncio.Event, *, opens: bool) -> int:
    from deputy.interfaces.web.web_server import serving

    async with serving(options) as page:
        if console.as_json:
            show_json({"url": page.url, "token_in": page.source})
            sys.stdout.flush()
        else:
            click.echo(page.url_with_token)
            warn("the page is open to those who have this address; Ctrl-C ends it, and the runs continue")
            if options.is_insecure:
                warn("warning: without TLS everyone on the network path can read the token")
        if opens:
            open_browser(page.url_with_token)
        await stop.wait()
    return 0


def open_browser(url: str) -> None:
    """Open the user's browser, if there is a desktop."""
    import os
    import subprocess
    from shutil import which

    opener = next((name for name in ("xdg-open", "open", "wslview") if which(name)), None)
    has_desktop = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or sys.platform == "darwin"
    if opener is None or not has_desktop:
        return
    quiet = subprocess.DEVNULL
    subprocess.Popen([opener, url], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


COMMANDS = {"web": command}
