"""The page of questions: what a person reads or types stays, and a card changes only with a word."""

import time

from msgspec import Raw
from tests.interfaces.web.test_page import tab
from tests.support.browser import chromium, pages
from tests.support.busy_journal import command_request

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
