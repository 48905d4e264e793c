"""The server of the web page: who may connect, the shell, the assets, and the bounds."""

from __future__ import annotations

import re
import time
from collections import deque
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web
from msgspec import Struct

from deputy.core.errors import DeputyError
from deputy.interfaces.background import background
from deputy.interfaces.http_access import LOOPBACK, AccessCheck, find_token, listening, shown_address
from deputy.interfaces.http_bounds import bounded_log
from deputy.interfaces.http_serving import accepting
from deputy.interfaces.web.feed import Feed, NoJournal
from deputy.interfaces.web.jobs import Jobs
from deputy.interfaces.web.page_address import announced
from deputy.interfaces.web.web_api import WebApi, error_response, explained

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

ASSETS = Path(__file__).parent / "assets"
TOKEN_FILE = "web-token"  # noqa: S105  the name of a file, and not a token
BODY_BYTES = 256 * 1024
WRONG_TOKENS, WRONG_SECONDS = 10, 60.0
"""After so many wrong tokens in so many seconds no token is looked at."""
_WITH_TOKEN = ("/api", "/metrics")
_TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".html": "text/html",
    ".webmanifest": "application/manifest+json",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class WebOptions(Struct, frozen=True, kw_only=True):
    """Where the page is served, and to which names."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 0
    name: str = ""
    """The host name that browsers use, if the page is reached from other machines."""
    is_insecure: bool = False
    """Whether browsers reach that name without TLS."""
    is_new_token: bool = False


class Asset(NamedTuple):
    """A file of the front end, read once."""

    body: bytes
    type: str
    etag: str


class TokenLimit:
    """Counts wrong tokens."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: deque[float] = deque(maxlen=WRONG_TOKENS)

    @property
    def is_reached(self) -> bool:
        """Whether too many tokens were wrong lately."""
        return len(self._wrong) == WRONG_TOKENS and self._clock() - self._wrong[0] < WRONG_SECONDS

    def note(self) -> None:
        """Count one wrong token."""
        self._wrong.append(self._clock())


SPACES = {
    ".css": (
        ("\n", " "),
        ("} ", "}"),
        (" {", "{"),
        ("{ ", "{"),
        (" }", "}"),
        (";}", "}"),
        ("; ", ";"),
        (": ", ":"),
        (", ", ","),
    ),
    ".js": (
        *((f" {sign} ", sign) for sign in ("=>", "===", "!==", "&&", "||", "??", "+=", "=", "?", ":", "<", ">", "*")),
        *((f"{word} (", f"{word}(") for word in ("if", "for")),
        (") {", "){"),
        ("{ ", "{"),
        (" }", "}"),
        (";\n", ";"),
        (",\n", ","),
        ("{\n", "{"),
        ("\n}", "}"),
        ("}\n", "}"),
    ),
}
"""Spaces and line ends that a file does not need; no text of the page has one of these signs."""
_SPACED = re.compile(r"('[^'\n]*'|`[^`\n]*`)|([,;]) | ([-+/%]) (?![-+])")
"""Texts, which stay as they are; and spaces that a script does not need elsewhere."""
_OF_THE_REPORT = (".report", ".timeline", "@media print", "@media (max-width: 40rem)")
"""The beginnings of rules in the shared stylesheet that the page does not use."""


def slim(text: str, kind: str) -> str:
    """A file as it is sent: without comment lines, indentation and spaces between parts."""
    lines = (line.strip() for line in text.splitlines())
    sent = "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))
    if kind == ".js":
        sent = _SPACED.sub(lambda found: "".join(part or "" for part in found.groups()), sent)
    for spaced, short in SPACES.get(kind, ()):
        sent = sent.replace(spaced, short)
    return sent


def read_assets() -> dict[str, Asset]:
    """All files of the front end as they are sent, by name; the shared stylesheet is part of the page's own."""
    texts = {path.name: path.read_text("utf-8") for path in ASSETS.iterdir() if path.suffix in _TYPES}
    shared = (line for line in texts.pop("style.css").splitlines() if not line.lstrip().startswith(_OF_THE_REPORT))
    texts["page.css"] = "\n".join((*shared, texts["page.css"]))
    return {name: _asset(text, name[name.rindex(".") :]) for name, text in texts.items()}


def _asset(text: str, kind: str) -> Asset:
    body = slim(text, kind).encode()
    return Asset(body, _TYPES[kind], f'"{sha256(body).hexdigest()[:20]}"')


class WebServer:
    """The aiohttp application, with what it needs while it runs."""

    def __init__(self, home: Path, access: AccessCheck) -> None:
        self._access = access
        self._tokens = TokenLimit()
        self._assets = read_assets()
        self._jobs = Jobs(home)
        self._feed = Feed(home, self._jobs)
        self._api = WebApi(home, self._feed, self._jobs)
        self.app = web.Application(middlewares=[self._guarded], client_max_size=BODY_BYTES)
        self.app.on_response_prepare.append(_add_headers)
        self.app.add_routes(self._api.routes())
        self.app.add_routes([web.get("/assets/{name}", self._asset), web.get("/{path:.*}", self._shell)])

    @asynccontextmanager
    async def following(self) -> AsyncGenerator[None]:
        """Follow the journal for the readers of the stream."""
        try:
            async with background(self._feed.follow()):
                yield
        finally:
            await self._feed.close()

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets.get(request.match_info["name"])
        if asset is None:
            return error_response(404, "NOT_FOUND", "There is no such file.")
        headers = {"ETag": asset.etag, "Cache-Control": "no-cache"}
        if request.headers.get("If-None-Match") == asset.etag:
            return web.Response(status=304, headers=headers)
        return web.Response(body=asset.body, content_type=asset.type, charset="utf-8", headers=headers)

    async def _shell(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/api/"):
            return error_response(404, "NOT_FOUND", "There is no such route.")
        headers = {"Cache-Control": "no-cache"}
        return web.Response(body=self._assets["index.html"].body, content_type="text/html", headers=headers)

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        refused = self._refused(request)
        if refused is not None:
            # The body was not read, so the connection cannot be reused.
            refused.force_close()
            return refused
        try:
            return await handler(request)
        except (DeputyError, NoJournal) as error:
            return explained(error)
        except web.HTTPRequestEntityTooLarge:
            return error_response(413, "TOO_LARGE", f"A request has at most {BODY_BYTES:,} bytes.")
        except web.HTTPMethodNotAllowed:
            return error_response(405, "METHOD", "The route has another method.")
        except web.HTTPNotFound:
            return error_response(404, "NOT_FOUND", "There is no such route.")

    def _refused(self, request: web.Request) -> web.Response | None:
        headers = request.headers
        address = self._access.refuse_address(headers.getall("Host", []), headers.getall("Origin", []))
        if address is not None:
            return error_response(address.status, "REFUSED", address.message)
        if not request.path.startswith(_WITH_TOKEN):
            return None
        if headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return error_response(403, "REFUSED", "Requests from that origin are refused.")
        if self._tokens.is_reached:
            return error_response(429, "TOO_MANY", "Too many wrong tokens.", "Wait a minute.")
        token = self._access.refuse_token(headers.getall("Authorization", []))
        if token is not None:
            if "Authorization" in headers:
                self._tokens.note()
            return error_response(token.status, "NO_TOKEN", token.message, "`deputy web` prints an address with it.")
        if request.method not in ("GET", "HEAD", "POST"):
            return error_response(405, "METHOD", "The API knows GET and POST.")
        if request.method == "POST" and request.content_type != "application/json":
            return error_response(415, "NOT_JSON", "Send application/json.")
        if (request.content_length or 0) > BODY_BYTES:
            return error_response(413, "TOO_LARGE", f"A request has at most {BODY_BYTES:,} bytes.")
        return None


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    if request.path.startswith(_WITH_TOKEN):
        response.headers["Cache-Control"] = "no-store"
    if response.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="deputy"'
    response.headers.pop("Server", None)


# --- serving ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(options: WebOptions) -> AsyncGenerator[ServedPage]:
    """Serve the page until the block ends."""
    token, source = find_token(options.home, TOKEN_FILE, is_new=options.is_new_token)
    with bounded_log(), listening(options.host, options.port, "--port") as sock:
        port = sock.getsockname()[1]
        name = options.name.lower()
        scheme = "https" if name and not options.is_insecure else "http"
        names = {*LOOPBACK, *([name] if name else [])}
        # Behind TLS only the proxy uses our port, so that browsers name the host alone.
        access = AccessCheck(token=token, names=names, ports=[port], scheme=scheme)
        server = WebServer(options.home, access)
        base = f"{scheme}://{name}" if name and scheme == "https" else f"http://{shown_address(sock)}"
        if name and options.is_insecure:
            base = f"http://{name}:{port}"
        async with server.following(), accepting(server.app, sock):
            with announced(options.home, base):
                yield ServedPage(base, token, source)


class ServedPage(NamedTuple):
    """A page that is served: its address, and the token that opens it."""

    url: str
    token: str
    source: str

    @property
    def url_with_token(self) -> str:
        """The address that opens the page: the fragment is never sent over the network."""
        return f"{self.url}/#token={self.token}"
