"""`make pictures`, second part: a real run with a scripted model, and its pages in Chromium, for README and docs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from deputy.core.model_script import read_script
from deputy.testing import ProviderServer

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
CHROMIUM = shutil.which("chromium") or ""
SIZE = {"width": 1180, "height": 720}
EDIT = {
    "path": "bookshop/accounts.py",
    "old": "    return hashlib.md5(password.encode()).hexdigest()",
    "new": "    salt = os.urandom(16)\n"
    "    return salt.hex() + hashlib.scrypt(password.encode(), salt=salt, n=2**14, r=8, p=1).hex()",
}
TASKS = {
    "security": "Where could an attacker get in?",
    "money": "Where can the shop lose money?",
    "passwords": "Store passwords safely.",
    "tests": "Run the tests and say which fail.",
    "refunds": "Compare the refund rule with the README.",
    "search": "Is the search fast enough?",
}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A tool call."""
    return {"name": name, "arguments": arguments}


def turn(text: str, *calls: dict[str, Any], input: int = 3000, output: int = 140, **more: Any) -> dict[str, Any]:
    """One answer of the model."""
    return {"text": text, "calls": calls, "usage": {"input_tokens": input, "output_tokens": output}, **more}


def conversations() -> list[dict[str, Any]]:
    """What the parent and its subagents say."""
    grants = {"passwords": ["Read", "Edit"], "tests": ["Read", "Run"]}
    tasks = [
        {"label": label, "prompt": prompt, **({"tools": grants[label], "isolation": "none"} if label in grants else {})}
        for label, prompt in TASKS.items()
    ]
    report = (
        "## Two ways in\n\n1. **SQL injection** in `bookshop/search.py:8`: the search words become part of the query\n"
        "2. **Reset links can be guessed**: `bookshop/accounts.py:23` uses `random`\n\n"
        "| place | risk | remedy |\n|---|---|---|\n| `search.py:8` | high | pass values as parameters |\n"
        "| `accounts.py:23` | medium | `secrets.token_urlsafe()` |\n"
    )
    return [
        {
            "when": "Review the bookshop",
            "turns": [
                turn(
                    "I divide the review into six parts.", call("Delegate", tasks=tasks, concurrency=4), delay_seconds=1
                ),
                turn("The review is complete.", input=9000),
            ],
        },
        {
            "when": TASKS["security"],
            "turns": [
                turn("I begin with the accounts.", call("Read", path="bookshop/accounts.py"), delay_seconds=1.2),
                turn(
                    "Now the queries.",
                    call("Grep", pattern="SELECT", glob="*.py"),
                    call("Note", content="Reset tokens come from `random`."),
                    input=4100,
                    delay_seconds=1.5,
                ),
                turn(
                    "One query is built from text.",
                    call("Read", path="bookshop/search.py"),
                    input=5200,
                    output=210,
                    delay_seconds=1.1,
                ),
                turn(report, input=6100, output=420, delay_seconds=1.4),
            ],
        },
        {
            "when": TASKS["money"],
            "turns": [
                turn(
                    "Orders and payments are the places to look.",
                    call("Read", path="bookshop/orders.py"),
                    call("Read", path="bookshop/payments.py"),
                    delay_seconds=1.6,
                ),
                turn(
                    "A charge that times out is sent again, so a card may be charged twice. I check how " * 12,
                    input=5400,
                    delay_seconds=0.8,
                    pace_seconds=0.4,
                ),
            ],
        },
        {
            "when": TASKS["passwords"],
            "turns": [
                turn("", call("Read", path="bookshop/accounts.py"), delay_seconds=1.3),
                turn("MD5 without a salt: I change it to scrypt.", call("Edit", **EDIT), input=4000, delay_seconds=1.2),
                turn("Done."),
            ],
        },
        {
            "when": TASKS["tests"],
            "turns": [turn("", call("Run", command="python -m pytest -q tests"), delay_seconds=2.2), turn("Done.")],
        },
        {
            "when": TASKS["refunds"],
            "turns": [
                turn("", call("Read", path="README.md"), delay_seconds=1),
                turn(
                    "",
                    call("Ask", question="The README says 30 days, the code says 14. Which one is right?"),
                    input=3600,
                    delay_seconds=1.2,
                ),
                turn("Done."),
            ],
        },
        {
            "when": TASKS["search"],
            "turns": [turn("", *[call("Grep", pattern="LIKE", glob="*.py")], delay_seconds=0.6)] * 9,
        },
    ]


def main() -> int:
    """Draw the pictures; the exit code."""
    if not CHROMIUM:
        sys.stderr.write("The pictures of the web page need Chromium: `make test-web` installs it.\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder) / "bookshop"
        shutil.copytree(ROOT / "examples" / "bookshop", project)
        body = json.dumps({"conversations": conversations()}).encode()
        with ProviderServer(read_script(body, "web_pictures"), strict=False) as provider:
            kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
            environ = {
                **kept,
                "HOME": folder,
                "DEPUTY_HOME": f"{folder}/home",
                "DEPUTY_MODEL": "sonnet",
                **provider.environ,
            }
            return _draw(project, environ)


def _draw(project: Path, environ: dict[str, str]) -> int:
    def started(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "deputy", *words], cwd=project, env=environ, stdout=subprocess.PIPE
        )

    server = started("web", "--json")
    address = json.loads(b"".join(iter(server.stdout.readline, b"}\n")) + b"}")  # pyright: ignore
    token = Path(address["token_in"]).read_text().strip()
    page = WebPage(address["url"], token)
    work = started("run", "Review the bookshop: security, money, tests and the refund rule.", "--wait", "--json")
    try:
        page.approve(page.until(lambda: page.board()["waiting"])[0])
        page.until(lambda: len(page.board()["waiting"]) >= 3)
        time.sleep(4)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for scheme in ("light", "dark"):
                tab = browser.new_page(viewport=SIZE, color_scheme=scheme, device_scale_factor=1.5)
                _shots(tab, page, "" if scheme == "light" else "-dark")
            browser.close()
    finally:
        for process in (work, server):
            process.terminate()
            process.wait()
    return 0


def _shots(tab: Page, page: WebPage, end: str) -> None:
    ids = {row[3]: row[0] for row in page.board()["runs"]}
    top = next(row[0] for row in page.board()["runs"] if row[1] is None)
    edit = next(one for one in page.board()["waiting"] if one["label"] == "passwords")
    paths = {
        "web-board": "/",
        "web-approval": f"/waiting#{edit['run']}%20{edit['key'].replace(':', '%3A')}",
        "web-timeline": f"/tree/{top}",
        "web-run": f"/run/{ids['security']}",
    }
    tab.goto(f"{page.url}/#token={page.token}")
    tab.wait_for_selector(".connection.live")
    for name, path in paths.items():
        if end and name != "web-board":
            continue
        tab.goto(page.url + path)
        tab.wait_for_selector(".connection.live")
        tab.wait_for_timeout(1200)
        tab.screenshot(path=PICTURES / f"{name}{end}.png")


class WebPage:
    """The page's API, as the script uses it."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    def _ask(self, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers)  # noqa: S310  our own server
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return json.loads(answer.read())

    def board(self) -> Any:
        """All runs, and what waits."""
        return self._ask("/api/board")

    def approve(self, one: Any) -> None:
        """Approve a call."""
        self._ask(f"/api/runs/{one['run']}/answer", {"key": one["key"], "digest": one["digest"], "approve": True})

    def until(self, is_so: Any) -> Any:
        """What something comes to, once it is so."""
        for _ in range(600):
            if found := is_so():
                return found
            time.sleep(0.1)
        raise SystemExit("the run did not come to that point")


if __name__ == "__main__":
    sys.exit(main())
