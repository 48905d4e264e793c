"""Tricks to run a call that was not approved exactly as it is: none of them works."""

import asyncio
import hashlib
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.test_agent_context import user as user
from tests.support.house import ALL, House
from tests.support.scripts import call, talk, turn

from deputy.core.approval import Decision
from deputy.core.events import ANSWER, APPROVAL, QuestionAnswered, QuestionAsked, RunOpened, ToolCallEnded
from deputy.core.outcome import Completed
from deputy.core.request import Grant, Lineage
from deputy.core.state import answer_key
from deputy.core.task import Task
from deputy.engine.call import DELEGATE, FanOut
from deputy.interfaces.questions import PendingApproval, answer_to, find_pending

MARK = "touch ../ran"


class AskingRun:
    """A run that asks: what it asks now, and answers to it."""

    def __init__(self, runtime: Any, run: str) -> None:
        self.runtime = runtime
        self.run = run

    async def now(self, *, after: str = "") -> PendingApproval:
        """What is asked now, once that is another question than the one of this key."""
        while True:
            state = await self.runtime.engine.get(self.run)
            asking = await find_pending(self.runtime.journal, self.run)
            if asking is not None and asking.key != after:
                return asking
            assert state.is_live, f"it is {state.status}, and has asked nothing"
            await asyncio.sleep(0.002)

    async def answer(self, asking: PendingApproval, choice: Any = "yes") -> bool:
        sent = answer_to(asking, choice, digest=asking.digest, now=0.0)
        return await self.runtime.engine.send(sent.run, APPROVAL, sent.decision, key=sent.key)

    async def end(self) -> Any:
        return await self.runtime.engine.result(self.run)


@asynccontextmanager
async def parent(house: House, *calls: Any):
    """A parent agent that makes these calls, one a turn."""
    house.script(talk(*(turn("", one) for one in calls), turn("Done."), when="You work for a person"), strict=False)
    async with house.open(approval="ask", can_ask=True) as runtime:
        yield AskingRun(runtime, await house.start_parent(runtime, "Do it."))


def shown(asking: PendingApproval) -> dict[str, str]:
    assert asking.request is not None
    return {part.name: part.text for part in asking.request.parts}


def tried(house: House, calls: tuple[Any, ...], do: Callable[[AskingRun], Awaitable[Any]]) -> Any:
    async def go() -> Any:
        async with parent(house, *calls) as asked:
            return await do(asked)

    return asyncio.run(go())


def is_run(house: House) -> bool:
    return (house.workspace.parent / "ran").exists()


async def denied(asked: AskingRun) -> PendingApproval:
    """What is asked first; it is denied."""
    asking = await asked.now()
    await asked.answer(asking, "no")
    assert isinstance(await asked.end(), Completed)
    return asking


# --- what is shown ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize(
    "arguments",
    [
        {"path": ".", "command": MARK},
        {"seconds": 5, "path": ".", "command": MARK},
        {"command": f"ls{' ' * 1700}; {MARK}"},
        {"command": f"ls\n{MARK}"},
        {"command": f"ls\r{MARK}"},
        {"command": f"echo {'x' * 90_000}; {MARK}"},
    ],
)
def test_a_command_is_shown_whole_and_first_whatever_the_order_of_the_arguments(house: House, arguments):
    asking = tried(house, (call("Run", **arguments),), denied)
    assert next(iter(shown(asking).items())) == ("command", arguments["command"])
    assert list(shown(asking)) == [name for name in ("command", "path", "seconds") if name in {"path": "", **arguments}]
    assert asking.request.risk == "high"
    assert not is_run(house)


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"command": "ls", "x": {"command": MARK}}, "'x': unknown"),
        ({"command": "ls", "\u202epath": "."}, "path': unknown"),
        ({"command": f"{MARK}\0"}, "must not contain a NUL character"),
        ({"command": f"{MARK} {'x' * 1_000_000}"}, "command: "),
        ({"command": f"{MARK} {'é' * 60_000}"}, "more than 100,000 bytes"),
        ({"command": MARK, "seconds": 3000}, "more than the limit of 120"),
    ],
)
def test_a_call_that_can_never_run_is_refused_without_a_question(house: House, arguments, reason):
    async def end(asked: AskingRun) -> list[Any]:
        assert isinstance(await asked.end(), Completed)
        return await asked.runtime.journal.records(asked.run)

    records = tried(house, (call("Run", **arguments),), end)
    assert not [one for one in records if isinstance(one.event, QuestionAsked)]
    [ended] = [one.event for one in records if isinstance(one.event, ToolCallEnded)]
    assert isinstance(ended.message, msgspec.Raw)
    assert reason in bytes(ended.message).decode("unicode_escape")
    assert len(ended.message) < 1000
    assert not is_run(house)


@pytest.mark.rule("approve.exact")
def test_a_write_is_shown_as_a_diff_with_the_digest_of_the_file(house: House):
    (house.workspace / "a.txt").write_text("one\ntwo\nthree")
    asking = tried(house, (call("Write", content="one\n2\nthree\n", path="a.txt"),), denied)
    assert shown(asking) == {
        "path": "a.txt",
        "file": shown(asking)["file"],
        "diff": "@@ -1,3 +1,3 @@\n one\n-two\n-three\n\\ No newline at end of file\n+2\n+three",
    }
    [file] = asking.request.files
    assert shown(asking)["file"] == f"13 bytes, SHA-256 {file.sha256}"


@pytest.mark.rule("approve.exact")
def test_an_edit_is_shown_as_a_diff_and_one_that_fails_says_so(house: House):
    (house.workspace / "a.txt").write_text("".join(f"line {number}\n" for number in range(20)))
    asking = tried(house, (call("Edit", path="a.txt", old="line 9\n", new="evil\n"),), denied)
    assert "\n-line 9\n+evil\n" in shown(asking)["diff"]
    assert shown(asking)["diff"].startswith("@@ -7,7 +7,7 @@\n line 6\n")
    asking = tried(house, (call("Edit", path="a.txt", old="not there", new="x"),), denied)
    assert "`old` does not occur in a.txt" in shown(asking)["fails"]


@pytest.mark.rule("approve.exact")
def test_a_new_file_is_shown_whole_and_a_link_with_where_it_leads(house: House):
    (house.workspace / "real.txt").write_text("x\n")
    (house.workspace / "link.txt").symlink_to("real.txt")
    asking = tried(house, (call("Write", path="new.txt", content="a\nb\n"),), denied)
    assert (shown(asking)["file"], shown(asking)["diff"]) == ("new", "@@ -1,0 +1,2 @@\n+a\n+b")
    asking = tried(house, (call("Write", path="link.txt", content="y\n"),), denied)
    assert shown(asking)["leads to"] == "real.txt"


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("hidden", [" " * 1000 + "PAYLOAD", "\n" * 500 + "PAYLOAD", "x" * 5000 + "PAYLOAD"])
def test_every_prompt_of_a_delegation_is_shown_whole_with_its_context_and_its_grants(house: House, hidden):
    (house.workspace / "notes.md").write_text("SECRET PLAN")
    one = {"label": "a", "prompt": "Look." + hidden, "context": ["notes.md"], "tools": ["Read", "Run"]}
    asking = tried(house, (call("Delegate", tasks=[one]),), denied)
    assert shown(asking)["task 1 prompt"] == "Look." + hidden
    assert shown(asking)["task 1 context"].startswith("notes.md (11 bytes, SHA-256 ")
    assert shown(asking)["task 1 tools"] == "Read, Run"
    assert "task 1 without asking" not in shown(asking)
    assert asking.request.risk == "high"


# --- what changes after it was shown ----------------------------------------------------------------------------------


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("tool", ["Write", "Edit"])
def test_a_file_that_changed_since_is_asked_for_again(house: House, tool):
    path = house.workspace / "a.txt"
    path.write_text("old\n")
    arguments = {"content": "new\n"} if tool == "Write" else {"old": "old", "new": "new"}

    async def swap(asked: AskingRun) -> Any:
        first = await asked.now()
        path.write_text("old\nand a line of somebody else\n")
        await asked.answer(first)
        second = await asked.now(after=first.key)
        unchanged = path.read_text()
        await asked.answer(second, "no")
        await asked.end()
        return first, second, unchanged

    first, second, unchanged = tried(house, (call(tool, path="a.txt", **arguments),), swap)
    assert unchanged == path.read_text() == "old\nand a line of somebody else\n"
    assert (first.digest != second.digest, second.key) == (True, f"{first.key}.2")
    assert "somebody else" in shown(second)["diff"]


@pytest.mark.rule("approve.exact")
def test_a_link_that_leads_elsewhere_since_is_asked_for_again(house: House):
    for name in ("a.txt", "b.txt"):
        (house.workspace / name).write_text("same\n")
    link = house.workspace / "link.txt"
    link.symlink_to("a.txt")

    async def swap(asked: AskingRun) -> PendingApproval:
        first = await asked.now()
        link.unlink()
        link.symlink_to("b.txt")
        await asked.answer(first)
        second = await asked.now(after=first.key)
        await asked.answer(second, "no")
        await asked.end()
        return second

    second = tried(house, (call("Write", path="link.txt", content="new\n"),), swap)
    assert shown(second)["leads to"] == "b.txt"
    assert (house.workspace / "b.txt").read_text() == "same\n"


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("is_link", [True, False])
def test_a_directory_that_is_another_one_since_is_asked_for_again(house: House, is_link):
    for name in ("a", "b"):
        (house.workspace / name).mkdir()
    link = house.workspace / "link"
    if is_link:
        link.symlink_to("a")
    else:
        link.mkdir()

    async def swap(asked: AskingRun) -> None:
        first = await asked.now()
        if is_link:
            link.unlink()
            link.symlink_to("b")
        else:
            link.rename(house.workspace / "gone")
            (house.workspace / "b").rename(link)
        await asked.answer(first)
        await asked.answer(await asked.now(after=first.key), "no")
        await asked.end()

    tried(house, (call("Run", command="touch made", path="link"),), swap)
    assert not list(house.workspace.rglob("made"))


def _appear(root: Path) -> None:
    (root / "d/a.txt").write_text("other\n")


def _lead_out(root: Path) -> None:
    (root / "d").rename(root / "moved")
    (root / "d").symlink_to("other")


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("change", [_appear, _lead_out])
def test_a_new_file_whose_place_changed_since_is_asked_for_again(house: House, change):
    for name in ("d", "other"):
        (house.workspace / name).mkdir()

    async def swap(asked: AskingRun) -> None:
        first = await asked.now()
        assert shown(first)["file"] == "new"
        change(house.workspace)
        await asked.answer(first)
        await asked.answer(await asked.now(after=first.key), "no")
        await asked.end()

    tried(house, (call("Write", path="d/a.txt", content="new\n"),), swap)
    assert not [path for path in house.workspace.rglob("a.txt") if path.read_text() != "other\n"]


@pytest.mark.rule("approve.exact")
def test_of_two_writes_of_a_turn_the_second_shows_what_the_first_wrote(house: House):
    async def go(asked: AskingRun) -> PendingApproval:
        first = await asked.now()
        await asked.answer(first)
        second = await asked.now(after=first.key)
        await asked.answer(second, "no")
        await asked.end()
        return second

    calls = [call("Write", path="a.txt", content=f"{word}\n") for word in ("one", "two")]
    second = tried(house, tuple(calls), go)
    assert shown(second)["diff"].splitlines()[1:] == ["-one", "+two"]
    assert (house.workspace / "a.txt").read_text() == "one\n"


@pytest.mark.rule("approve.exact")
def test_an_unchanged_file_is_written_after_one_yes(house: House):
    async def go(asked: AskingRun) -> None:
        await asked.answer(await asked.now())
        await asked.end()

    tried(house, (call("Write", path="deep/er/a.txt", content="new\n"),), go)
    assert (house.workspace / "deep" / "er" / "a.txt").read_text() == "new\n"


@pytest.mark.rule("approve.exact")
def test_a_context_file_that_changed_since_is_asked_for_again(house: House):
    notes = house.workspace / "notes.md"
    notes.write_text("harmless")

    async def swap(asked: AskingRun) -> tuple[PendingApproval, PendingApproval]:
        first = await asked.now()
        notes.write_text("evil")
        await asked.answer(first)
        second = await asked.now(after=first.key)
        await asked.answer(second, "no")
        await asked.end()
        return first, second

    one = {"label": "a", "prompt": "Look.", "context": ["notes.md"]}
    first, second = tried(house, (call("Delegate", tasks=[one]),), swap)
    assert first.digest != second.digest
    assert not [seen for seen in house.seen if seen.event == "started"]


async def begin_asking(house: House, runtime: Any, *tasks: Task, concurrency: int = 1) -> str:
    run = await runtime.engine.new_id()
    arguments = msgspec.Raw(msgspec.json.encode(FanOut(tasks=tasks, concurrency=concurrency, must_ask=True)))
    start = RunOpened(
        lineage=Lineage.root(run), model=house.model, command=DELEGATE, arguments=arguments, grant=Grant(tools=ALL)
    )
    await runtime.engine.submit(run, start)
    return run


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("choice", ["yes", "no"])
def test_a_context_file_that_changes_while_its_task_is_queued_is_asked_for_again(house: House, choice):
    notes = house.workspace / "notes.md"
    notes.write_text("harmless")
    house.script(
        talk(turn("", call("Write", path="notes.md", content="evil")), turn("Done."), when="of one"),
        talk(turn("Read."), when="evil"),
        strict=False,
    )
    first = Task(label="one", prompt="of one", tools=("Write",), isolation="none", without_asking=("Write",))
    second = Task(label="two", prompt="of two", context=("notes.md",))

    async def go() -> Any:
        async with house.open(approval="ask") as runtime:
            asked = AskingRun(runtime, await begin_asking(house, runtime, first, second))
            asking = await asked.now()
            await asked.answer(asking)
            again = await asked.now(after=asking.key)
            await asked.answer(again, choice)
            await asked.end()
            below = {state.label: state for state in await runtime.journal.descendants(asked.run)}
            outcome = await runtime.engine.outcome(below["two"].run, 0)
        async with house.open(approval="granted") as runtime:
            if choice == "no":
                await runtime.engine.resume(asked.run)
                await runtime.engine.result(asked.run)
            later = await runtime.engine.outcome(below["two"].run, int(choice == "no"))
        return shown(asking), shown(again), outcome, later

    output, changed, outcome, later = asyncio.run(go())
    # A resume with --yes approves the file as it is now.
    assert (later.status, later.report) == ("completed", "Read.")
    assert output["task 1 without asking"] == "may write files without asking"
    assert changed["changed"] == "Changed since the task was approved: 'notes.md'."
    assert hashlib.sha256(b"evil").hexdigest() in changed["context"]
    assert changed["prompt"] == "of two"
    if choice == "yes":
        assert (outcome.status, outcome.report) == ("completed", "Read.")
    else:
        assert (outcome.status, outcome.errors[0].code) == ("rejected", "CONTEXT_CHANGED")


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("choice", ["yes", "no"])
def test_a_definition_that_changed_since_is_asked_for_again(house: House, user, choice):
    user("scribe", "tools: Read", "You write verses.")

    async def swap(asked: AskingRun) -> list[str]:
        first = await asked.now()
        user("scribe", "tools: Read, Grep", "You search files.")
        await asked.answer(first)
        again = await asked.now(after=first.key)
        assert not [seen for seen in house.seen if seen.event == "started"]
        await asked.answer(again, choice)
        await asked.end()
        return [shown(one)["task 1 tools"] for one in (first, again)]

    tasks = [{"label": "a", "prompt": "Look.", "agent": "scribe"}]
    assert tried(house, (call("Delegate", tasks=tasks),), swap) == ["Read", "Grep, Read"]
    assert len([seen for seen in house.seen if seen.event == "started"]) == (choice == "yes")


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("tool", [call("Run", command=MARK), call("Write", path="a.txt", content="new")])
def test_an_approval_counts_in_its_folder_only(house: House, tool):
    """Another directory at the same path, or another workspace at the resume, is asked for again."""

    async def swap(asked: AskingRun) -> tuple[str, PendingApproval]:
        first = await asked.now()
        house.workspace.rename(house.workspace.with_name("old"))
        house.workspace.mkdir()
        await asked.answer(first)
        again = await asked.now(after=first.key)
        await asked.answer(again, "no")
        await asked.end()
        assert first.request is not None
        return first.request.folder, again

    folder, again = tried(house, (tool,), swap)
    assert folder == again.request.folder == str(house.workspace)
    assert not is_run(house)
    assert not list(house.workspace.iterdir())


@pytest.mark.rule("approve.exact")
def test_always_ends_with_the_process(house: House):
    house.script(
        talk(
            turn("", call("Run", command="true")),
            turn("", call("Ask", question="Go on?")),
            turn("", call("Run", command=MARK)),
            turn("Done."),
            when="You work for a person",
        ),
        strict=False,
    )

    async def begin() -> str:
        async with house.open(approval="ask", can_ask=True) as runtime:
            asked = AskingRun(runtime, await house.start_parent(runtime, "Do it."))
            await asked.answer(await asked.now(), "always")
            await house.until(lambda: any(seen.content == "Go on?" for seen in house.seen))
            return asked.run

    async def resume(run: str) -> None:
        async with house.open(approval="ask", can_ask=True) as runtime:
            asked = AskingRun(runtime, run)
            await runtime.engine.ensure_running(run)
            await runtime.engine.send(run, ANSWER, "yes")
            second = await asked.now()
            assert shown(second)["command"] == MARK
            await asked.answer(second, "no")
            await asked.end()

    asyncio.run(resume(asyncio.run(begin())))
    assert not is_run(house)


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("is_changed", [True, False])
def test_a_subtask_shows_its_whole_request_and_its_files(house: House, is_changed):
    (house.workspace / "f.txt").write_text("harmless")
    request = {
        "type": "check",
        "description": "Check it.",
        "inputs": {"claim": "x"},
        "file_paths": ["f.txt"],
        "context_management": {"inherit_context": "full"},
    }
    house.script(
        talk(turn("", call("Subtask", requests=[request])), turn("Done."), when="You work for a person"),
        talk(turn("Checked."), when="Check it."),
        strict=False,
    )

    async def go() -> list[PendingApproval]:
        async with house.open(approval="ask", can_ask=True) as runtime:
            asked = AskingRun(runtime, await house.start_parent(runtime, "Do it."))
            found = [await asked.now()]
            if is_changed:
                (house.workspace / "f.txt").write_text("evil")
            await asked.answer(found[0])
            if is_changed:
                found.append(await asked.now(after=found[0].key))
                await asked.answer(found[1], "no")
            await asked.end()
            return found

    first, *again = asyncio.run(go())
    output = shown(first)
    assert hashlib.sha256(b"harmless").hexdigest() in output["task 1 context"]
    assert '"inherit_context":"full"' in output["request 1"]
    assert [hashlib.sha256(b"evil").hexdigest() in shown(one)["task 1 context"] for one in again] == [True] * is_changed


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize("is_changed", [True, False])
def test_a_yes_before_a_crash_counts_for_what_is_there_after_it(house: House, is_changed):
    path = house.workspace / "a.txt"
    path.write_text("old\n")
    house.script(
        talk(turn("", call("Write", path="a.txt", content="new\n")), turn("Done."), when="You work for a person"),
        strict=False,
    )

    async def ask() -> str:
        async with house.open(approval="ask", can_ask=True) as runtime:
            asked = AskingRun(runtime, await house.start_parent(runtime, "Do it."))
            await asked.now()
            return asked.run

    async def go(run: str) -> str:
        async with house.open(approval="ask", can_ask=True) as runtime:
            asked = AskingRun(runtime, run)
            first = await asked.now()
            await asked.answer(first)
            if is_changed:
                path.write_text("somebody else\n")
            await runtime.engine.ensure_running(run)
            if is_changed:
                await asked.answer(await asked.now(after=first.key), "no")
            await asked.end()
            return path.read_text()

    assert asyncio.run(go(asyncio.run(ask()))) == ("somebody else\n" if is_changed else "new\n")


# --- answers that are none --------------------------------------------------------------------------------------------


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize(
    "body",
    [True, "yes", {"choice": "yes"}, {"choice": "yes", "digest": ""}, {"choice": "yes", "digest": "0" * 64}, 1],
)
def test_an_answer_that_does_not_name_the_digest_approves_nothing(house: House, body):
    async def forge(asked: AskingRun) -> None:
        asking = await asked.now()
        await asked.runtime.engine.send(asked.run, APPROVAL, body, key=answer_key(asking.key))
        await asked.end()

    tried(house, (call("Run", command=MARK),), forge)
    assert not is_run(house)


@pytest.mark.rule("approve.exact")
def test_an_answer_to_the_last_question_does_not_answer_the_next(house: House):
    async def late(asked: AskingRun) -> None:
        first = await asked.now()
        await asked.answer(first, "no")
        second = await asked.now(after=first.key)
        await asked.answer(first, "yes")
        assert (await asked.now()).key == second.key
        await asked.answer(second, "no")
        await asked.end()

    tried(house, (call("Run", command="ls"), call("Run", command=MARK)), late)
    assert not is_run(house)


@pytest.mark.rule("approve.exact")
def test_the_digest_of_one_call_does_not_approve_another_that_says_the_same(house: House):
    async def replayed(asked: AskingRun) -> None:
        first = await asked.now()
        await asked.answer(first, "yes")
        second = await asked.now(after=first.key)
        assert second.digest != first.digest
        decision = Decision(choice="yes", digest=first.digest)
        await asked.runtime.engine.send(asked.run, APPROVAL, decision, key=answer_key(second.key))
        await asked.end()

    tried(house, (call("Run", command="echo x >> ../ran"), call("Run", command="echo x >> ../ran")), replayed)
    assert (house.workspace.parent / "ran").read_text() == "x\n"


@pytest.mark.rule("approve.exact")
def test_of_two_answers_the_first_counts(house: House):
    async def twice(asked: AskingRun) -> tuple[bool, bool]:
        asking = await asked.now()
        both = await asked.answer(asking, "no"), await asked.answer(asking, "yes")
        await asked.end()
        return both

    assert tried(house, (call("Run", command=MARK),), twice) == (True, False)
    assert not is_run(house)


# --- always -----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("approve.exact")
def test_always_is_for_one_tool_in_one_run_and_recorded(house: House):
    one = {"label": "a", "prompt": "of a", "tools": ["Run"], "isolation": "none"}
    calls = (
        call("Run", command="echo 1 >> ../ran"),
        call("Run", command="echo 2 >> ../ran"),
        call("Write", path="a.txt", content="x"),
        call("Delegate", tasks=[one]),
    )
    child = talk(turn("", call("Run", command="echo child >> ../ran")), turn("Done."), when="of a")

    async def go() -> tuple[list[str], str, str]:
        house.script(
            talk(*(turn("", each) for each in calls), turn("Done."), when="You work for a person"),
            child,
            talk(turn("", call("Run", command="echo later >> ../ran")), turn("Done."), when="go on"),
            strict=False,
        )
        async with house.open(approval="ask", can_ask=True) as runtime:
            asked = AskingRun(runtime, await house.start_parent(runtime, "Do it."))
            tools: list[str] = []
            key = ""
            for choice in ("always", "no", "yes", "no"):
                asking = await asked.now(after=key)
                assert asking.request is not None
                tools.append(asking.request.tool)
                key = asking.key
                await asked.answer(asking, choice)
            await asked.end()
            recorded = [
                bytes(record.event.body).decode()
                for record in await runtime.journal.records(asked.run)
                if isinstance(record.event, QuestionAnswered)
            ]
            return tools, recorded[0], (house.workspace.parent / "ran").read_text()

    tools, recorded, ran = asyncio.run(go())
    assert tools == ["Run", "Write", "Delegate", "Run"]
    assert '"choice":"always"' in recorded
    assert ran == "1\n2\n"


@pytest.mark.rule("approve.exact")
def test_always_does_not_outlive_the_round(house: House):
    house.script(
        talk(
            turn("", call("Run", command="echo 1 >> ../ran")),
            turn("Done."),
            turn("", call("Run", command="echo 2 >> ../ran")),
            turn("Done again."),
        ),
        strict=False,
    )

    async def go() -> str:
        async with house.open(approval="ask", can_ask=True) as runtime:
            asked = AskingRun(runtime, await house.start_parent(runtime, "Do it."))
            first = await asked.now()
            await asked.answer(first, "always")
            await asked.end()
            await runtime.engine.resume(asked.run, "Go on.")
            await asked.answer(await asked.now(after=first.key), "no")
            await asked.end()
            return (house.workspace.parent / "ran").read_text()

    assert asyncio.run(go()) == "1\n"


@pytest.mark.rule("approve.exact")
def test_a_delegation_cannot_be_approved_for_good(house: House):
    async def always(asked: AskingRun) -> None:
        asking = await asked.now()
        assert asking.request is not None
        assert not asking.request.can_always
        with pytest.raises(Exception, match="call by call"):
            await asked.answer(asking, "always")
        await asked.answer(asking, "no")
        await asked.end()

    tried(house, (call("Delegate", tasks=[{"label": "a", "prompt": "x"}]),), always)


# --- subagents --------------------------------------------------------------------------------------------------------


def one_child(house: House, task: Task, *calls: Any, answers: tuple[str, ...] = ()) -> list[str]:
    """What a subagent of an approved call asks for, one after another."""
    house.script(talk(*(turn("", each) for each in calls), turn("Done.")), strict=False)

    async def go() -> list[str]:
        async with house.open(approval="ask", can_ask=True) as runtime:
            asked = AskingRun(runtime, await begin_asking(house, runtime, task))
            key, tools = "", []
            for choice in ("yes", *answers):
                asking = await asked.now(after=key)
                key = asking.key
                assert asking.request is not None
                tools.append(asking.request.tool)
                await asked.answer(asking, choice)
            await asked.end()
            every = [asked.run, *(state.run for state in await runtime.journal.descendants(asked.run))]
            records = [record for run in every for record in await runtime.journal.records(run)]
            assert sum(isinstance(record.event, QuestionAsked) for record in records) == len(tools)
            return tools

    return asyncio.run(go())


@pytest.mark.rule("approve.child")
def test_a_subagent_asks_for_each_command_and_each_write_in_place(house: House):
    task = Task(label="a", prompt="x", tools=("Run", "Write"), isolation="none")
    calls = (call("Run", command="ls"), call("Write", path="a.txt", content="x"), call("Run", command=MARK))
    assert one_child(house, task, *calls, answers=("yes", "no", "no")) == ["Delegate", "Run", "Write", "Run"]
    assert not is_run(house)
    assert not (house.workspace / "a.txt").exists()


@pytest.mark.rule("approve.child")
def test_only_what_the_approval_named_in_words_is_done_without_asking(house: House):
    task = Task(label="a", prompt="x", tools=("Run", "Write"), isolation="none", without_asking=("Write",))
    calls = (call("Write", path="a.txt", content="x"), call("Run", command=MARK))
    assert one_child(house, task, *calls, answers=("no",)) == ["Delegate", "Run"]
    assert (house.workspace / "a.txt").exists()
    assert not is_run(house)


@pytest.mark.rule("approve.child")
def test_writes_in_a_worktree_are_approved_with_the_task_and_commands_there_are_not(house: House):
    for arguments in (("init", "-q"), ("add", "-A"), ("commit", "-q", "--allow-empty", "-m", "x")):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        subprocess.run(["git", *identity, *arguments], cwd=house.workspace, check=True)
    task = Task(label="a", prompt="x", tools=("Run", "Write"))
    calls = (call("Write", path="a.txt", content="x"), call("Run", command=MARK))
    assert one_child(house, task, *calls, answers=("no",)) == ["Delegate", "Run"]
    assert not (house.workspace / "a.txt").exists()


@pytest.mark.rule("approve.child")
def test_a_tool_that_the_task_does_not_have_cannot_be_named_without_asking(house: House):
    one = {"label": "a", "prompt": "x", "tools": ["Read"], "without_asking": ["Run"]}

    async def go(asked: AskingRun) -> Any:
        return await asked.end()

    outcome = tried(house, (call("Delegate", tasks=[one]),), go)
    assert "tasks[0].without_asking has 'Run', which is not in `tools`." in house.results(outcome)[0]
