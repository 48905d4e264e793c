"""The page while runs are at work: what a person reads, points at or has chosen stays where it is."""

import pytest
from tests.interfaces.web.test_page import family, shown_statuses, tab
from tests.interfaces.web.test_page_states import change
from tests.support.browser import chromium, pages
from tests.support.busy_journal import command_request
from tests.support.command_house import until

from deputy.core.errors import Error
from deputy.core.events import Returned
from deputy.core.outcome import Failed
from deputy.core.request import Lineage
from deputy.interfaces.web.board import FIELDS

__all__ = ["chromium", "pages", "tab"]

CURRENT = ".row.at .label"


async def two_trees(busy):
    """Two roots, each with subagents; the leases by label."""
    leases = {}
    for name in ("early", "late"):
        top, lease = await busy.root(name)
        leases[name] = top, lease
        for number in range(12):
            leases[f"{name} {number}"] = await busy.child(top, lease, f"{name} {number}")
    return leases


def test_the_current_row_stays_the_same_run_when_rows_come_above_it(tab, pages):
    pages.open()
    leases = pages.do(two_trees(pages.busy))
    page = tab().open()
    page.wait_for_selector("[role=treeitem]:has-text('early 11')")
    for _ in range(15):
        page.keyboard.press("j")
    assert page.text_content(CURRENT) == "late 0"
    pages.do(pages.busy.child(*leases["early"], "one more"))
    page.wait_for_selector("[role=treeitem]:has-text('one more')")
    assert page.text_content(CURRENT) == "late 0"
    current = page.get_attribute("[role=tree]", "aria-activedescendant")
    assert page.text_content(f"#{current} .label") == "late 0"


def test_rows_on_the_screen_do_not_move_when_rows_come_above_them(tab, pages):
    pages.open()
    leases = pages.do(two_trees(pages.busy))
    page = tab(viewport={"width": 1280, "height": 400}).open()
    page.wait_for_selector("[role=treeitem]:has-text('early 5')")
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    row = page.locator("[role=treeitem]:has-text('late 9')")
    row.wait_for()
    before = row.bounding_box()["y"]
    pages.do(pages.busy.child(*leases["early"], "one more"))
    until(
        lambda: (
            page.evaluate("document.querySelector('[role=tree]').style.height") == f"{27 * 36}px"
            or page.wait_for_timeout(20)
        )
    )
    until(lambda: abs(row.bounding_box()["y"] - before) < 2 or page.wait_for_timeout(20))


def test_the_buttons_and_the_title_of_a_run_at_work_stay_as_they_are(tab, pages):
    pages.open()

    async def begin():
        _, asking = await pages.busy.root("asking")
        await pages.busy.question(asking, "Which?")
        return await pages.busy.root("work\u202eing")

    run, lease = pages.do(begin())
    page = tab().open(f"/run/{run}")
    button = page.wait_for_selector("button:text-is('Cancel…')")
    until(lambda: page.title() == "(1) working · Deputy" or page.wait_for_timeout(20))
    button.focus()
    pages.do(pages.busy.turns(lease, 3))
    page.wait_for_selector(".facts:has-text('3 turns')")
    assert button.evaluate("one => one.isConnected && one === document.activeElement")
    assert page.title() == "(1) working · Deputy"


def test_a_button_that_has_the_focus_keeps_it_while_the_head_of_the_run_is_another_one(tab, pages):
    pages.open()
    run, lease = pages.do(pages.busy.root("working"))
    page = tab().open(f"/run/{run}")
    page.focus("button:text-is('Cancel…')")
    pages.do(pages.busy.question(lease, "Which?"))
    page.wait_for_selector("a:text-is('Answer')")
    assert page.evaluate("document.activeElement.textContent") == "Cancel…"


def test_a_link_that_has_the_focus_keeps_it_while_the_overview_is_read_again(tab, pages):
    pages.open()

    async def begin():
        top, lease = await pages.busy.root("parent")
        child, _ = await pages.busy.child(top, lease, "the first")
        return top, lease, child

    run, lease, child = pages.do(begin())
    page = tab().open(f"/run/{run}")
    page.focus(f".subagents a[href='/run/{child}']")
    pages.do(pages.busy.child(run, lease, "the second"))
    page.wait_for_selector("h2:text-is('2 subagents')")
    assert page.evaluate("document.activeElement.textContent") == "the first"


def test_there_is_one_polite_live_region_and_it_says_that_the_server_is_away(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    one = tab()
    page = one.open()
    polite = "document.querySelectorAll('[role=status], [role=log], [aria-live=polite]').length"
    for path in ("/", f"/tree/{runs['audit']}", f"/run/{runs['audit']}/transcript", "/waiting"):
        page.goto(pages.page.url + path)
        one.live()
        assert page.evaluate(polite) == 1, path
    pages.stop_serving()
    page.wait_for_selector("[aria-live=polite]:text-is('offline')", state="attached")
    # Without a connection nothing can be answered.
    page.wait_for_selector("button:text-is('Deny'):disabled")
    pages.serve()
    page.wait_for_selector("button:text-is('Deny'):enabled")


def test_a_run_that_is_no_longer_on_the_board_has_its_figures(tab, pages, monkeypatch):
    monkeypatch.setattr("deputy.interfaces.web.board.ENDED", 1)
    pages.open()

    async def ended(label):
        run, lease = await pages.busy.root(label, command="run")
        await pages.busy.turns(lease, 2, cost=0.5)
        await pages.busy.complete(run, lease)
        return run

    old = pages.do(ended("old"))
    pages.do(ended("new"))
    pages.stop_serving()
    pages.serve()
    one = tab()
    page = one.open()
    page.wait_for_selector("[role=treeitem]:has-text('new')")
    assert page.locator("[role=treeitem]").count() == 1
    page.goto(f"{pages.page.url}/run/{old}")
    page.wait_for_selector("h1:text-is('old')")
    assert "5.7k in, 395 out, $1.00" in page.text_content(".facts")
    until(lambda: page.title() == "old · Deputy" or page.wait_for_timeout(20))


def test_every_error_of_a_run_is_shown_with_its_remedy(tab, pages):
    pages.open()

    async def failed():
        run, lease = await pages.busy.root("failing")
        errors = tuple(
            Error(type="x", code=f"E{at}", message=f"Error {at}.", recoverable=True, recommendation=f"Remedy {at}.")
            for at in (1, 2)
        )
        ended = Failed(lineage=Lineage.root(run), summary="It failed.", errors=errors)
        await pages.busy.journal.finish(lease, "returned:0", Returned(outcome=ended))
        return run

    page = tab().open(f"/run/{pages.do(failed())}")
    page.wait_for_selector(".why")
    assert page.eval_on_selector_all(".why > p", "all => all.map(one => one.textContent)") == [
        "Error 1.",
        "Remedy 1.",
        "Error 2.",
        "Remedy 2.",
    ]


def test_a_question_in_a_damaged_journal_can_be_read_and_a_newer_journal_is_not_an_empty_one(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    pages.stop_serving()
    change(pages, f"UPDATE runs SET sum = x'00' WHERE run = '{runs['passwords']}'")
    pages.serve()
    page = tab().open(f"/waiting#{runs['prices']}%20ask%3A0")
    page.wait_for_selector(".exact .line.added:has-text('round(order.total * 99, 2)')")
    page.goto(f"{pages.page.url}/waiting#{runs['database']}%20ask%3A0")
    page.wait_for_selector(".exact.words:has-text('Which database?')")
    assert page.locator(".question-card button, .question-card textarea").count() == 0
    pages.stop_serving()
    change(pages, "PRAGMA user_version = 9999")
    pages.serve()
    page.goto(pages.page.url)
    page.wait_for_selector(".notice:has-text('The journal is of a newer version')")
    assert page.locator("text=No runs yet").count() == 0


@pytest.mark.parametrize(
    ("path", "click", "place"),
    [("transcript", "#record-1 button", ".record .body"), ("notes", "", ".run-body"), ("diff", "", ".run-body")],
)
def test_what_cannot_be_read_says_why(tab, pages, path, click, place):
    pages.open()
    run, _ = pages.do(pages.busy.root("work"))
    one = tab()
    for asked in ("**/api/**/notes", "**/api/**/diff", "**/records*bodies=1"):
        one.page.route(asked, lambda route: route.abort())
    page = one.open(f"/run/{run}/{path}")
    if click:
        page.click(click)
    page.wait_for_selector(f"{place}:has-text('The server does not answer.')")


def test_all_subagents_of_a_subagent_are_one_link_away(tab, pages):
    pages.open()

    async def many():
        top, lease = await pages.busy.root("top")
        middle, below = await pages.busy.child(top, lease, "middle")
        for number in range(101):
            await pages.busy.child(middle, below, f"leaf {number}")
        return middle

    page = tab().open(f"/run/{pages.do(many())}")
    page.click("a:text-is('All 101 on the board')")
    page.wait_for_selector("[role=treeitem]:has-text('101 subagents')")


def test_the_peek_is_above_the_bar_of_a_selection(tab, pages):
    pages.open()
    pages.do(family(pages.busy))
    page = tab().open()
    page.wait_for_selector("[role=treeitem]:has-text('secrets')")
    for key in ("j", "x", " "):
        page.keyboard.press(key)
    page.wait_for_selector(".peek .last li")
    peek, bar = (page.locator(name).bounding_box() for name in (".peek", ".selection"))
    assert peek["y"] + peek["height"] <= bar["y"]


def test_a_text_that_is_selected_stays_while_records_arrive(tab, pages):
    pages.open()
    run, lease = pages.do(pages.busy.root("work", prompt="Copy these words."))
    one = tab()
    one.page.clock.install()
    page = one.open(f"/run/{run}")
    page.wait_for_selector(".prompt")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.prompt'))")
    pages.do(pages.busy.turns(lease, 1))
    page.wait_for_selector(".facts:has-text('1 turn')")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/api/runs/" in request.url else None)
    page.clock.run_for(5000)
    # A request of the page would have been sent before this one.
    page.evaluate("fetch('/assets/dom.js').then(file => file.text())")
    assert asked == []
    assert page.evaluate("String(getSelection())") == "Copy these words."
    page.evaluate("getSelection().removeAllRanges()")
    page.clock.run_for(5000)
    page.wait_for_selector("h2:text-is('Turns')")


def test_a_patch_that_cannot_be_read_says_why(tab, pages):
    pages.open()
    run, _ = pages.do(pages.busy.root("work"))
    one = tab()
    files = [{"path": "a.py", "added": 1, "removed": 0, "is_withheld": False}]
    found = {"branch": "deputy/work", "base": "0" * 40, "files": files, "more": 0}
    one.page.route("**/api/**/diff", lambda route: route.fulfill(json=found))
    one.page.route("**/api/**/diff?path=*", lambda route: route.abort())
    page = one.open(f"/run/{run}/diff")
    page.wait_for_selector(".file:has-text('a.py'):has-text('The server does not answer.')")


@pytest.mark.parametrize("size", [(1280, 800), (360, 740)])
def test_among_many_questions_the_chosen_one_is_on_the_screen(tab, pages, size):
    pages.open()

    async def ask():
        runs = [await pages.busy.root(f"asking {number}") for number in range(30)]
        for _, lease in runs:
            await pages.busy.approval(lease, command_request("make test"))
        return [run for run, _ in runs]

    runs = pages.do(ask())
    width, height = size
    page = tab(viewport={"width": width, "height": height}).open(f"/waiting#{runs[20]}%20ask%3A0")

    def is_shown(label):
        for name in (
            f".waiting-list [aria-current]:has-text('{label}')",
            f".question-card .crumbs:has-text('{label}')",
        ):
            page.wait_for_selector(name)
            box = page.locator(name).bounding_box()
            assert 0 <= box["y"] <= height - box["height"], (name, box)

    is_shown("asking 20")
    page.keyboard.press("j")
    is_shown("asking 21")


def test_every_part_of_a_run_can_be_chosen_on_a_phone_without_scrolling(tab, pages):
    pages.open()
    run, _ = pages.do(pages.busy.root("work"))
    page = tab(viewport={"width": 360, "height": 740}).open(f"/run/{run}/events")
    page.wait_for_selector("#record-1")
    assert page.evaluate("(tabs => tabs.scrollWidth - tabs.clientWidth)(document.querySelector('.tabs'))") == 0


def test_a_home_without_runs_shows_no_filter_and_no_head_of_a_table(tab, pages):
    pages.open(with_journal=False)
    page = tab().open()
    page.wait_for_selector("text=No runs yet")
    assert page.locator(".filters:visible, .columns:visible").count() == 0
    pages.write()
    pages.do(pages.busy.root("the first"))
    page.wait_for_selector(".columns")
    page.wait_for_selector("[role=treeitem]:has-text('the first')")


def test_a_tab_that_reads_its_board_misses_nothing_and_shows_nothing_older(tab, pages):
    """Its board is older than a question, whose look has two frames, and newer than a frame of an earlier server."""
    pages.open()
    _, lease = pages.do(pages.busy.root("work"))
    first = tab()
    first.open()
    second = first.context.new_page()
    held = []
    second.route("**/api/board", lambda route: held.append((route, route.fetch())))
    second.goto(pages.page.url)
    until(lambda: held or second.wait_for_timeout(20))
    pages.do(pages.busy.question(lease, "Which?"))
    first.page.wait_for_selector("[role=treeitem][data-status=waiting]")
    script = """async (status) => {
        const { store } = await import('/assets/store.js');
        const frame = structuredClone(store.early.find((one) => one.event === 'rows'));
        for (const row of frame.data.rows) row[status] = 'queued';
        store.early.push({ ...frame, id: '0.0.0.earlier.9', look: '9' });
        return store.early.map((one) => one.event);
    }"""
    assert {"rows", "waiting"} <= set(second.evaluate(script, FIELDS.index("status")))
    route, response = held[0]
    route.fulfill(response=response)
    second.wait_for_selector(".asking:has-text('Which?')")
    second.wait_for_selector("[role=treeitem]:has-text('work')")
    assert shown_statuses(second) == {"work": "waiting"}
