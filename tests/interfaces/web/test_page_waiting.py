"""The page of questions: what a person reads or types stays, and a card changes only with a word."""

import time

from msgspec import Raw
from tests.interfaces.web.test_page import tab
from tests.support.browser import chromium, pages
from tests.support.busy_journal import command_request
from tests.support.command_house import until

from deputy.core.events import QuestionAnswered

__all__ = ["chromium", "pages", "tab"]


async def ask(busy, *labels):
    """Runs that ask in words; with their leases, by label."""
    asked = {}
    for label in labels:
        asked[label] = await busy.root(label)
        await busy.question(asked[label][1], f"What does {label} mean?")
    return asked


async def answered(busy, lease):
    """Another process answers."""
    await busy.journal.append(lease, "ask:0", QuestionAnswered(topic="answer", body=Raw(b'"this"')))


def shown(page, label: str) -> None:
    page.wait_for_selector(f".question-card .crumbs:has-text('{label}')")


def test_a_question_with_an_earlier_end_does_not_take_the_place_of_the_one_being_answered(tab, pages):
    pages.open()
    pages.do(ask(pages.busy, "first"))
    page = tab().open("/waiting")
    page.fill("textarea", "Because ")

    async def urgent():
        _, lease = await pages.busy.root("urgent")
        await pages.busy.approval(lease, command_request("rm -rf build"), until=time.time() + 600)

    pages.do(urgent())
    page.wait_for_selector(".waiting-list li >> nth=1")
    page.keyboard.type("jka")
    assert page.input_value("textarea") == "Because jka"
    shown(page, "first")


def test_after_an_answer_comes_the_next_question_of_the_list(tab, pages):
    pages.open()
    asked = pages.do(ask(pages.busy, "one", "two", "three"))
    page = tab().open("/waiting")
    shown(page, "one")
    page.keyboard.press("j")
    shown(page, "two")
    pages.do(answered(pages.busy, asked["two"][1]))
    shown(page, "three")
    assert page.url == f"{pages.page.url}/waiting#{asked['three'][0]}%20ask%3A0"


def test_a_question_that_is_answered_elsewhere_is_left_with_a_word_and_the_focus_stays_at_the_card(tab, pages):
    pages.open()
    asked = pages.do(ask(pages.busy, "one", "two"))
    page = tab().open("/waiting")
    page.focus("button:text-is('Answer')")
    pages.do(answered(pages.busy, asked["one"][1]))
    page.wait_for_selector(".toast:has-text('one: the question was answered elsewhere, or its run ended.')")
    shown(page, "two")
    assert page.evaluate("document.activeElement.className") == "card"


def test_what_is_typed_while_the_question_is_answered_elsewhere_stays(tab, pages):
    pages.open()
    asked = pages.do(ask(pages.busy, "one", "two"))
    page = tab().open("/waiting")
    page.focus("textarea")
    page.keyboard.type("Because ")
    pages.do(answered(pages.busy, asked["one"][1]))
    page.wait_for_selector(".toast:has-text('answered elsewhere')")
    page.keyboard.type("jka")
    assert page.input_value("textarea") == "Because jka"
    assert page.locator("button:text-is('Answer')").is_disabled()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    shown(page, "two")


def test_enter_in_the_text_of_a_call_stays_on_the_page(tab, pages):
    pages.open()

    async def approval():
        _, lease = await pages.busy.root("asking")
        await pages.busy.approval(lease, command_request("make test"))

    pages.do(approval())
    page = tab().open("/waiting")
    page.focus(".exact")
    page.keyboard.press("Enter")
    page.keyboard.press("a")
    assert page.evaluate("document.activeElement.textContent") == "Approve"
    page.keyboard.press("Enter")
    page.wait_for_selector(".result:has-text('Approved.')")
    # The button is gone, and keys still have a place.
    assert page.evaluate("document.activeElement.className") == "card"


async def long_command(busy):
    """An approval whose text is some screens long."""
    _, lease = await busy.root("asking")
    await busy.approval(lease, command_request("\n".join(f"step {number}" for number in range(400))))


FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
AT_END = "text => text.scrollTop + text.clientHeight > text.scrollHeight - 2"
# As browsers animate a key, where they do.
MOVE_TO_END = """
text => new Promise(done => {
  const move = () => {
    text.scrollTop += text.clientHeight;
    const isThere = text.scrollTop + text.clientHeight > text.scrollHeight - 2;
    requestAnimationFrame(isThere ? () => requestAnimationFrame(done) : move);
  };
  move();
})
"""


def test_a_movement_to_the_end_in_many_frames_does_not_show_what_is_before_it(tab, pages):
    pages.open()
    pages.do(long_command(pages.busy))
    page = tab().open("/waiting")
    page.wait_for_selector(".seen:has-text('%')")
    text = page.locator(".exact")
    text.evaluate(MOVE_TO_END)
    assert text.evaluate(AT_END)
    assert page.locator("button:text-is('Approve'):disabled, button:has-text('Always'):disabled").count() == 2
    # Where it rests counts: what is unread is before it.
    page.click("button:text-is('Next unread')")
    assert not text.evaluate(AT_END)
    for _ in range(40):
        page.keyboard.press("PageDown")
        page.wait_for_timeout(260)
        if page.locator("button:text-is('Approve')").is_enabled():
            break
    assert page.text_content(".seen") == "You have seen all of it."


def test_what_is_below_the_window_has_not_been_seen(tab, pages):
    pages.open()

    async def short():
        _, lease = await pages.busy.root("asking")
        await pages.busy.approval(lease, command_request("\n".join(f"step {number}" for number in range(4))))

    pages.do(short())
    page = tab(viewport={"width": 740, "height": 360}).open("/waiting")
    page.wait_for_selector(".seen:has-text('%')")
    text = page.locator(".exact")
    assert text.bounding_box()["y"] + text.bounding_box()["height"] > 360
    assert page.locator("button:text-is('Approve')").is_disabled()
    text.evaluate("text => text.scrollIntoView({block: 'end'})")
    text.evaluate("text => text.scrollTop = 1e9")
    page.wait_for_selector(".seen:has-text('You have seen all of it.')")
    assert page.locator("button:text-is('Approve')").is_enabled()


def test_what_was_typed_and_what_was_seen_is_there_when_a_person_comes_back(tab, pages):
    pages.open()
    pages.do(ask(pages.busy, "one"))
    pages.do(long_command(pages.busy))
    page = tab().open("/waiting")
    page.fill("textarea", "Because")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.wait_for_selector(".seen:has-text('%')")
    page.focus(".exact")
    page.keyboard.press("PageDown")
    until(lambda: page.evaluate("document.querySelector('.exact').scrollTop > 200") or page.wait_for_timeout(20))
    page.evaluate(FRAMES)
    seen = page.text_content(".seen")
    page.keyboard.press("j")
    page.wait_for_selector("textarea")
    assert page.input_value("textarea") == "Because"
    page.keyboard.press("j")
    page.wait_for_selector(f".seen:has-text('{seen}')")
