"""What a person types, and when: at a real terminal with its own line editing."""

import asyncio
import io
import json
import os
import re
import sys

import pyte
import pytest
from tests.support.command_house import entries

from deputy.core.approval import ApprovalRequest, Decision, Question
from deputy.interfaces.cli import terminal_prompt
from deputy.interfaces.cli.terminal_prompt import PASTE_SECONDS, TerminalPrompt

NO = Decision(choice="no", digest="d")
ASK = {"name": "Ask", "arguments": {"question": "Which options?"}}
RUN = {"name": "Run", "arguments": {"command": "echo ran > made.txt"}}


def asker(house, *calls: dict) -> str:
    return house.script("asker", {"turns": [*({"calls": [call]} for call in calls), {"text": "Done."}]})


def test_what_was_typed_before_a_question_does_not_answer_it(house):
    terminal = house.terminal("run", "do it", "--model", asker(house, RUN))
    terminal.type("y\nyes\ny")
    terminal.until("Go ahead? [y/N/a/d] ")
    terminal.type("n\n")
    assert terminal.end() == 0
    assert not (house.workspace / "made.txt").exists()


@pytest.mark.parametrize("pasted", ["y\ny\ny\n", "use these:\n a\nyes\ny\n", "y\ny\ny" + "\n" * 30])
def test_a_paste_answers_the_question_that_is_shown_and_none_after_it(house, pasted):
    terminal = house.terminal("run", "do it", "--model", asker(house, ASK, RUN))
    terminal.until("asks: Which options?\r\n> ")
    terminal.type(pasted)
    terminal.until("Go ahead? [y/N/a/d] ")
    terminal.type("n\n")
    assert terminal.end() == 0
    assert not (house.workspace / "made.txt").exists()


def test_several_lines_are_no_clear_yes(house):
    terminal = house.terminal("run", "do it", "--model", asker(house, RUN))
    terminal.until("Go ahead? [y/N/a/d] ")
    terminal.type("yes\nbut not now\n")
    assert terminal.end() == 0
    assert not (house.workspace / "made.txt").exists()


@pytest.mark.parametrize("ends", ["\n", ""])
def test_a_paste_of_several_lines_arrives_whole_also_when_its_last_line_is_ended_by_hand(house, ends):
    terminal = house.terminal("run", "do it", "--model", asker(house, ASK))
    terminal.until("asks: Which options?\r\n> ")
    terminal.type(f"first line\n  second line\nthird{ends}")
    if not ends:
        terminal.until("third")
        terminal.type(" line\n")
    assert terminal.end() == 0
    run = house.run("ps", "--all").stdout.splitlines()[1].split()[0]
    third = "third" if ends else "third line"
    assert f"first line\n  second line\n{third}\n" in house.run("transcript", run).stdout


def test_a_question_that_is_answered_elsewhere_gives_way_to_the_next(house):
    terminal = house.terminal("run", "do it", "--model", asker(house, RUN, ASK))
    terminal.until("Go ahead? [y/N/a/d] ")
    assert house.approve(entries(house)[0]["session_id"]).returncode == 0
    terminal.until("asks: Which options?\r\n> ")
    assert "(Answered elsewhere, or no longer asked.)" in terminal.text
    terminal.type("these\n")
    assert terminal.end() == 0
    assert (house.workspace / "made.txt").exists()


@pytest.mark.rule("delegate.view")
def test_the_table_goes_on_above_a_question_until_a_key_is_typed(house):
    asks = {"when": "first", "turns": [{"calls": [ASK]}, {"text": "Done."}]}
    looks = [
        {"calls": [{"name": "Grep", "arguments": {"pattern": f"p{turn}."}}], "delay_seconds": 0.5}
        for turn in range(100)
    ]
    script = house.script("two", asks, {"when": "second", "turns": looks})
    terminal = house.terminal("delegate", "-t", "a=first", "-t", "b=second", "--yes", "--model", script)
    terminal.until("asks: Which options?\r\n> ")
    before = terminal.text
    terminal.watched_until(lambda: len(set(re.findall(r"Grep p\d+", terminal.text.removeprefix(before)))) > 2)
    rows = screen(terminal)
    assert [row.split()[0] for row in rows] == ["Delegate", "[a]", "[b]", "total", "[a]", ">"]
    assert "[b] → Grep p" in rows[2]
    assert rows[4:] == ["[a] asks: Which options?", ">"]
    # Keys that leave no text are no answer.
    terminal.type("x")
    terminal.watched_until(lambda: screen(terminal)[-1] == "> x")
    terminal.type("\x7f")
    terminal.watched_until(lambda: screen(terminal)[-1] == ">")
    terminal.type("\x1b[D")
    terminal.type("thosf\x7fe on")
    terminal.watched_until(lambda: screen(terminal)[-1] == "> those on")
    still = terminal.text
    assert house.run("ps", "--all").returncode == 0
    terminal.type("es\n")
    terminal.until("[a] ✓ completed")
    assert terminal.text.removeprefix(still).startswith("es\r\n")
    terminal.type("\x03")
    assert terminal.end() == 130
    (asked,) = (one["session_id"] for one in entries(house) if one["label"] == "a")
    assert "those ones" in house.run("transcript", asked).stdout


def screen(terminal) -> list[str]:
    """What a person sees, without empty rows."""
    shown = pyte.Screen(80, 50)
    pyte.Stream(shown).feed(terminal.shown)
    return [row.strip() for row in shown.display if row.strip()]


def test_the_table_above_the_second_question_shows_that_the_first_is_answered(house):
    asks = [{"calls": [ASK]}, {"text": "Done."}]
    script = house.script("two", {"when": "first", "turns": asks}, {"when": "second", "turns": asks})
    terminal = house.terminal("delegate", "-t", "a=first", "-t", "b=second", "--yes", "--model", script)
    terminal.until("] asks: Which options?\r\n> ")
    shown = terminal.text
    first, second = ("a", "b") if "\n[a] asks: Which options?\r\n> " in shown else ("b", "a")
    terminal.type("these\n")
    terminal.until(f"\n[{second}] asks: Which options?\r\n> ")
    table = terminal.text.removeprefix(shown).rpartition("Delegate [2 subagents]")[2]
    assert f"[{first}] ? asks" not in table
    assert f"[{second}] ? asks: Which options?" in table
    terminal.type("those\n")
    assert terminal.end() == 0


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("topic", ["answer", "approval"])
@pytest.mark.parametrize("early", ["y\n", "y", "yes\ny\n", "a\ny"])
def test_a_key_pressed_before_the_prompt_does_not_answer_a_question_that_took_another_ones_place(
    monkeypatch, topic, early
):
    ours, theirs = os.openpty()

    class Screen(io.StringIO):
        """Types while the text is shown but not the prompt, as one does who answers what was there before."""

        def write(self, text: str) -> int:
            if text.endswith(("] ", "> ")):
                # Later than a paste: what was typed early would be an answer of its own.
                asyncio.get_running_loop().call_later(4 * PASTE_SECONDS, os.write, ours, b"n\n")
            elif "withdrawn" in self.getvalue():
                os.write(ours, early.encode())
            return super().write(text)

    async def go() -> object:
        prompt = TerminalPrompt(asyncio.Event())
        replaced = asyncio.create_task(prompt.answer(question(topic)))
        await asyncio.sleep(0)
        replaced.cancel()
        await asyncio.wait([replaced])
        return await prompt.answer(question(topic))

    with os.fdopen(theirs) as read:
        monkeypatch.setattr(sys, "stdin", read)
        monkeypatch.setattr(sys, "stderr", screen := Screen())
        monkeypatch.setattr(terminal_prompt, "_is_ours", lambda: True)
        assert asyncio.run(go()) == (NO if topic == "approval" else "n")
        assert "(Answered elsewhere, or no longer asked.)" in screen.getvalue()
    os.close(ours)


# --- the end of input, and the word to stop ---------------------------------------------------------------------------


@pytest.fixture
def typing(monkeypatch):
    """What is typed is written here, and read by the prompt."""
    theirs, ours = os.pipe()
    with os.fdopen(theirs) as read, os.fdopen(ours, "wb", buffering=0) as write:
        monkeypatch.setattr(sys, "stdin", read)
        yield write


def question(topic: str) -> Question:
    request = None if topic == "answer" else ApprovalRequest(tool="Run", title="Use Run", parts=(), risk="high")
    return Question(session_id="sess_1_a", label="a", topic=topic, text="Which?", request=request, digest="d")


def answered(topic: str, do) -> bool | str | Decision:
    """What comes of a question when this is done while it is asked."""

    async def go() -> bool | str | Decision:
        stop = asyncio.Event()
        asked = asyncio.create_task(TerminalPrompt(stop).answer(question(topic)))
        await asyncio.sleep(0)
        do(stop)
        async with asyncio.timeout(20):
            return await asked

    return asyncio.run(go())


@pytest.mark.parametrize("topic", ["answer", "approval"])
@pytest.mark.parametrize("typed", [b"", b"y", b"y\n"])
def test_the_word_to_stop_is_no_answer(typing, topic, typed):
    def stop(word: asyncio.Event) -> None:
        typing.write(typed)
        word.set()

    assert answered(topic, stop) == (False if topic == "answer" else NO)


@pytest.mark.parametrize(("topic", "answer"), [("answer", "the blue one"), ("approval", NO)])
def test_what_was_typed_when_input_ended_is_the_answer(typing, topic, answer):
    def end(_: asyncio.Event) -> None:
        typing.write(b"the blue one")
        typing.close()

    assert answered(topic, end) == answer


@pytest.mark.parametrize("topic", ["answer", "approval"])
def test_input_that_ends_without_a_word_is_no_answer(typing, topic):
    assert answered(topic, lambda _: typing.close()) == (False if topic == "answer" else NO)


def test_the_bell_rings_when_a_question_opens(typing, capsys):
    answered("answer", lambda _: typing.close())
    assert capsys.readouterr().err.count("\a") == 1


def test_a_terminal_that_goes_away_is_only_the_end_of_input(typing, monkeypatch):
    monkeypatch.setattr(terminal_prompt, "_is_ours", lambda: True)
    terminal_prompt.forget_typed()
    terminal_prompt.push_unfinished_line()


# --- what a question says is never obeyed by the terminal, wherever it is told ----------------------------------------

SLY = "\x1b[2K\x9b31mWhich\x07 \u202eone?"


def tasks_file(house) -> str:
    path = house.workspace / "tasks.json"
    path.write_text('{"tasks": [{"label": "a", "prompt": "b", "fo\\u001b[31mo\\u202e": 1}]}')
    return str(path)


def test_what_models_and_files_say_in_an_error_is_harmless(house):
    ask = {"name": "Ask", "arguments": {"question": SLY}}
    model = house.script("sly", {"times": 9, "turns": [{"calls": [ask]}]})
    asked = house.run("delegate", "-y", "-t", "label=x", "--json", "--model", model)
    assert asked.returncode == 5, asked
    root = next(entry for entry in entries(house) if entry["parent"] is None)["session_id"]
    refused = house.run("resume", root)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "one?" in refused.stderr
    wrong = house.run("delegate", "-y", "--tasks", tasks_file(house), "--model", model)
    assert wrong.returncode == 2
    assert "tasks[0]" in wrong.stderr
    tasks = json.dumps([{"label": f"la{SLY}bel", "prompt": "x"}])
    label = house.run("delegate", "-y", "--tasks", "-", "--model", model, stdin=tasks)
    assert label.returncode == 2
    assert "tasks[0].label" in label.stderr
    unknown = house.run("run", f"--{SLY}")
    assert unknown.returncode == 2
    for said in (refused.stderr, wrong.stderr, label.stderr, unknown.stderr):
        assert not set("\x1b\x07\x9b\u202e") & set(said), said


@pytest.mark.rule("redact.where")
def test_a_question_in_words_shows_no_secret(monkeypatch):
    monkeypatch.setattr(terminal_prompt, "_columns", lambda: 80)
    monkeypatch.setenv("ACME_TOKEN", "hid-known-77x")
    question = "Which one?\npassword=hid-77x hid-known-77x\npass\u200bword=hid-77x\n"
    question += "\n".join(f"{'x' * length} --password hid-77x" for length in range(40, 80))
    shown = terminal_prompt.wrapped(question)
    assert shown.startswith("Which one?\npassword=[redacted] [redacted]\npass\\u200bword=[redacted]\n")
    assert "hid-" not in shown
