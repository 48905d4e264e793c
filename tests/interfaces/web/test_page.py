"""The page in a real browser: what it shows, what it lets through, and what can be done with the keyboard alone."""

import json
import re
import time

import pytest
from tests.support.browser import AXE, IS_FULL, chromium, pages
from tests.support.busy_journal import command_request, diff_request
from tests.support.command_house import until

from deputy.core.approval import ApprovalPart, ApprovalRequest
from deputy.core.errors import Error
from deputy.core.events import ModelCallEnded, Noted, Returned
from deputy.core.outcome import Blocked, Usage
from deputy.core.progress import Progress
from deputy.core.request import Lineage
from deputy.engine.recover import shown_status
from deputy.journal.registry import list_runs
from deputy.journal.retention import prune
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore

__all__ = ["chromium", "pages"]


class Tab:
    """One tab, with what went wrong in it."""

    def __init__(self, browser, house, **context):
        self.house = house
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **context})
        self.page = self.context.new_page()
        self.page.set_default_timeout(60_000)
        self.problems: list[str] = []
        self.foreign: list[str] = []
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", self._request)

    def _console(self, message):
        if "Security Policy" in message.text or "Trusted" in message.text:
            self.problems.append(message.text)

    def _request(self, request):
        if not request.url.startswith((self.house.page.url, "blob:")):
            self.foreign.append(request.url)

    def open(self, path: str = "/"):
        self.page.goto(self.house.page.url_with_token)
        self.live()
        if path != "/":
            self.page.goto(self.house.page.url + path)
            self.live()
        return self.page

    def live(self):
        self.page.wait_for_selector(".connection.live", state="attached")

    def close(self):
        self.context.close()
        assert self.problems == []
        assert self.foreign == []


@pytest.fixture
def tab(chromium, pages):
    tabs = []

    def make(**context):
        tabs.append(Tab(chromium, pages, **context))
        return tabs[-1]

    yield make
    for one in tabs:
        one.close()


async def family(busy):
    """A parent with subagents in many states; the runs by label."""
    runs = {}
    top, lease = await busy.root("audit", command="run", prompt="Audit the shop.")
    await busy.turns(lease, 2)
    runs["audit"] = top
    for label in ("passwords", "prices", "tests", "payments", "database", "mail", "logging", "secrets"):
        runs[label], child = await busy.child(top, lease, label)
        await busy.turns(child, 2, cost=None if label == "payments" else 0.01)
        match label:
            case "passwords":
                await busy.note(child, "`check` uses **hmac**")
                await busy.complete(runs[label], child)
            case "prices":
                await busy.approval(child, diff_request(300))
            case "tests":
                await busy.approval(child, command_request("pytest -q\nrm -rf build\u202e/x"), until=time.time() + 600)
            case "payments":
                for _ in range(4):
                    busy.call(runs[label], "Read", "pay.py")
                await busy.note(child, "")
            case "database":
                await busy.question(child, "Which database?")
            case "mail":
                busy.show(runs[label], Progress(event="retry", label="x", attempt=2, of=4, reason="overloaded"))
                await busy.note(child, "")
            case "logging":
                await busy.stop_early(runs[label], child)
            case _:
                await busy.fail(runs[label], child)
    return runs


def shown_statuses(page) -> dict:
    script = "rows => rows.map(row => [row.querySelector('.label').textContent, row.dataset.status])"
    return dict(page.eval_on_selector_all("[role=treeitem]:not(.fold)", script))


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_the_board_shows_the_journal_and_follows_it(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    page = tab().open()
    with SqliteQueries.open(pages.home) as queries:
        expected = {one.state.label: shown_status(one) for one in list_runs(queries, ended=200)}
    assert shown_statuses(page) == expected
    assert page.title() == "(3) Board · Deputy"
    assert "loop" in page.text_content("[role=treeitem]:has-text('payments') .flags")
    assert "retrying (2/4): overloaded" in page.text_content("[role=treeitem]:has-text('mail')")
    # Unknown is never free.
    assert page.text_content("[role=treeitem]:has-text('payments') .c-cost") == "?"
    assert page.text_content("[role=treeitem]:has-text('audit') .c-cost") == "?"

    async def more():
        top, lease = await pages.busy.root("a new one")
        pages.busy.call(top, "Grep", "pattern=eval")
        await pages.busy.note(lease, "x")

    pages.do(more())
    page.wait_for_selector("[role=treeitem]:has-text('a new one'):has-text('Grep pattern=eval')")
    assert len(runs) == 9


def test_the_token_leaves_the_address_and_without_one_the_page_says_where_it_is(tab, pages):
    pages.open()
    page = tab().open()
    assert page.url == f"{pages.page.url}/"
    assert page.evaluate("localStorage.getItem('deputy-token')") == pages.page.token
    assert page.evaluate("document.cookie") == ""
    fresh = tab().page
    fresh.goto(pages.page.url + "/run/x")
    fresh.wait_for_selector("text=Token needed")
    assert "web-token" in fresh.text_content("main")
    fresh.fill("input[type=password]", "wrong-wrong-wrong")
    fresh.press("input[type=password]", "Enter")
    fresh.wait_for_selector("text=does not accept this token")
    fresh.fill("input[type=password]", pages.page.token)
    fresh.press("input[type=password]", "Enter")
    fresh.wait_for_selector("text=not in the journal")


def test_a_home_without_a_journal_shows_what_to_try_and_then_the_first_run(tab, pages):
    pages.open(with_journal=False)
    page = tab().open()
    page.wait_for_selector("text=No runs yet")
    assert "deputy delegate" in page.text_content(".notice")
    pages.write()
    pages.do(pages.busy.root("the first"))
    page.wait_for_selector("[role=treeitem]:has-text('the first')")


def test_one_run_shows_its_result_turns_notes_records_and_why_it_stopped(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    one = tab()
    page = one.open(f"/run/{runs['passwords']}")
    page.wait_for_selector("h3:has-text('Findings')")
    assert page.text_content(".markdown strong") == "one"
    assert page.locator(".markdown table td").count() == 6
    page.keyboard.press("3")
    page.wait_for_selector(".notes strong:has-text('hmac')")
    page.keyboard.press("2")
    page.wait_for_selector("#record-5:has-text('I look at module 0.')")
    page.click("#record-5 button")
    page.wait_for_selector("#record-5 pre:has-text('src/module_0.py')")
    assert page.url == f"{pages.page.url}/run/{runs['passwords']}/transcript#5"
    page.goto(f"{pages.page.url}/run/{runs['logging']}")
    page.wait_for_selector("text=Why it stopped: partial")
    assert "The time limit of 900 s was reached." in page.text_content(".why")
    assert page.locator(".why .last li").count() == 3
    assert page.text_content(".why .main") == "Resume"


def test_the_timeline_and_the_usage_show_every_run(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    page = tab().open(f"/tree/{runs['audit']}")
    page.wait_for_selector(".lane:has-text('secrets')")
    assert page.locator(".lane").count() == 9
    assert page.locator("rect.span-waiting").count() == 3
    assert page.locator("rect.span-model").count() >= 9
    # The keys say what one call was, and open it.
    page.keyboard.press("j")
    page.keyboard.press("]")
    page.wait_for_selector(".said:has-text('1 of ')")
    assert "model anthropic:claude-sonnet-4-5 in=2.4k out=180" in page.text_content(".said")
    page.keyboard.press("Enter")
    page.wait_for_selector(".record.at:has-text('model')")
    page.goto(pages.page.url + "/usage")
    page.wait_for_selector("text=By model")
    assert "anthropic:claude-sonnet-4-5" in page.text_content(".usage")


def test_a_long_wait_for_an_answer_is_folded_so_that_the_calls_stay_visible(tab, pages):
    pages.open()

    async def blocked():
        run, lease = await pages.busy.root("asks")
        await pages.busy.turns(lease, 1)
        error = Error(type="blocked", code="QUESTION", message="?", recoverable=True, recommendation="Answer it.")
        outcome = Blocked(lineage=Lineage.root(run), summary="?", question="Which file?", errors=(error,))
        await pages.busy.journal.finish(lease, "returned:0", Returned(outcome=outcome))
        return run

    run = pages.do(blocked())
    one = tab()
    one.page.route("**/api/tree/*", lambda route: route.fulfill(json=after_an_hour(route.fetch().json())))
    page = one.open(f"/tree/{run}")
    page.wait_for_selector("rect.span-waiting")
    assert "1 idle time folded" in page.text_content(".timeline-page")
    assert float(page.get_attribute("rect.span-model", "width")) > 5
    page.hover("rect.span-waiting")
    assert "waiting Which file?" in page.text_content(".said")


def after_an_hour(tree: dict) -> dict:
    """The spans of a tree, as if the wait had taken an hour."""
    for lane in tree["lanes"]:
        lane["spans"] = [
            [kind, since - 3600, until and until - 3600, *more] for kind, since, until, *more in lane["spans"]
        ]
    return tree


def test_the_age_is_since_the_request_the_time_is_that_of_the_work_and_an_estimate_is_marked(tab, pages):
    pages.open()

    async def estimated():
        top, lease = await pages.busy.root("call")
        run, child = await pages.busy.child(top, lease, "worker", seconds=None)
        usage = Usage(input=2400, output=180, requests=1, estimated=True)
        await pages.busy.journal.append(child, "model:0", ModelCallEnded(model="m", usage=usage))
        await pages.busy.stop_early(run, child)

    pages.do(estimated())
    one = tab()
    one.page.route("**/api/board", lambda route: route.fulfill(json=two_hours_later(route.fetch().json())))
    page = one.open()
    row = page.locator("[role=treeitem]:has-text('worker')")
    assert row.locator(".c-age").text_content().startswith("2h 00m")
    assert row.locator(".c-time").text_content().endswith("s")
    assert "h" not in row.locator(".c-time").text_content()
    assert page.locator("[role=treeitem]:has-text('call') .c-in").text_content().startswith("~")
    assert page.text_content(".stats a[href='/usage'] strong").startswith("~")


def two_hours_later(board: dict) -> dict:
    return board | {"now": board["now"] + 7200}


def test_a_link_to_a_record_far_down_reads_no_more_than_its_page(tab, pages):
    count = 100_000 if IS_FULL else 12_000
    pages.open()

    async def long():
        run, lease = await pages.busy.root("long")
        for number in range(count):
            pages.busy.journal.append_soon(lease, f"n:{number}", Noted(content=f"note {number}"))
        await pages.busy.journal.wait_durable(lease)
        return run

    run = pages.do(long())
    one = tab()
    one.open()
    asked = []
    one.page.on("request", lambda request: asked.append(request.url) if "/api/runs/" in request.url else None)
    one.page.goto(f"{pages.page.url}/run/{run}/transcript#{count - 100}")
    one.page.wait_for_selector(f"#record-{count - 100}:has-text('note')")
    assert len(asked) <= 2, asked
    assert one.page.locator(".record").count() < 80
    text = one.page.text_content(f"#record-{count - 100} .text")
    assert text == f"note {count - 103}"


# --- approvals --------------------------------------------------------------------------------------------------------


def test_approve_is_disabled_until_all_of_the_text_was_seen(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    page = tab().open(f"/waiting#{runs['prices']}%20ask%3A0")
    page.wait_for_selector(".exact .line.added")
    approve = page.locator("button:text-is('Approve')")
    assert approve.is_disabled()
    # A jump to the end leaves a part unseen.
    page.evaluate("document.querySelector('.exact').scrollTop = 1e9")
    page.wait_for_selector(".seen:has-text('%')")
    assert approve.is_disabled()
    # So does a jump back; what is on the screen counts again half a second later.
    page.evaluate("document.querySelector('.exact').scrollTop = 0")
    page.wait_for_timeout(600)
    assert approve.is_disabled()
    page.focus(".exact")
    for _ in range(60):
        page.keyboard.press("PageDown")
        # As fast as a person who looks at each screen.
        page.wait_for_timeout(260)
        if approve.is_enabled():
            break
    assert page.text_content(".seen") == "You have seen all of it."
    assert approve.is_enabled()
    # The second click of a double click answers nothing.
    approve.dispatch_event("click", {"detail": 2})
    page.wait_for_timeout(200)
    assert approve.is_enabled()


def test_every_byte_of_what_is_approved_is_on_the_page_and_nothing_in_it_is_invisible(tab, pages):
    pages.open()
    hidden = "start \u202eevil\u2066 \u200b\x07 end"
    text = hidden + "\n" + "\n".join(f"{number:06} " + "abc " * 20 for number in range(1200))
    assert len(text) > 100_000
    request = ApprovalRequest(
        tool="Write", title="Write", parts=(ApprovalPart(name="content", text=text),), risk="high"
    )

    async def ask():
        run, lease = await pages.busy.root("writer")
        await pages.busy.approval(lease, request)
        return run

    pages.do(ask())
    page = tab().open("/waiting")
    page.wait_for_selector(".exact pre")
    shown = page.evaluate("document.querySelector('.exact pre').textContent")
    assert shown == text.replace("\u202e", "U+202E").replace("\u2066", "U+2066").replace("\u200b", "U+200B").replace(
        "\x07", "U+0007"
    )
    assert page.locator("mark.unseen").count() == 4


def test_an_answer_without_a_process_is_kept_and_the_page_offers_to_resume_the_run(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    page = tab().open(f"/waiting#{runs['database']}%20ask%3A0")
    page.fill("textarea", "orders_v2")
    page.click("button:text-is('Answer')")
    page.wait_for_selector("text=No process works on this run")
    assert page.locator("button:text-is('Resume it')").count() == 1
    with SqliteQueries.open(pages.home) as queries:
        assert (runs["database"], "answer") in queries.addressed()


# --- the connection ---------------------------------------------------------------------------------------------------


def test_after_the_server_was_away_the_page_equals_the_journal(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    page = tab().open()
    pages.stop_serving()
    page.wait_for_selector(".offline:has-text('as of')")

    async def meanwhile():
        top, _ = await pages.busy.root("born meanwhile")
        return top

    pages.do(meanwhile())
    pages.serve()
    page.wait_for_selector(".connection.live", state="attached")
    page.wait_for_selector("[role=treeitem]:has-text('born meanwhile')")
    with SqliteQueries.open(pages.home) as queries:
        expected = {one.state.label: shown_status(one) for one in list_runs(queries, ended=200)}
    assert shown_statuses(page) == expected
    assert page.locator(".offline").is_hidden()
    assert runs


def test_a_board_that_cannot_be_read_after_a_reset_is_read_again(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    one = tab()
    page = one.open()
    failed = []

    def fails_twice(route):
        if len(failed) < 2:
            failed.append(route.request.url)
            route.abort()
        else:
            route.continue_()

    page.route("**/api/board", fails_twice)

    async def ended():
        top, lease = await pages.busy.root("pruned at once")
        await pages.busy.complete(top, lease)

    pages.do(ended())
    assert prune(SqliteStore(pages.home), time.time() + 60)
    pages.do(pages.busy.root("born after the prune"))
    page.wait_for_selector("[role=treeitem]:has-text('born after the prune')")
    one.live()
    assert len(failed) == 2
    assert page.locator("[role=treeitem]:has-text('pruned at once')").count() == 0
    assert runs


@pytest.mark.skipif(not IS_FULL, reason="only in `make test-web`: it waits for 12 seconds")
def test_a_stream_that_falls_asleep_is_opened_again(tab, pages, monkeypatch):
    monkeypatch.setattr("deputy.interfaces.web.feed.BEAT_SECONDS", 1000.0)
    pages.open()
    one = tab()
    opened = []
    one.page.on("request", lambda request: opened.append(request.url) if "/api/follow" in request.url else None)
    one.open()
    before = len(opened)
    until(lambda: len(opened) > before or one.page.wait_for_timeout(100))
    one.live()
    pages.do(pages.busy.root("after the sleep"))
    one.page.wait_for_selector("[role=treeitem]:has-text('after the sleep')")


@pytest.mark.skipif(not IS_FULL, reason="only in `make test-web`")
def test_every_status_on_the_page_is_one_that_the_journal_had(tab, pages):
    """Samples while runs begin, ask and end: at rest the page, ps and the journal say the same."""
    pages.open()
    page = tab().open()
    sampled = 0

    async def some(number):
        top, lease = await pages.busy.root(f"top {number}")
        for at in range(6):
            run, child = await pages.busy.child(top, lease, f"child {number}.{at}")
            match (number + at) % 4:
                case 0:
                    await pages.busy.complete(run, child)
                case 1:
                    await pages.busy.fail(run, child)
                case 2:
                    await pages.busy.question(child, "Which?")
                case _:
                    await pages.busy.turns(child, 1)
        return run

    script = """async ([last, expected]) => {
        const { store } = await import('/assets/store.js');
        const rows = [...store.rows.values()];
        return store.rows.has(last) && rows.every(row => row.status === expected[row.id]) && rows.length;
    }"""
    number = 0
    while sampled < 1000:
        number += 1
        last = pages.do(some(number))
        with SqliteQueries.open(pages.home) as queries:
            expected = {one.state.run: shown_status(one) for one in list_runs(queries, ended=10_000)}
        sampled += page.wait_for_function(script, arg=[last, expected]).json_value()


def test_tabs_share_one_stream_and_another_takes_over(chromium, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    first = Tab(chromium, pages)
    first.open()
    others = [first.context.new_page() for _ in range(7 if IS_FULL else 2)]
    for number, page in enumerate(others):
        page.goto(f"{pages.page.url}/run/{runs['payments']}/transcript" if number else pages.page.url)
        page.wait_for_selector(".connection.live", state="attached")
    readers = pages_readers(pages)
    assert len(readers) == 1
    pages.do(pages.busy.root("seen by all"))
    others[0].wait_for_selector("[role=treeitem]:has-text('seen by all')")
    first.page.wait_for_selector("[role=treeitem]:has-text('seen by all')")
    first.page.close()
    pages.do(pages.busy.root("after the first is closed"))
    others[0].wait_for_selector("[role=treeitem]:has-text('after the first is closed')")
    first.close()


def pages_readers(house):
    """The open streams of the server."""
    import gc

    from deputy.interfaces.web.feed import Feed

    return [reader for feed in gc.get_objects() if isinstance(feed, Feed) for reader in feed._readers]


def test_a_wrong_clock_of_the_browser_changes_no_age(tab, pages):
    pages.open()
    pages.do(family(pages.busy))
    one = tab()
    one.page.clock.install(time=time.time() + 86_400 * 3)
    one.open()
    one.page.wait_for_selector("[role=treeitem]")
    ages = one.page.eval_on_selector_all("[role=treeitem] .c-age", "cells => cells.map(cell => cell.textContent)")
    assert all(re.fullmatch(r"\d+s|0m \d\ds|1m \d\ds", age) for age in ages), ages


# --- hostile texts ----------------------------------------------------------------------------------------------------

TAGS = (
    "img",
    "svg",
    "iframe",
    "video",
    "audio",
    "body",
    "input",
    "details",
    "object",
    "embed",
    "math",
    "style",
    "link",
    "base",
    "form",
)
PAYLOADS = [
    *(
        f"<{tag} src=x on{event}=window.__hit=1 open autofocus>x"
        for tag in TAGS
        for event in (
            "error",
            "load",
            "focus",
            "toggle",
            "mouseover",
            "begin",
            "click",
            "animationstart",
            "beforetoggle",
        )
    ),
    "<script>window.__hit=1</script>",
    "'\"><script>window.__hit=1</script>",
    "</title><script>window.__hit=1</script>",
    "[x](javascript:window.__hit=1)",
    "[x](data:text/html,<script>window.__hit=1</script>)",
    '[x](https://e.x/" onclick=window.__hit=1 x=")',
    '![x](x" onerror=window.__hit=1)',
    "javascript:window.__hit=1",
    "{{constructor.constructor('window.__hit=1')()}}",
    "${window.__hit=1}",
    "`-window.__hit=1-`",
    "<a href=javascript:window.__hit=1>x</a>",
    "<iframe srcdoc='<script>parent.__hit=1</script>'>",
    "<svg><use href='data:image/svg+xml,<svg id=x onload=window.__hit=1>#x'></svg>",
    "<template shadowrootmode=open><script>window.__hit=1</script></template>",
]


def test_no_text_of_a_run_becomes_anything_but_text(tab, pages):
    assert len(PAYLOADS) >= 150
    pages.open()
    evil = "\n\n".join(PAYLOADS)
    some = PAYLOADS if IS_FULL else PAYLOADS[::7]

    async def hostile():
        busy = pages.busy
        top, lease = await busy.root(PAYLOADS[0], command=PAYLOADS[1][:40], prompt=evil)
        await busy.note(lease, evil)
        busy.show(top, Progress(event="text", label=PAYLOADS[2], content=evil))
        await busy.note(lease, evil, key="n2")
        parts = (ApprovalPart(name=PAYLOADS[3], text=evil), ApprovalPart(name="diff", text="@@ x\n+" + evil))
        await busy.approval(
            lease,
            ApprovalRequest(
                tool="<b>", title=PAYLOADS[4], parts=parts, risk="high", cost=PAYLOADS[5], folder=PAYLOADS[6]
            ),
        )
        ended, child = await busy.child(top, lease, PAYLOADS[8], prompt=evil)
        await busy.complete(ended, child, report=evil)
        for one in some:
            other, leaf = await busy.child(top, lease, one[:60])
            await busy.fail(other, leaf, message=one)
        return top, ended

    top, ended = pages.do(hostile())
    one = tab()
    page = one.open()
    for path in ("/", "/?sort=cost", "/waiting", "/usage", f"/tree/{top}", *tabs(top, ended)):
        page.goto(pages.page.url + path)
        one.live()
        page.wait_for_timeout(200)
        for record in page.query_selector_all(".record .head")[:6]:
            record.click()
        assert page.evaluate("window.__hit") is None, path
        assert page.evaluate(MADE) == [], path
        links = page.evaluate("[...document.querySelectorAll('a[href]')].map(a => a.protocol)")
        assert set(links) <= {"http:", "https:"}, path
        assert page.evaluate(HANDLERS) == 0, path


def tabs(top, ended):
    return [f"/run/{path}" for path in (top, f"{top}/transcript", f"{top}/notes", f"{top}/events", ended)]


MADE = """
[...document.querySelectorAll(`script:not([src]), iframe, object, embed, base, video, audio, style, form:not(.filters),
  link:not([rel=stylesheet]):not([rel=icon]), img:not([src="/assets/favicon.svg"])`)].map(e => e.outerHTML.slice(0, 80))
"""
HANDLERS = """
[...document.querySelectorAll('*')].filter(e => [...e.attributes].some(
  a => a.name.startsWith('on') || a.name === 'style' && a.value.includes('url'))).length
"""


# --- for everyone -----------------------------------------------------------------------------------------------------

PATHS = (
    "/",
    "/waiting",
    "/usage",
    "/tree/{audit}",
    "/run/{passwords}",
    "/run/{passwords}/transcript",
    "/run/{passwords}/notes",
    "/run/{prices}/diff",
    "/run/{logging}",
    "/run/nothing",
)


@pytest.mark.skipif(not IS_FULL, reason="only in `make test-web`; the test below makes open pages as narrow")
@pytest.mark.parametrize("width", [360, 640])
def test_no_page_that_opens_on_a_phone_or_at_twice_the_size_scrolls_sideways(tab, pages, width):
    pages.open()
    runs = pages.do(family(pages.busy))
    one = tab(viewport={"width": width, "height": 700})
    page = one.open()
    for path in PATHS:
        page.goto(pages.page.url + path.format(**runs))
        one.live()
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path


AXE_RUN = """
axe.run(document, {resultTypes: ['violations']}).then(result => result.violations.map(found => [
  found.id, found.nodes.map(node => node.html.slice(0, 150) + ' ' + (node.any[0]?.message ?? '')).slice(0, 3)]))
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_scrolls_sideways_on_a_phone_or_has_an_accessibility_violation(tab, pages, scheme):
    if scheme == "dark" and not IS_FULL:
        pytest.skip("only in `make test-web`")
    pages.open()
    runs = pages.do(family(pages.busy))
    one = tab(color_scheme=scheme, reduced_motion="reduce")
    # Only this test runs code of others in the page, which the page's own policy forbids.
    page = one.open()
    script = AXE.read_text() if AXE.is_file() else ""
    for path in PATHS:
        page.goto(pages.page.url + path.format(**runs))
        one.live()
        page.wait_for_timeout(200)
        page.set_viewport_size({"width": 360, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        page.set_viewport_size({"width": 1280, "height": 800})
        if not script:
            continue
        page.evaluate(script + "; undefined")
        found = page.evaluate(AXE_RUN)
        assert found == [], path
    if not script:
        pytest.skip("axe-core is not installed; `make test-web` installs it")


def test_with_the_keyboard_alone_a_person_finds_answers_cancels_and_shares(tab, pages):
    pages.open()

    async def many():
        busy = pages.busy
        top, lease = await busy.root("two hundred")
        runs = {"top": top}
        for number in range(200 if IS_FULL else 60):
            run, child = await busy.child(top, lease, f"worker {number}")
            busy.call(run, "Read", f"{number}.py")
            if number == 41:
                for _ in range(4):
                    busy.call(run, "Grep", "the same")
                runs["stuck"] = run
            elif number == 5:
                await busy.approval(child, command_request("make test"))
                runs["approve"] = run
            elif number == 6:
                await busy.approval(child, command_request("rm -rf /"))
                runs["deny"] = run
            elif number == 7:
                await busy.question(child, "Which one?")
                runs["ask"] = run
        await busy.note(lease, "x")
        return runs

    runs = pages.do(many())
    page = tab().open()
    page.wait_for_selector("text=60 subagents" if not IS_FULL else "text=200 subagents")
    keys = page.keyboard
    # The stuck one stands out among the folded ones.
    move_to(page, "worker 41")
    assert "loop" in page.text_content(".row.at .flags")
    keys.press(" ")
    page.wait_for_selector(".peek:has-text('Look at worker 41.')")
    keys.press("Escape")
    # Approve, deny and answer: a key moves to the button, Enter confirms.
    keys.press("w")
    page.wait_for_selector(".question-card:has-text('make test')")
    page.wait_for_selector("button:text-is('Approve'):enabled")
    keys.press("a")
    assert page.evaluate("document.activeElement.textContent") == "Approve"
    assert waiting_keys(pages) == 3
    keys.press("Enter")
    page.wait_for_selector("text=Approved. No process works on this run.")
    assert sent(pages, runs["approve"])["choice"] == "yes"
    keys.press("j")
    page.wait_for_selector(".question-card:has-text('rm -rf /')")
    keys.press("d")
    assert page.evaluate("document.activeElement.textContent") == "Deny"
    keys.press("Enter")
    page.wait_for_selector("text=Denied. No process works on this run.")
    assert sent(pages, runs["deny"])["choice"] == "no"
    keys.press("j")
    page.wait_for_selector(".question-card:has-text('Which one?')")
    keys.press("r")
    keys.type("the second")
    keys.press("Tab")
    keys.press("Enter")
    page.wait_for_selector("text=Answered. No process works on this run.")
    assert sent(pages, runs["ask"]) == "the second"
    # Cancel asks first, and names how many runs it stops.
    keys.press("Escape")
    page.wait_for_selector("[role=tree]")
    keys.press("Home") if page.evaluate("document.activeElement.role") == "tree" else keys.press("k")
    keys.press("c")
    count = 201 if IS_FULL else 61
    page.wait_for_selector(f"dialog:has-text('This stops {count} runs.')")
    keys.press("Escape")
    # A record is shared by its address.
    move_to(page, "worker 41")
    keys.press("Enter")
    page.wait_for_selector("h1:text-is('worker 41')")
    keys.press("2")
    page.wait_for_selector("#record-1")
    keys.press("k")
    keys.press("l")
    page.wait_for_url(f"**/run/{runs['stuck']}/transcript#*")
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector(f"#record-{page.url.partition('#')[2]}.at")


def move_to(page, label: str) -> None:
    """Move down until the current row is the one with a label."""
    for _ in range(8):
        page.keyboard.press("j")
        if label in page.text_content(".row.at"):
            return
    raise AssertionError(f"{label} is not among the first rows")


def waiting_keys(house) -> int:
    with SqliteQueries.open(house.home) as queries:
        return sum(bool(state.waits) for state in queries.live())


def sent(house, run):
    """The message that waits for a run."""
    import sqlite3

    with sqlite3.connect(house.home / "journal.db") as connection:
        (body,) = connection.execute("SELECT body FROM inbox WHERE run = ?", (run,)).fetchone()
    connection.close()
    return json.loads(body)


def test_with_reduced_motion_nothing_moves(tab, pages):
    pages.open()
    pages.do(family(pages.busy))
    page = tab(reduced_motion="reduce").open()
    assert page.evaluate("document.getAnimations().length") == 0


def test_order_changes_only_when_a_person_asks(tab, pages):
    pages.open()
    pages.do(family(pages.busy))
    page = tab().open("/?sort=newest")
    page.wait_for_selector("[role=treeitem]")
    before = list(shown_statuses(page))
    pages.do(pages.busy.root("newest of all"))
    page.wait_for_selector("button.news:has-text('1 new')")
    assert list(shown_statuses(page)) == before
    page.click("button.news")
    page.wait_for_selector("[role=treeitem]:has-text('newest of all')")
    page.check("text=hide completed")
    page.wait_for_function("!document.body.textContent.includes('passwords')")
    assert page.url.endswith("/?sort=newest&hide=completed")
