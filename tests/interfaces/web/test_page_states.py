"""The page in a real browser: every state that has a design, filters, keys, notifications and downloads."""

import json
import sqlite3

import pytest
from msgspec import Raw
from tests.interfaces.web.test_page import AXE_RUN, family, shown_statuses, tab
from tests.interfaces.web.test_web_api import repository
from tests.support.browser import AXE, IS_FULL, chromium, pages
from tests.support.busy_journal import command_request
from tests.support.command_house import until
from tests.support.scripts import call, talk, turn

from deputy.core.events import QuestionAnswered
from deputy.core.progress import Progress
from deputy.core.state import answer_key
from deputy.core.task import Task

__all__ = ["chromium", "pages", "tab"]

LABELS = "rows => rows.map(row => row.querySelector('.label').textContent)"


def change(house, statement: str) -> None:
    """Change the file of the journal, as a fault or another version would."""
    with sqlite3.connect(house.home / "journal.db") as connection:
        connection.execute(statement)
    connection.close()


# --- states -----------------------------------------------------------------------------------------------------------


class Look:
    """Looks at one state: the page has no violation of axe, and does not scroll sideways on a phone."""

    def __init__(self, page) -> None:
        self.page = page
        self.script = AXE.read_text() if AXE.is_file() else ""

    def at(self, state: str) -> None:
        page = self.page
        if self.script:
            page.evaluate(self.script + "; undefined")
            assert page.evaluate(AXE_RUN) == [], state
        page.set_viewport_size({"width": 360, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, state
        page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_state_is_explained_and_accessible(tab, pages, scheme):
    if scheme == "dark" and not IS_FULL:
        pytest.skip("only in `make test-web`")
    pages.open(with_journal=False)
    one = tab(color_scheme=scheme, reduced_motion="reduce")
    page = one.page
    look = Look(page)
    page.goto(pages.page.url)
    page.wait_for_selector("text=Token needed")
    look.at("no token")
    page.route("**/api/board", lambda _: None)
    page.goto(pages.page.url_with_token)
    page.wait_for_selector("main:has-text('Connecting…')")
    look.at("connecting")
    page.unroute("**/api/board")
    page.reload()
    one.live()
    page.wait_for_selector("text=No runs yet")
    look.at("no journal")
    pages.write()
    pages.do(ended(pages.busy))
    page.wait_for_selector("text=Nothing is running now. These ended last:")
    look.at("nothing live")
    runs = pages.do(family(pages.busy))
    page.wait_for_selector("[role=treeitem]:has-text('secrets')")
    page.keyboard.press("?")
    page.wait_for_selector("dialog:has-text('next that waits')")
    look.at("help")
    page.keyboard.press("Escape")
    for key in "jjjjx":
        page.keyboard.press(key)
    page.wait_for_selector(".selection:has-text('1 selected')")
    page.keyboard.press(" ")
    page.wait_for_selector(".peek .last li")
    look.at("a selection and a peek")
    page.keyboard.press("c")
    page.wait_for_selector("dialog:has-text('Cancel')")
    look.at("a question before a cancel")
    page.keyboard.press("Escape")
    page.goto(f"{pages.page.url}/?q=nothing-has-this-name")
    page.wait_for_selector("text=No run matches the filter.")
    look.at("no match")
    page.goto(f"{pages.page.url}/run/sess_0_pruned")
    page.wait_for_selector("text=This run is not in the journal")
    look.at("a pruned run")
    page.goto(f"{pages.page.url}/run/{runs['prices']}")
    page.wait_for_selector("a:text-is('Review')")
    pages.stop_serving()
    page.wait_for_selector(".offline:has-text('actions are disabled')")
    page.wait_for_selector("button:text-is('Pin'):disabled")
    look.at("offline")
    pages.serve()
    one.live()
    page.wait_for_selector("button:text-is('Pin'):enabled")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_journal_that_is_damaged_or_newer_is_explained_and_nothing_can_be_changed(tab, pages, scheme):
    if scheme == "dark" and not IS_FULL:
        pytest.skip("only in `make test-web`")
    pages.open()
    runs = pages.do(family(pages.busy))
    pages.stop_serving()
    change(pages, f"UPDATE runs SET sum = x'00' WHERE run = '{runs['passwords']}'")
    pages.serve()
    one = tab(color_scheme=scheme)
    page = one.open()
    look = Look(page)
    page.wait_for_selector(".notice:has-text('The journal is damaged')")
    assert "Nothing can be changed from here." in page.text_content(".notice")
    assert page.text_content(".notice code") == "deputy doctor --repair"
    # A path is shown as it is.
    first_letter = "getComputedStyle(document.querySelector('.notice p'), '::first-letter').textTransform"
    assert page.evaluate(first_letter) == "none"
    refused = "import('/assets/store.js').then(({ post }) => post('/api/cancel', { ids: ['x'] })).catch(String)"
    assert page.evaluate(refused).count("Run `deputy doctor --repair`") == 1
    # What can be read is shown.
    assert len(shown_statuses(page)) == len(runs)
    look.at("damaged")
    for key in "kcx":
        page.keyboard.press(key)
    page.wait_for_selector(".toast:has-text('nothing can be changed from here')")
    page.wait_for_selector(".selection:has-text('1 selected')")
    assert page.locator("dialog, .selection button:enabled:not(.plain)").count() == 0
    page.goto(f"{pages.page.url}/run/{runs['payments']}")
    page.wait_for_selector("button:text-is('Cancel…'):disabled")
    page.keyboard.press("c")
    page.wait_for_selector(".toast:has-text('nothing can be changed from here')")
    assert page.locator("dialog").count() == 0
    page.goto(f"{pages.page.url}/waiting")
    page.wait_for_selector(".question-card:has-text('The journal is damaged')")
    assert page.locator(".question-card button:enabled").count() == 0
    pages.stop_serving()
    change(pages, "PRAGMA user_version = 9999")
    pages.serve()
    page.goto(pages.page.url)
    page.wait_for_selector(".notice:has-text('The journal is of a newer version')")
    assert page.text_content(".notice").count("Upgrade Deputy") == 1
    look.at("newer")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_became_of_a_question_is_explained_and_accessible(tab, pages, scheme):
    """Answered here, answered elsewhere with and without a process at work, and asked something else meanwhile."""
    if scheme == "dark" and not IS_FULL:
        pytest.skip("only in `make test-web`")
    pages.open()

    async def ask(label):
        run, lease = await pages.busy.root(label)
        await pages.busy.approval(lease, command_request("make test"))
        return run, lease

    (here, _), (waits, _), (taken, lease) = (pages.do(ask(label)) for label in ("here", "waits", "taken"))
    denied = json.dumps({"choice": "no", "digest": command_request("make test").digest}).encode()

    async def answer_waits():
        await pages.busy.journal.send(waits, "approval", answer_key("ask:0"), denied)

    async def answer_is_taken():
        await pages.busy.journal.append(lease, "ask:0", QuestionAnswered(topic="approval", body=Raw(denied)))
        await pages.busy.question(lease, "Which one then?", key="ask:1")

    one = tab(color_scheme=scheme, reduced_motion="reduce")
    page = one.open()
    look = Look(page)
    for run, meanwhile, said in (
        (here, None, "Approved. No process works on this run."),
        (waits, answer_waits, "Another answer came first. No process works on this run."),
        (taken, answer_is_taken, "Another answer came first: denied."),
    ):
        page.goto(f"{pages.page.url}/waiting#{run}%20ask%3A0")
        one.live()
        page.wait_for_selector(f".question-card a[href='/run/{run}']")
        page.wait_for_selector("button:text-is('Approve'):enabled")
        if meanwhile is not None:
            # Another answer arrives between the click and the server.
            page.route("**/answer", lambda route, _, do=meanwhile: (pages.do(do()), route.continue_()))
        page.click("button:text-is('Approve')")
        page.wait_for_selector(f".result:has-text('{said}')")
        page.unroute("**/answer")
        look.at(said)
    assert "It asks now: Which one then?" in page.text_content(".result")
    page.goto(f"{pages.page.url}/waiting#{waits}%20ask%3A0")
    page.wait_for_selector("text=It is answered. No process works on this run.")
    assert page.locator("button:text-is('Resume it')").is_enabled()
    look.at("answered, no process")


async def ended(busy) -> None:
    """A run that has ended."""
    top, lease = await busy.root("over")
    await busy.complete(top, lease)


def test_when_nothing_is_live_the_runs_that_ended_last_are_shown(tab, pages):
    pages.open()
    pages.do(ended(pages.busy))
    page = tab().open()
    page.wait_for_selector("text=Nothing is running now. These ended last:")
    assert shown_statuses(page) == {"over": "completed"}
    said, names = (page.locator(name).bounding_box()["y"] for name in (".empty", ".columns"))
    assert said < names


# --- filters and keys -------------------------------------------------------------------------------------------------


def test_filters_are_in_the_address(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    pages.do(pages.busy.root("another tree"))
    one = tab()
    page = one.open()
    for query, labels in (
        ("q=Passw", ["audit", "passwords"]),
        ("status=failed", ["audit", "secrets"]),
        ("flag=loop", ["audit", "payments"]),
        (f"root={runs['audit']}&status=partial", ["audit", "logging"]),
        ("flag=loop&sort=cost", ["payments"]),
    ):
        page.goto(f"{pages.page.url}/?{query}")
        one.live()
        assert page.eval_on_selector_all("[role=treeitem]", LABELS) == labels, query
    # A key goes to the filter; letters in a field are only letters.
    page.goto(pages.page.url)
    one.live()
    page.keyboard.press("/")
    page.keyboard.type("xcawd")
    assert page.url == f"{pages.page.url}/?q=xcawd"
    assert page.locator("dialog, .selection:visible").count() == 0
    # Chromium empties a search field on Escape; then the filter would be another one than the field says.
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.role") == "tree"
    assert page.input_value("input[type=search]") == "xcawd"


def test_keys_fold_open_select_export_and_go_through_siblings(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    page = tab().open()
    keys = page.keyboard
    page.wait_for_selector("[role=treeitem]:has-text('secrets')")
    keys.press("h")
    until(lambda: page.locator("[role=treeitem]").count() == 1)
    assert page.get_attribute("[role=treeitem]", "aria-expanded") == "false"
    keys.press("l")
    page.wait_for_selector("[role=treeitem]:has-text('secrets')")
    # The first key shows the current row.
    keys.press("j")
    page.wait_for_selector(".row.at:has-text('audit')")
    keys.press("j")
    keys.press("]")
    page.wait_for_selector(".row.at:has-text('prices')")
    keys.press("[")
    page.wait_for_selector(".row.at:has-text('passwords')")
    keys.press("x")
    keys.press("j")
    keys.press("x")
    page.wait_for_selector(".selection:has-text('2 selected')")
    assert page.locator("[role=treeitem][aria-selected=true]").count() == 2
    keys.press("Escape")
    page.wait_for_selector(".selection", state="hidden")
    keys.press("k")
    with page.expect_download() as download:
        keys.press("e")
    assert download.value.suggested_filename == f"{runs['passwords']}.zip"
    keys.press("Enter")
    page.wait_for_selector("h1:has-text('passwords')")
    with page.expect_download() as download:
        page.click("button:text-is('Report')")
    assert download.value.suggested_filename == f"{runs['passwords']}.html"
    keys.press("]")
    page.wait_for_selector("h1:has-text('prices')")
    keys.press("t")
    page.wait_for_selector("h1:has-text('Timeline')")
    keys.press("Escape")
    # The row that was current when the board was left is current again.
    page.wait_for_selector(".row.at:has-text('passwords')")
    keys.press("Enter")
    page.wait_for_selector("h1:has-text('passwords')")


def test_the_board_is_found_again_with_its_filter_and_its_first_row(tab, pages):
    pages.open()
    pages.do(family(pages.busy))
    one = tab()
    page = one.open("/?status=failed")
    page.wait_for_selector("[role=treeitem]:has-text('secrets')")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:text-is('audit')")
    # The focus is in the page, and not lost with the row.
    assert page.evaluate("document.activeElement.tagName") == "MAIN"
    page.keyboard.press("Escape")
    page.wait_for_url("**/?status=failed")
    assert page.evaluate("document.activeElement.role") == "tree"
    assert page.text_content(".row.at .label") == "audit"


def test_keys_without_a_run_do_nothing(tab, pages):
    pages.open()
    pages.do(family(pages.busy))
    page = tab().open("/?q=nothing-has-this-name")
    page.wait_for_selector("text=No run matches the filter.")
    for key in "cr":
        page.keyboard.press(key)
    assert page.locator("dialog, .toast").count() == 0


def test_the_key_of_a_button_that_is_not_there_does_nothing(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    page = tab().open(f"/run/{runs['payments']}")
    page.wait_for_selector("button:text-is('Cancel…')")
    assert page.locator("button:text-is('Resume')").count() == 0
    page.keyboard.press("r")
    assert page.locator("dialog").count() == 0
    page.goto(f"{pages.page.url}/run/unknown")
    page.wait_for_selector("text=not in the journal")
    page.keyboard.press("r")
    assert page.locator("dialog").count() == 0


def test_a_run_that_was_opened_while_the_server_was_away_is_read_when_it_answers(tab, pages):
    pages.open()
    pages.do(family(pages.busy))
    one = tab()
    page = one.open()
    page.wait_for_selector("[role=treeitem]:has-text('secrets')")
    page.route("**/api/runs/*", lambda route: route.abort())
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=The server does not answer.")
    page.keyboard.press("2")
    page.wait_for_url("**/transcript")
    page.wait_for_selector("text=The server does not answer.")
    page.unroute("**/api/runs/*")
    for state in ("offline", "live"):
        page.evaluate("state => import('/assets/store.js').then(found => found.store.connected(state))", state)
    page.wait_for_selector("#record-1")


def test_a_linked_record_is_open_and_what_is_opened_low_on_the_screen_can_be_read(tab, pages):
    pages.open()

    async def long():
        run, lease = await pages.busy.root("long")
        for number in range(120):
            await pages.busy.note(lease, f"note {number}\n\nand more\n\n" * 4, key=f"n:{number}")
        return run

    run = pages.do(long())
    page = tab().open(f"/run/{run}/transcript#60")
    page.wait_for_selector("#record-60 .body:has-text('note 57')")
    # From a record that is not on the screen, a key goes to one that is.
    page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    page.wait_for_selector("#record-122:has-text('note 119')")
    page.keyboard.press("k")
    page.wait_for_selector("#record-121.at, #record-122.at, #record-120.at")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_selector("#record-5:has-text('note 2')")
    page.keyboard.press("k")
    page.wait_for_selector(".record.at")
    page.keyboard.press("l")
    page.wait_for_selector(".record.at .body p")
    until(lambda: page.evaluate(BODY_END) <= 800 or page.wait_for_timeout(20))


BODY_END = "document.querySelector('.record.at .body').getBoundingClientRect().bottom"


def test_dragging_over_the_timeline_zooms_and_opens_nothing(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    page = tab().open(f"/tree/{runs['audit']}")
    page.wait_for_selector(".lane:has-text('secrets')")
    # The widest of all calls: a drag over a part of it ends where it began.
    rects = page.locator(".lane-spans rect:not(.idle)").all()
    box = max((rect.bounding_box() for rect in rects), key=lambda one: one["width"])
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 5, steps=4)
    assert page.locator(".brush").is_visible()
    page.mouse.up()
    page.wait_for_selector("button:text-is('Whole time')")
    assert page.url == f"{pages.page.url}/tree/{runs['audit']}"
    page.click("button:text-is('Whole time')")
    # A click is lost when the bar is drawn again between press and release: the time goes on.
    for _ in range(5):
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 5)
        page.wait_for_timeout(300)
        if "/transcript#" in page.url:
            break
    page.wait_for_url("**/transcript#*")


def test_a_selection_is_started_again_after_a_question(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    page = tab().open()
    asked = []
    page.route("**/again", lambda route: (asked.append(route.request.url), route.fulfill(status=202, json={})))
    page.wait_for_selector("[role=treeitem]:has-text('secrets')")
    for key in "jjxjjx":
        page.keyboard.press(key)
    page.click(".selection button:text-is('Again…')")
    page.click("dialog:has-text('Start 2 runs again?') button:text-is('Start')")
    until(lambda: len(asked) == 2 or page.wait_for_timeout(20))
    assert asked == [f"{pages.page.url}/api/runs/{runs[label]}/again" for label in ("passwords", "tests")]


def test_the_diff_of_a_run_is_shown_file_by_file(tab, pages, house):
    repository(house.workspace)
    written = call("Write", path="b.py", content="three\n"), call("Edit", path="a.py", old="two", new="2")
    house.script(talk(turn("", *written), turn("done")))
    task = Task(label="writer", prompt="Write.", tools=("Read", "Write", "Edit"))
    (outcome,) = pages.do(house.delegate(task))
    pages.open(with_journal=False)
    page = tab().open(f"/run/{outcome.session_id}/diff")
    page.wait_for_selector(".file:has-text('a.py') .line.removed:has-text('-two')")
    page.wait_for_selector(".file:has-text('b.py') .line.added:has-text('+three')")
    assert "2 changed files" in page.text_content(".diff-page")
    assert page.text_content(".file:has-text('a.py') summary") == "a.py +1 −1"
    Look(page).at("diff")


def test_a_timeline_that_is_not_read_yet_can_be_left(tab, pages):
    pages.open()
    runs = pages.do(family(pages.busy))
    one = tab()
    one.page.route("**/api/tree/*", lambda _: None)
    page = one.open(f"/tree/{runs['audit']}")
    page.wait_for_selector("h1:has-text('Timeline')")
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    page.wait_for_selector("[role=tree]")


# --- what is new ------------------------------------------------------------------------------------------------------

NOTE_NOTIFICATIONS = """
window.shown = [];
window.Notification = class { constructor(title, options) { window.shown.push([title, options.body]); }
  static permission = 'default'; static async requestPermission() { Notification.permission = 'granted'; } };
"""


def test_each_question_is_one_notification_if_a_person_wants_them(tab, pages):
    pages.open()
    one = tab()
    one.page.add_init_script(NOTE_NOTIFICATIONS)
    page = one.open()

    async def ask(label):
        _, lease = await pages.busy.root(label)
        await pages.busy.question(lease, f"What does {label} mean?")

    pages.do(ask("first"))
    until(lambda: page.title().startswith("(1) "))
    assert page.evaluate("window.shown") == []
    page.click("button:text-is('Notify me')")
    page.click("dialog button:text-is('Allow')")
    page.wait_for_selector(".bell", state="hidden")
    pages.do(ask("second"))
    until(lambda: page.title().startswith("(2) "))
    pages.do(ask("third"))
    until(lambda: page.title().startswith("(3) "))
    assert page.evaluate("window.shown") == [
        ["second asks", "What does second mean?"],
        ["third asks", "What does third mean?"],
    ]


def test_screen_readers_hear_at_most_one_message_in_five_seconds(tab, pages):
    pages.open()
    # Without a token there is no stream, whose news would be messages too.
    page = tab().page
    page.clock.install()
    page.goto(pages.page.url)
    page.wait_for_selector("text=Token needed")
    page.clock.pause_at(page.evaluate("Date.now()") + 60_000)
    page.evaluate(
        """() => { window.heard = []; const region = document.querySelector('[aria-live=polite]');
        new MutationObserver(() => window.heard.push(region.textContent)).observe(region, {childList: true}); }"""
    )
    say = "text => import('/assets/actions.js').then(found => found.say(text))"
    for text in ("one", "two", "three"):
        page.evaluate(say, text)
        page.clock.run_for(1000)
    assert page.evaluate("window.heard") == ["one"]
    page.clock.run_for(3000)
    assert page.evaluate("window.heard") == ["one", "three"]


def test_a_transcript_follows_its_end_only_while_a_person_is_there(tab, pages):
    pages.open()

    async def begin():
        top, lease = await pages.busy.root("long")
        for number in range(60):
            await pages.busy.note(lease, f"note {number}", key=f"n:{number}")
        return top, lease

    async def more(first, *texts):
        for number in range(first, first + 3):
            await pages.busy.note(lease, f"note {number}", key=f"n:{number}")
        pages.busy.show(top, *(Progress(event="text", label="x", content=text) for text in texts))

    top, lease = pages.do(begin())
    page = tab().open(f"/run/{top}/transcript")
    page.wait_for_selector("#record-1")
    pages.do(more(60))
    page.wait_for_selector("button.news:has-text('↓ 3 new')")
    assert page.evaluate("scrollY") == 0
    page.keyboard.press("f")
    page.wait_for_selector("#record-65:has-text('note 62')")
    pages.do(more(63, "The live ", "turn streams."))
    page.wait_for_selector(".writing:has-text('The live turn streams.')")
    page.wait_for_selector("#record-68:has-text('note 65')")
    until(lambda: page.evaluate("document.documentElement.scrollHeight - innerHeight - scrollY") < 60)
