"""Debian's Chromium for tests of the web page, and the page's server in a thread beside it."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.support.busy_journal import BusyJournal

from deputy.interfaces.web.web_server import ServedPage, WebOptions, serving
from deputy.journal.sqlite.sqlite_journal import SqliteJournal

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

T = TypeVar("T")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
IS_FULL = bool(os.environ.get("DEPUTY_WEB_TESTS"))
"""Whether the long tests run too: `make test-web`."""
ACORN = Path("build/web/node_modules/acorn/dist/acorn.js")
AXE = Path(os.environ.get("DEPUTY_AXE", "build/web/node_modules/axe-core/axe.min.js"))
MISSING = "Chromium is not installed; `make test-packages` installs it"


class PageHouse:
    """A journal that a test writes, and the server of its page, on a loop of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._stack = AsyncExitStack()
        self._serving = AsyncExitStack()
        self.page: ServedPage
        self.busy: BusyJournal
        self._port = 0

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of work on the loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def open(self, *, with_journal: bool = True) -> ServedPage:
        """Open the journal and serve the page."""
        if with_journal:
            self.write()
        self.serve()
        return self.page

    def write(self) -> None:
        """Open the journal for writing."""
        journal = self.do(self._stack.enter_async_context(SqliteJournal(self.home, fsync="off")))
        self.busy = BusyJournal(journal)

    def serve(self) -> None:
        """Serve the page, after a stop on the same port."""

        async def begin() -> ServedPage:
            options = WebOptions(home=self.home, port=self._port)
            return await self._serving.enter_async_context(serving(options))

        self.page = self.do(begin())
        self._port = int(self.page.url.rpartition(":")[2])

    def stop_serving(self) -> None:
        """End the server; the runs continue."""
        self.do(self._serving.aclose())

    def close(self) -> None:
        self.do(self._serving.aclose())
        self.do(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


# Not for the session: Playwright keeps a loop in this thread, where other tests run theirs.
@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser; the test is skipped where it is not installed."""
    if not CHROMIUM:
        pytest.skip(MISSING)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def pages(tmp_path: Path) -> Iterator[PageHouse]:
    house = PageHouse(tmp_path / "home")
    yield house
    house.close()
