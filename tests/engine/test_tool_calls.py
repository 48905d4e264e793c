"""Tools run with exactly the arguments that the model gave, and models get exactly what tools returned."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import sys
from pathlib import Path
from subprocess import DEVNULL
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.core.redaction.samples import made_up, secret_lines
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy.core.approval import Decision
from deputy.core.conversation import AssistantMessage, Stop, Text, ToolCall, ToolMessage, UserMessage
from deputy.core.events import Noted, QuestionAsked, RunOpened
from deputy.core.outcome import Completed
from deputy.core.request import Grant, Lineage
from deputy.core.state import ASKED, answer_key
from deputy.core.task import Task
from deputy.engine.call import RUN
from deputy.engine.ports import ToolOutput, ToolTraits
from deputy.engine.untrusted import unwrap_untrusted
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.runtime.suspension import SuspendedRuns
from deputy.tools.function_tool import as_tool

pytestmark = pytest.mark.rule("redact.where")

WRITER = Task(label="w", prompt="Do it.", tools=("Read", "Edit", "Write", "Run"), isolation="none")
DSN = "postgres://app:hunter2hunter2@db/app"
CODE = 'import base64\nauth = "x"\nheaders = {"Authorization": "Basic %s" % auth}\n'


# --- what models really write -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    ['DB_PASSWORD = "correct horse battery"\n', CODE, "image: postgres:16\n", f"DSN={DSN}\n", secret_lines()[0][0]],
)
def test_a_file_is_written_as_the_model_wrote_it(house: House, monkeypatch: pytest.MonkeyPatch, content: str):
    monkeypatch.setenv("POSTGRES_PASSWORD", "postgres")
    house.script(talk(turn("", call("Write", path="settings.py", content=content)), turn("Done.")))
    assert isinstance(house.one(WRITER), Completed)
    assert (house.workspace / "settings.py").read_text() == content


def test_a_command_runs_as_the_model_wrote_it(house: House):
    gpg = house.workspace / "gpg"
    gpg.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > arguments\n')
    gpg.chmod(0o755)
    (house.workspace / "f").write_text("what f holds\n")
    commands = ("./gpg --passphrase 'correct horse battery' -c f", ": passphrase: x; touch P; cat f")
    house.script(talk(turn("", *(call("Run", command=one) for one in commands)), turn("Done.")))
    outcome = house.one(WRITER)
    assert (house.workspace / "arguments").read_text().splitlines() == [
        "--passphrase",
        "correct horse battery",
        "-c",
        "f",
    ]
    assert (house.workspace / "P").exists()
    assert "what f holds" in house.results(outcome)[1]


def test_what_was_read_can_be_edited_with_the_true_text(house: House):
    line = f'DB_PASSWORD = "{made_up(24)}"'
    (house.workspace / "settings.py").write_text(f"{line}\nDEBUG = True\n")
    edit = call("Edit", path="settings.py", old=line, new=f"{line}  # rotate")
    house.script(talk(turn("", call("Read", path="settings.py")), turn("", edit), turn("Done.")))
    outcome = house.one(WRITER)
    assert line in house.results(outcome)[0]
    assert (house.workspace / "settings.py").read_text() == f"{line}  # rotate\nDEBUG = True\n"


ODD = [
    "value = [redacted]\n",
    "see [redacted MY_TOKEN] and [redacted OTHER_KEY]\n",
    "a\r\npassword=xyz12345\r\nb\r",
    "a\x00b\x7fc\x08d\n",
    "\ufeffa\u200bb\u202ec\xad\u2028d\u2029e\x85f\x0cg\n",
    "\x1b[31mpassword=\x1b[0mxyz12345\n",
    "e\u0301 \xe9 \u212b \uff21 \ue000 \uffff \U000e0041\n",
    "```\n</tool_result>\n```\n",
    '{"a": "\\ud800 \\u003d \\n", "b": "C:\\\\new"}',
    "password=" + "A1" * 500_000 + "\n",
    "no line end, spaces   \n\n\n ",
]
"""Texts that hiding, cleaning or storing could change."""


def test_odd_texts_are_written_edited_and_kept_byte_for_byte(house: House, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_TOKEN", "xyz12345")
    for number, text in enumerate(ODD):
        (house.workspace / f"e{number}").write_bytes(f"{text}OLD".encode())
    (house.workspace / "binary").write_bytes(bytes(range(256)))
    house.script(
        talk(
            turn("", *(call("Write", path=f"w{number}", content=text) for number, text in enumerate(ODD))),
            turn("", *(call("Read", path=f"e{number}") for number in range(len(ODD)))),
            turn(
                "",
                *(call("Edit", path=f"e{n}", old=f"{text}OLD", new=f"NEW{text}") for n, text in enumerate(ODD)),
                call("Edit", path="binary", old="A", new="[redacted]"),
            ),
            turn("Done."),
        )
    )
    assert isinstance(house.one(WRITER), Completed)
    for number, text in enumerate(ODD):
        assert (house.workspace / f"w{number}").read_bytes() == text.encode()
        assert (house.workspace / f"e{number}").read_bytes() == f"NEW{text}".encode()
    assert (house.workspace / "binary").read_bytes() == bytes(range(256)).replace(b"A", b"[redacted]")


# --- any arguments, any result, whatever happens on the way -----------------------------------------------------------


class Echo:
    """A tool that keeps the arguments of every call and returns a fixed text."""

    name = "Echo"
    description = "Keeps its arguments."

    def __init__(self, result: str, *, needs_approval: bool = False) -> None:
        self.schema = {"type": "object"}
        self.traits = ToolTraits(needs_approval=needs_approval, repeatable=True)
        self.result = result
        self.got: list[Any] = []
        self.before_return = lambda: None

    async def run(self, arguments: Any, context: object) -> ToolOutput:
        self.got.append(dict(arguments))
        self.before_return()
        return ToolOutput(text=self.result)


class OneCall:
    """A model that makes one call, and keeps what it is told in return and said beside it."""

    context_window = None

    def __init__(self, arguments: dict[str, Any], tool: str = "Echo") -> None:
        self.name = "given:one-call"
        self.call = ToolCall(id="call_1", name=tool, arguments=arguments)
        self.got: list[str] = []
        self.heard: list[str] = []
        self.before_end = lambda: None

    async def stream(self, conversation: Any, tools: object, settings: object):
        results = [
            one for message in conversation.messages if isinstance(message, ToolMessage) for one in message.results
        ]
        self.heard = [message.text for message in conversation.messages if isinstance(message, UserMessage)]
        if results:
            self.got += [unwrap_untrusted(result.content) for result in results]
            self.before_end()
            yield Stop(reason="end", message=AssistantMessage(parts=(Text(text="Done."),)))
        else:
            yield self.call
            yield Stop(reason="end", message=AssistantMessage(parts=(self.call,)))


SECRETS = st.sampled_from([line for line, _ in secret_lines()] + [DSN, CODE, ": passphrase: x; touch P; cat f"])
TEXTS = st.one_of(st.text(max_size=40), SECRETS, st.builds("{}\n{}".format, SECRETS, st.text(max_size=20)))
VALUES = st.recursive(
    TEXTS | st.integers(-(2**53), 2**53) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, min_size=1, max_size=4)
# Each example is a whole run.
exactly = settings(
    max_examples=settings.default.max_examples // 4, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def in_house(monkeypatch: pytest.MonkeyPatch, use: Any, model: OneCall, **options: Any) -> None:
    """Run this in a new house: examples of one test share no files."""
    with TemporaryDirectory() as folder:
        house = House(Path(folder), monkeypatch)
        house.model = model.name
        house.given = {model.name: model}  # pyright: ignore[reportAttributeAccessIssue]
        asyncio.run(use(house, **options))


async def start(house: House, runtime: Any, prompt: str = "Do it.", tool: str = "Echo") -> str:
    run = await runtime.engine.new_id()
    await runtime.engine.submit(run, opened(house, run, frozenset({tool}), prompt))
    return run


def opened(house: House, run: str, tools: frozenset[str], prompt: str = "Do it.") -> RunOpened:
    grant = Grant(tools=tools)
    return RunOpened(lineage=Lineage.root(run), model=house.model, command=RUN, prompt=prompt, grant=grant)


@given(ARGUMENTS, TEXTS, TEXTS)
@exactly
def test_arguments_and_results_are_exact(monkeypatch: pytest.MonkeyPatch, arguments: Any, result: str, prompt: str):
    echo, model = Echo(result), OneCall(arguments)

    async def use(house: House) -> None:
        async with house.open(tools=(echo,)) as runtime:
            await runtime.engine.result(await start(house, runtime, prompt or "x"))

    in_house(monkeypatch, use, model)
    assert (echo.got, model.got, model.heard) == ([arguments], [result], [prompt or "x"])


@given(ARGUMENTS, TEXTS)
@exactly
def test_a_call_that_waited_for_approval_is_exact(monkeypatch: pytest.MonkeyPatch, arguments: Any, result: str):
    echo, model = Echo(result, needs_approval=True), OneCall(arguments)

    async def use(house: House) -> None:
        options = {"tools": (echo,), "approval": "ask", "can_ask": True}
        async with house.open(suspend_seconds=0.0, **options) as runtime:
            run = await start(house, runtime)
            async for record in runtime.engine.events(run):
                if isinstance(record.event, QuestionAsked):
                    break
            await approve(runtime, run, record)
            await runtime.engine.result(run)

    in_house(monkeypatch, use, model)
    assert (echo.got, model.got) == ([arguments], [result])


async def approve(runtime: Any, run: str, record: Any) -> None:
    decision = Decision(choice="yes", digest=record.event.digest)
    await runtime.engine.send(run, record.event.topic, decision, key=answer_key(record.key.removesuffix(ASKED)))


@given(ARGUMENTS, TEXTS)
@exactly
def test_a_call_whose_record_had_to_be_written_again_is_exact(
    monkeypatch: pytest.MonkeyPatch, arguments: Any, result: str
):
    echo, model = Echo(result), OneCall(arguments)

    async def use(house: House) -> None:
        def hold_the_journal() -> None:
            other = sqlite3.connect(house.home / "journal.db", isolation_level=None, check_same_thread=False)
            other.execute("BEGIN IMMEDIATE")
            asyncio.get_running_loop().call_later(0.02, other.close)

        echo.before_return = hold_the_journal
        async with house.open(tools=(echo,)) as runtime:
            await runtime.engine.result(await start(house, runtime))

    in_house(monkeypatch, use, model)
    assert (echo.got, model.got) == ([arguments], [result])


@pytest.mark.parametrize("moment", ["before the result", "after the result"])
@given(ARGUMENTS, TEXTS)
@exactly
def test_what_a_killed_process_left_goes_on_exactly(
    monkeypatch: pytest.MonkeyPatch, moment: str, arguments: Any, result: str
):
    """A copy of the home in the middle of the work is what a kill would have left."""
    echo, model = Echo(result), OneCall(arguments)

    async def use(house: House) -> None:
        left = house.home.with_name("left")

        def leave() -> None:
            if not left.exists():
                shutil.copytree(house.home, left)

        async with house.open(tools=(echo,)) as runtime:
            run = await start(house, runtime)
            if moment == "before the result":
                echo.before_return = leave
            else:
                model.before_end = leave
            await runtime.engine.result(run)
        with sqlite3.connect(left / "journal.db", isolation_level=None) as journal:
            # This process lives on, and would count as the one at work.
            journal.execute("UPDATE leases SET owner = NULL")
        journal.close()
        echo.got, model.got, house.home = [], [], left
        async with house.open(tools=(echo,)) as runtime:
            await runtime.engine.ensure_running(run)
            await runtime.engine.result(run)

    in_house(monkeypatch, use, model)
    assert echo.got == ([arguments] if moment == "before the result" else [])
    assert model.got == [result]


class WithChild(OneCall):
    """A model that calls a tool and delegates; its child calls the tool too, and ends when its parent is suspended."""

    def __init__(self, arguments: dict[str, Any], report: str) -> None:
        super().__init__(arguments)
        self.report = report
        self.childs: list[str] = []
        self.turns: list[str] = []
        self.until_suspended: Any = None

    async def stream(self, conversation: Any, tools: object, settings: object):
        results = [
            unwrap_untrusted(one.content)
            for message in conversation.messages
            if isinstance(message, ToolMessage)
            for one in message.results
        ]
        is_child = "You are a subagent" in conversation.system
        self.turns.append("child" if is_child else "parent")
        hands_on = ToolCall(id="call_2", name="Delegate", arguments={"tasks": [CHILD]})
        if results and not is_child:
            self.got = results
        elif results:
            self.childs = results
            await self.until_suspended()
        answer = "Done." if not is_child else f"Found: {self.report}"
        calls = (self.call,) if is_child else (self.call, hands_on)
        for one in () if results else calls:
            yield one
        yield Stop(reason="end", message=AssistantMessage(parts=(Text(text=answer),) if results else calls))


CHILD = {"label": "child", "prompt": "Look.", "tools": ["Echo"]}


@given(ARGUMENTS, TEXTS, SECRETS)
@exactly
def test_the_calls_of_a_parent_that_was_suspended_for_its_child_are_exact(
    monkeypatch: pytest.MonkeyPatch, arguments: Any, result: str, report: str
):
    """The parent is replayed from the journal when its child ends."""
    echo, model = Echo(result), WithChild(arguments, report)

    async def use(house: House) -> None:
        async with house.open(tools=(echo,), suspend_seconds=0.0) as runtime:
            run = await runtime.engine.new_id()

            parking, is_suspended = runtime.engine._supervisor.parking, asyncio.Event()

            def suspend(suspended: str) -> None:
                SuspendedRuns.suspend(parking, suspended)
                is_suspended.set()

            monkeypatch.setattr(parking, "suspend", suspend)
            model.until_suspended = is_suspended.wait
            await runtime.engine.submit(run, opened(house, run, frozenset({"Echo", "Delegate"})))
            await runtime.engine.result(run)

    in_house(monkeypatch, use, model)
    assert echo.got == [arguments, arguments]
    assert (model.childs, model.got[0]) == ([result], result)
    assert f"Found: {report}".strip() in model.got[1]
    assert model.turns == ["parent", "child", "child", "parent"]


@given(TEXTS.filter(str.strip))
@exactly
def test_the_answer_of_a_person_reaches_the_model_exactly(monkeypatch: pytest.MonkeyPatch, answer: str):
    model = OneCall({"question": "Which one?"}, tool="Ask")

    async def use(house: House) -> None:
        async with house.open(can_ask=True, suspend_seconds=0.0) as runtime:
            run = await start(house, runtime)
            async for record in runtime.engine.events(run):
                if isinstance(record.event, QuestionAsked):
                    break
            # As from another process: this one shares nothing with the runtime but the files.
            async with house.open() as other:
                await other.engine.send(run, "answer", answer)
            await runtime.engine.result(run)

    in_house(monkeypatch, use, model)
    assert [answer in output for output in model.got] == [True]


def test_an_answer_given_in_another_process_reaches_the_model_exactly(house: House, monkeypatch: pytest.MonkeyPatch):
    answer = f"use {CODE}{DSN}"
    turns = [{"calls": [{"name": "Ask", "arguments": {"question": "Which one?"}}]}, {"text": "Done."}]
    Path(house.model.removeprefix("script:")).write_text(json.dumps({"conversations": [{"turns": turns}]}))
    monkeypatch.setenv("DEPUTY_HOME", str(house.home))

    async def use() -> str:
        async with house.open(can_ask=True) as runtime:
            run = await start(house, runtime)
            async for record in runtime.engine.events(run):
                if isinstance(record.event, QuestionAsked):
                    break
            command = (sys.executable, "-m", "deputy", "resume", run, "--answer", answer)
            other = await asyncio.create_subprocess_exec(*command, cwd=house.workspace, stdout=DEVNULL, stderr=DEVNULL)
            await runtime.engine.result(run)
            await other.wait()
            return run

    assert [answer in output for output in house.results_of(asyncio.run(use()))] == [True]


def test_what_a_child_reports_reaches_its_parent_exactly(house: House):
    line = secret_lines()[0][0]
    house.script(
        talk(turn(f"Found: {line}"), when="You are a subagent"),
        talk(turn("", call("Delegate", tasks=[{"label": "a", "prompt": "Look."}])), turn("Done.")),
    )
    outcome = asyncio.run(house.run("Hand it on."))
    assert line in house.results(outcome)[0]


# --- the one exception: Deputy's own provider keys --------------------------------------------------------------------

KEY = f"gsk-{made_up(30)}7"


@pytest.fixture
def keyed(house: House, monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    return house


def home_bytes(house: House) -> bytes:
    return b"".join(path.read_bytes() for path in house.home.rglob("*") if path.is_file())


def test_a_provider_key_reaches_no_prompt_by_any_path(keyed: House):
    (keyed.workspace / "notes.txt").write_text(f"key {KEY}\n")
    model = OneCall({"path": "notes.txt"}, tool="Read")
    keyed.model, keyed.given = model.name, {model.name: model}  # pyright: ignore[reportAttributeAccessIssue]
    task = Task(label="a", prompt=f"Use {KEY}.", context=("notes.txt",), tools=("Read",))
    seen: list[str] = []
    stream = model.stream

    async def keeping(conversation: Any, tools: object, settings: object):
        seen.append(f"{conversation.system}{[str(message) for message in conversation.messages]}")
        async for event in stream(conversation, tools, settings):
            yield event

    model.stream = keeping
    outcome = keyed.one(task, base_prompt=f"The base has {KEY}.")
    assert isinstance(outcome, Completed)
    assert len(seen) == 2
    assert all("[redacted GROQ_API_KEY]" in one and KEY not in one for one in seen)
    assert KEY.encode() not in home_bytes(keyed)


def test_a_provider_key_in_the_text_of_a_tool_reaches_no_prompt(keyed: House):
    """The description and schema of an MCP server's tool are that server's words."""
    echo, model = Echo("x"), OneCall({})
    echo.description = f"Uses {KEY}."
    echo.schema = {"type": "object", "properties": {"a": {"type": "string", "description": f"such as {KEY}"}}}
    keyed.model, keyed.given = model.name, {model.name: model}  # pyright: ignore[reportAttributeAccessIssue]
    output: list[str] = []
    stream = model.stream

    async def keeping(conversation: Any, tools: Any, settings: object):
        output.append(str(tools.items))
        async for event in stream(conversation, tools, settings):
            yield event

    model.stream = keeping

    async def use() -> None:
        async with keyed.open(tools=(echo,)) as runtime:
            await runtime.engine.result(await start(keyed, runtime))

    asyncio.run(use())
    assert echo.got == [{}]
    assert [(KEY in one, one.count("[redacted GROQ_API_KEY]")) for one in output] == [(False, 2)] * 2


@pytest.mark.parametrize("tool", ["Write", "Edit", "Run"])
@pytest.mark.parametrize("text", [KEY, "[redacted GROQ_API_KEY]"], ids=["key", "mark"])
def test_a_call_that_would_write_the_mark_of_a_key_is_refused(keyed: House, tool: str, text: str):
    (keyed.workspace / "f").write_text("old\n")
    arguments = {
        "Write": {"path": "f", "content": f"KEY={text}\n"},
        "Edit": {"path": "f", "old": "old", "new": text},
        "Run": {"command": f"echo {text} > f"},
    }
    keyed.script(talk(turn("", call(tool, **arguments[tool])), turn("Done.")))
    outcome = keyed.one(WRITER)
    assert (keyed.workspace / "f").read_text() == "old\n"
    assert "[redacted GROQ_API_KEY]" in keyed.results(outcome)[0]
    assert "Nothing was run" in keyed.results(outcome)[0]
    assert KEY.encode() not in home_bytes(keyed)


def test_a_provider_key_in_a_report_an_answer_and_a_note_is_masked(keyed: House):
    notes, asks = turn("", call("Note", content=f"noted {KEY}")), turn("", call("Ask", question=f"Is it {KEY}?"))
    keyed.script(talk(notes, asks, turn(f"It was {KEY}.")))
    outcome = keyed.one()
    resumed = keyed.resume(outcome.session_id, f"yes, {KEY}")
    assert (resumed.report, resumed.notes) == ("It was [redacted GROQ_API_KEY].", ("noted [redacted GROQ_API_KEY]",))
    assert [one.event.content for one in keyed.records(outcome.session_id) if isinstance(one.event, Noted)] == [
        "noted [redacted GROQ_API_KEY]"
    ]
    assert KEY.encode() not in home_bytes(keyed)


def test_a_command_does_not_get_a_provider_key_in_its_environment(keyed: House):
    keyed.script(talk(turn("", call("Run", command="env > e; true")), turn("Done.")))
    keyed.one(WRITER)
    assert KEY not in (keyed.workspace / "e").read_text()


def shown_calls(house: House) -> list[tuple[str, str | None, str | None, str | None]]:
    return [(one.event, one.tool, one.args, one.reason) for one in house.seen if one.event.startswith("tool_")]


@pytest.mark.rule("delegate.events")
def test_the_event_of_a_call_has_its_arguments_and_a_failed_call_has_an_event_with_its_reason(house: House):
    first = turn("", call("Read", path="absent.txt"), call("Grep", pattern="x", path="."))
    house.script(talk(first, turn("", call("Fly", to="Rome")), turn("Done.")))
    asyncio.run(house.delegate(Task(label="a", prompt="Look.")))
    *calls, (*failed, reason), (*refused, why) = sorted(shown_calls(house))
    assert [one[1:3] for one in calls] == [("Fly", "Rome"), ("Grep", "pattern=x path=."), ("Read", "absent.txt")]
    assert failed == ["tool_error", "Fly", "Rome"]
    assert reason.startswith("The tool 'Fly' does not exist"), reason
    assert refused == ["tool_error", "Read", "absent.txt"]
    assert why == "absent.txt does not exist.", why


@pytest.mark.rule("errors.once")
def test_an_exception_of_a_tool_is_logged_with_its_stack_trace_and_the_model_reacts_to_it(house: House):
    house.script(talk(turn("", call("divide")), turn("It failed.")))

    def divide() -> str:
        """Divide."""
        return str(1 // 0)

    async def go():
        async with house.open(tools=[as_tool(divide)]) as runtime:
            run = await house.begin(
                runtime, Task(label="one", prompt="x", tools=("divide",)), tools=frozenset({"divide"})
            )
            await runtime.engine.result(run)
            (child,) = await runtime.journal.descendants(run)
            return await runtime.engine.result(child.run)

    outcome = asyncio.run(go())
    assert isinstance(outcome, Completed)
    assert "ZeroDivisionError" in house.results(outcome)[0]
    assert "Traceback" not in house.results(outcome)[0]
    reader = SqliteQueries.open(house.home)
    assert reader is not None
    with reader:
        (logged,) = reader.errors(10)
    assert (logged.code, logged.count) == ("TOOL_FAILED", 1)
    assert "in divide" in logged.trace
