"""The page with the keyboard alone, on runs of real processes: resume, cancel and share."""

import signal

from tests.interfaces.web.test_jobs import house, run_of
from tests.interfaces.web.test_page import tab
from tests.support.browser import chromium, pages
from tests.support.command_house import entries, until
from tests.support.scripts import talk, turn

__all__ = ["chromium", "house", "pages", "tab"]


def test_an_interrupted_run_is_resumed_with_the_keyboard_alone(tab, pages, house):
    model = house.script("twice", talk(turn("never said", delay_seconds=60)))
    process = house.start("delegate", "-t", "a=x", "--yes", "--model", model)
    run_of(house, "a", "running")
    process.send_signal(signal.SIGKILL)
    process.wait()
    house.script("twice", talk(turn("all is well")))
    pages.open(with_journal=False)
    page = tab().open()
    page.wait_for_selector(".row:has-text('delegate') .flag.interrupted")
    page.keyboard.press("k")
    page.keyboard.press("r")
    page.wait_for_selector(".toast:has-text('Resuming delegate.')")
    page.wait_for_selector("[role=treeitem][data-status=completed]:has-text('delegate')")
    until(lambda: {one["status"] for one in entries(house)} == {"completed"})


def test_a_subtree_is_cancelled_and_a_record_shared_with_the_keyboard_alone(tab, pages, house):
    model = house.script("slow", talk(turn("never said", delay_seconds=60), times=4))
    house.start("delegate", "-t", "a=x", "-t", "b=y", "--yes", "--model", model)
    child = run_of(house, "a", "running")
    run_of(house, "b", "running")
    pages.open(with_journal=False)
    one = tab()
    page, keys = one.open(), one.page.keyboard
    page.wait_for_selector("[role=treeitem]:has-text('b')")
    keys.press("k")
    keys.press("c")
    page.wait_for_selector("dialog:has-text('This stops 3 runs.')")
    assert {one["status"] for one in entries(house)} == {"running"}
    assert page.evaluate("document.activeElement.textContent") == "Cancel 3 runs"
    keys.press("Enter")
    page.wait_for_selector("[role=treeitem][data-status=cancelled] >> nth=2")
    assert {one["status"] for one in entries(house)} == {"cancelled"}
    # The address of an open record is a link to it.
    keys.press("j")
    keys.press("Enter")
    page.wait_for_selector("h1:text-is('a')")
    keys.press("2")
    page.wait_for_selector("#record-1")
    keys.press("k")
    keys.press("l")
    page.wait_for_selector(".record.at .body")
    address = page.url
    prefix, _, seq = address.partition("#")
    assert prefix == f"{pages.page.url}/run/{child}/transcript"
    with page.expect_download() as download:
        keys.press("e")
    assert download.value.suggested_filename == f"{child}.zip"
    other = one.context.new_page()
    other.goto(address)
    other.wait_for_selector(f"#record-{seq}.at")
