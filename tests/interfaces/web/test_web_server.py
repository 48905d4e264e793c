"""The door: who gets in, with what, and what every response says to the browser."""

import asyncio
import gzip
import itertools
import json
import shutil
import subprocess

import pytest
from tests.support.browser import ACORN
from tests.support.web_client import open_page

from deputy.interfaces.http_access import find_token
from deputy.interfaces.web.page_address import served_address
from deputy.interfaces.web.web_server import (
    ASSETS,
    BODY_BYTES,
    HEADERS,
    WRONG_SECONDS,
    WRONG_TOKENS,
    TokenLimit,
    read_assets,
    slim,
)

ROUTES = [
    ("GET", "/api/board"),
    ("GET", "/api/follow?after=0"),
    ("GET", "/api/usage"),
    ("GET", "/api/tree/x"),
    ("GET", "/api/runs/x"),
    ("GET", "/api/runs/x/records"),
    ("GET", "/api/runs/x/notes"),
    ("GET", "/api/runs/x/transcript"),
    ("GET", "/api/runs/x/diff"),
    ("GET", "/api/runs/x/export.zip"),
    ("GET", "/api/runs/x/report.html"),
    ("POST", "/api/runs/x/answer"),
    ("POST", "/api/runs/x/resume"),
    ("POST", "/api/runs/x/again"),
    ("POST", "/api/runs/x/pin"),
    ("POST", "/api/cancel"),
]

SAME_TREE = """
const { parse } = require(process.argv[1])
const tree = text => JSON.stringify(parse(text, { ecmaVersion: 'latest', sourceType: 'module' }),
  (name, value) => name === 'start' || name === 'end' ? undefined : value)
const pairs = JSON.parse(require('fs').readFileSync(0, 'utf8'))
console.log(JSON.stringify(pairs.map(([text, sent]) => tree(text) === tree(sent))))
"""


@pytest.fixture
def home(tmp_path):
    find_token(tmp_path / "home", "web-token")
    return tmp_path / "home"


FULL = {"/api/board", "/api/follow?after=0", "/api/runs/x/answer"}
"""The routes for which all combinations are tried; the others get one fault at a time."""


def test_every_route_needs_the_host_the_origin_and_the_token(home):
    """Combinations of good and bad ones: only the good one gets in."""

    async def main():
        async with open_page(home) as client:
            hosts = {None: 200, "evil.com": 421, "127.0.0.1": 421, "127.0.0.1:1": 421, "localhost.evil.com": 421}
            origins = {None: 200, client.page.url: 200, "http://evil.com": 403, "null": 403, "http://127.0.0.1:1": 403}
            sites = {None: 200, "same-origin": 200, "none": 200, "cross-site": 403, "same-site": 403}
            tokens = {f"Bearer {client.page.token}": 200, None: 401}
            seen = set()
            for (method, path), host, origin, site, token in itertools.product(ROUTES, hosts, origins, sites, tokens):
                statuses = [hosts[host], origins[origin], sites[site], tokens[token]]
                faults = [status for status in statuses if status != 200]
                if not faults or (len(faults) > 1 and path not in FULL):
                    continue
                given = {"Origin": origin, "Sec-Fetch-Site": site, "Authorization": token}
                if host is not None:
                    given["Host"] = host
                status, content = await client.ask(method, path, {} if method == "POST" else None, **given)
                assert status == faults[0], (method, path, host, origin, site, token, content)
                assert content["error"]["message"]
                seen.add(status)
            assert seen == {421, 403, 401}

    asyncio.run(main())


def test_only_json_of_a_bounded_size_is_posted(home):
    async def main():
        async with open_page(home) as client:
            for method, path in ROUTES:
                if method != "POST":
                    continue
                for kind in (None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
                    status, _ = await client.ask(method, path, {}, Content_Type=kind)
                    assert status == 415, (path, kind)
                assert (await client.ask(method, path, data=b"x" * (BODY_BYTES + 1)))[0] == 413
                assert (await client.ask(method, path, data=b"["))[0] in (400, 503)
                assert (await client.ask("DELETE", path))[0] == 405
                assert (await client.ask("OPTIONS", path))[0] == 405
            assert (await client.ask("GET", "/api/other"))[0] == 404
            assert (await client.ask("POST", "/", {}))[0] == 405

    asyncio.run(main())


def test_after_too_many_wrong_tokens_even_the_right_one_has_to_wait(home):
    async def main():
        async with open_page(home) as client:
            for _ in range(WRONG_TOKENS):
                refused = await client.ask("GET", "/api/board", Authorization="Bearer wrong")
                assert refused[0] == 401
                assert "redacted" not in str(refused[-1])
            assert (await client.ask("GET", "/api/board", Authorization="Bearer wrong"))[0] == 429
            assert (await client.ask("GET", "/api/board"))[0] == 429
            # The shell has no data, so it needs no token.
            assert (await client.ask("GET", "/", Authorization=None))[0] == 200

    asyncio.run(main())


def test_wrong_tokens_are_forgotten_after_a_minute():
    now = 0.0
    limit = TokenLimit(lambda: now)
    for _ in range(WRONG_TOKENS):
        assert not limit.is_reached
        limit.note()
    assert limit.is_reached
    now = WRONG_SECONDS
    assert not limit.is_reached


def test_every_path_gets_the_same_shell_without_data(home):
    async def main():
        async with open_page(home) as client:
            shell = await client.get("/")
            assert b"<script type=" in shell
            for path in ("/run/x", "/tree/y", "/waiting", "/usage", "/assets", "/../../etc/passwd", "/%2e%2e/x"):
                assert (await client.ask("GET", path, Authorization=None))[1] == shell
            for path in ("/assets/nothing.js", "/assets/..%2fweb_api.py", "/assets/%2e%2e%2fweb-token"):
                assert (await client.ask("GET", path))[0] == 404

    asyncio.run(main())


def test_every_response_carries_the_security_headers(home):
    async def main():
        import aiohttp

        async with open_page(home) as client, aiohttp.ClientSession() as session:
            for path, token in (
                ("/", ""),
                ("/assets/app.js", ""),
                ("/api/board", ""),
                ("/api/board", client.page.token),
            ):
                async with session.get(client.page.url + path, headers={"Authorization": f"Bearer {token}"}) as answer:
                    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
                    assert "Access-Control-Allow-Origin" not in answer.headers
                    assert "Set-Cookie" not in answer.headers
                    assert ("no-store" in answer.headers["Cache-Control"]) == path.startswith("/api")
            assert "unsafe" not in HEADERS["Content-Security-Policy"]

    asyncio.run(main())


def test_a_new_token_closes_the_page_to_the_old_one(home):
    async def main():
        async with open_page(home) as client:
            old = client.page.token
            assert (home / "web-token").stat().st_mode & 0o777 == 0o600
        async with open_page(home) as client:
            assert client.page.token == old
        async with open_page(home, is_new_token=True) as client:
            assert client.page.token != old
            assert (await client.ask("GET", "/api/board", Authorization=f"Bearer {old}"))[0] == 401

    asyncio.run(main())


def test_the_address_is_known_to_other_processes_while_the_page_is_served(home):
    async def main():
        async with open_page(home) as client:
            assert served_address(home) == client.page.url
            assert client.page.token not in (home / "web-address.json").read_text()
        assert served_address(home) == ""

    asyncio.run(main())


def test_another_name_is_served_only_as_it_was_given(home):
    async def main():
        async with open_page(home, name="deputy.example.com") as client:
            local = "http://" + client.page.url.removeprefix("https://")
            assert local == "http://deputy.example.com"

    asyncio.run(main())


def test_what_is_sent_is_small():
    sent = {name: asset.body for name, asset in read_assets().items()}
    assert sum(map(len, sent.values())) <= 120_000
    assert sum(len(gzip.compress(body, 9)) for body in sent.values()) <= 40_000
    for path in ASSETS.glob("*.css"):
        comments = [line for line in path.read_text().splitlines() if line.lstrip().startswith("/*")]
        assert all(line.rstrip().endswith("*/") for line in comments), path.name


def test_a_script_means_the_same_as_it_is_sent():
    if not ACORN.exists() or shutil.which("node") is None:
        pytest.skip("acorn, a reader of JavaScript, is not installed; `make web-browser` installs it")
    scripts = [path.read_text() for path in ASSETS.glob("*.js")]
    pairs = json.dumps([[text, slim(text, ".js")] for text in scripts])
    found = subprocess.run(
        ["node", "-e", SAME_TREE, str(ACORN.resolve())], input=pairs, capture_output=True, text=True, check=True
    )
    assert json.loads(found.stdout) == [True] * len(scripts)


def test_no_text_of_a_script_is_changed_when_its_spaces_are_left_out():
    text = "say('a, b; c - d', `1, ${one + two}; 2`, x - 1, a + b, c - -d);"
    assert slim(text, ".js") == "say('a, b; c - d',`1, ${one + two}; 2`,x-1,a+b,c - -d);"


def test_the_front_end_makes_no_html_from_text():
    """What writes HTML, runs text as code or loads from elsewhere is in no file of the front end."""
    forbidden = (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "createContextualFragment",
        "setHTMLUnsafe",
        "DOMParser",
        "eval(",
        "new Function",
        "srcdoc",
        "document.cookie",
        "trustedTypes.createPolicy",
        "https://",
        "http://",
    )
    allowed = {"http://www.w3.org/2000/svg", "https?://"}
    for path in ASSETS.iterdir():
        text = path.read_text()
        for one in allowed:
            text = text.replace(one, "")
        found = [word for word in forbidden if word in text and path.suffix in (".js", ".css", ".html")]
        assert not found, (path.name, found)
