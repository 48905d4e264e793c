"""Answers from the page: to exactly the question that was shown, once, in time; and what is asked now if not."""

import asyncio
import time

import pytest
from tests.support.scripts import call, talk, turn
from tests.support.web_client import open_page

from deputy.core.approval import ApprovalPart, ApprovalRequest
from deputy.core.events import QuestionAsked
from deputy.core.state import ASKED
from deputy.core.task import Task
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.testing.queries_suite import opened

HUGE = "x = 'a secret-looking line sk-ant-api03-" + "Zq8" * 28 + "'\n" + "".join(f"line {n}\n" for n in range(10_000))
WRITER = Task(label="writer", prompt="Write.", tools=("Read", "Write"), isolation="none")


async def until_waiting(client, count: int = 1):
    """The open questions, once there are so many."""
    board = await client.get("/api/board")
    async with client.follow(board["cursor"]) as stream:
        while len(waiting := (await client.get("/api/board"))["waiting"]) < count:
            await stream.next()
    return waiting


def answer(one, **more):
    return {"key": one["key"], "digest": one["digest"], **more}


def scripted_writer(house, content: str = "new\n"):
    house.script(talk(turn("", call("Write", path="a.txt", content=content)), turn("done")))


@pytest.mark.rule("approve.who")
def test_an_approval_on_the_page_lets_exactly_that_call_run(house):
    scripted_writer(house, HUGE)

    async def main():
        async with open_page(house.home) as client, house.open(approval="ask") as runtime:
            top = await house.begin(runtime, WRITER)
            (one,) = await until_waiting(client)
            assert one["topic"] == "approval"
            assert (one["path"], one["label"]) == (["delegate"], "writer")
            assert one["about"]["risk"] == "high"
            shown = "".join(part["text"] for part in one["about"]["parts"])
            # Every byte is shown, also what would be redacted elsewhere.
            assert all(f"+{line}" in shown for line in HUGE.splitlines())
            sent = await client.post(f"/api/runs/{one['run']}/answer", answer(one, approve=True))
            await runtime.engine.result(top)
            return sent

    assert asyncio.run(main()) == (200, {"counted": True, "taken": True})
    assert (house.workspace / "a.txt").read_text() == HUGE


def test_the_timeline_of_a_run_that_waits_for_an_approval_lasts_until_now(house):
    scripted_writer(house)

    async def main():
        async with open_page(house.home) as client, house.open(approval="ask") as runtime:
            top = await house.begin(runtime, WRITER)
            (one,) = await until_waiting(client)
            lanes = (await client.get(f"/api/tree/{top}"))["lanes"]
            await client.post(f"/api/runs/{one['run']}/answer", answer(one, approve=False))
            await runtime.engine.result(top)
            return next(lane["spans"] for lane in lanes if lane["run"] == one["run"])

    kind, _, end, *_ = asyncio.run(main())[-1]
    assert (kind, end) == ("waiting", None)


def test_a_denial_runs_nothing(house):
    scripted_writer(house)

    async def main():
        async with open_page(house.home) as client, house.open(approval="ask") as runtime:
            top = await house.begin(runtime, WRITER)
            (one,) = await until_waiting(client)
            sent = await client.post(f"/api/runs/{one['run']}/answer", answer(one, approve=False))
            await runtime.engine.result(top)
            return sent

    assert asyncio.run(main())[1]["counted"]
    assert not (house.workspace / "a.txt").exists()


@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ({"digest": "0" * 64}, 409, "OTHER_QUESTION"),
        ({"digest": ""}, 409, "OTHER_QUESTION"),
        ({"key": "approval:99"}, 409, "NOT_ASKED"),
        ({"approve": None, "words": "yes"}, 400, "BAD_REQUEST"),
        ({"approve": None}, 400, "BAD_REQUEST"),
        ({"approve": "yes"}, 400, "BAD_REQUEST"),
        ({"approve": True, "other": 1}, 400, "BAD_REQUEST"),
        ({"approve": False, "always": True}, 400, "BAD_REQUEST"),
    ],
)
def test_an_answer_to_another_question_is_refused_with_what_is_asked_now(house, changed, status, code):
    scripted_writer(house)

    async def main():
        async with open_page(house.home) as client, house.open(approval="ask") as runtime:
            top = await house.begin(runtime, WRITER)
            (one,) = await until_waiting(client)
            sent = await client.post(f"/api/runs/{one['run']}/answer", {**answer(one, approve=True), **changed})
            assert not (house.workspace / "a.txt").exists()
            await client.post(f"/api/runs/{one['run']}/answer", answer(one, approve=False))
            await runtime.engine.result(top)
            return one, sent

    one, (given, content) = asyncio.run(main())
    assert (given, content["error"]["code"]) == (status, code)
    if status == 409:
        assert content["now"]["digest"] == one["digest"]
        assert content["error"]["remedy"]


def test_of_two_clicks_the_first_counts_and_the_second_is_shown_what_won(house):
    scripted_writer(house)

    async def main():
        async with open_page(house.home) as client, house.open(approval="ask") as runtime:
            top = await house.begin(runtime, WRITER)
            (one,) = await until_waiting(client)
            first = await client.post(f"/api/runs/{one['run']}/answer", answer(one, approve=False))
            second = await client.post(f"/api/runs/{one['run']}/answer", answer(one, approve=True))
            await runtime.engine.result(top)
            third = await client.post(f"/api/runs/{one['run']}/answer", answer(one, approve=True))
            return first, second, third

    first, second, third = asyncio.run(main())
    assert first == (200, {"counted": True, "taken": True})
    assert (second[0], second[1]["error"]["code"]) == (409, "ANSWERED")
    assert "denied" in second[1]["error"]["message"]
    assert (third[0], third[1]["now"]) == (409, None)
    assert not (house.workspace / "a.txt").exists()


def test_a_late_yes_does_not_count_and_a_late_no_does(tmp_path):
    home, run = tmp_path / "home", "sess_1_root00"
    request = ApprovalRequest(tool="Run", title="Run", parts=(ApprovalPart(name="command", text="ls"),), risk="high")

    async def main():
        async with SqliteJournal(home, fsync="off") as journal, open_page(home) as client:
            lease = await journal.begin(run, opened(run))
            asked = QuestionAsked(
                topic="approval", question="Run: ls", until=time.time() - 1, request=request, digest=request.digest
            )
            await journal.append(lease, f"ask{ASKED}", asked)
            given = {"key": "ask", "digest": request.digest}
            late = await client.post(f"/api/runs/{run}/answer", {**given, "approve": True})
            denied = await client.post(f"/api/runs/{run}/answer", {**given, "approve": False})
            return late, denied

    late, denied = asyncio.run(main())
    assert (late[0], late[1]["error"]["code"]) == (409, "TOO_LATE")
    assert denied == (200, {"counted": True, "taken": False})


def test_a_question_in_words_is_answered_in_words(house):
    house.script(talk(turn("", call("Ask", question="Which <b>one</b>?")), turn("done")))

    async def main():
        async with open_page(house.home) as client, house.open(can_ask=True) as runtime:
            run = await house.start_parent(runtime, "Choose.")
            (one,) = await until_waiting(client)
            assert (one["topic"], one["question"], one["about"]) == ("answer", "Which <b>one</b>?", None)
            assert (await client.post(f"/api/runs/{run}/answer", answer(one, approve=True)))[0] == 400
            assert (await client.post(f"/api/runs/{run}/answer", answer(one, words="  ")))[0] == 400
            sent = await client.post(f"/api/runs/{run}/answer", answer(one, words="the second"))
            await runtime.engine.result(run)
            return run, sent

    run, sent = asyncio.run(main())
    assert sent == (200, {"counted": True, "taken": True})
    assert house.results_of(run)[0] == "the second"


def test_an_answer_without_a_process_at_work_is_kept_and_not_taken(house):
    scripted_writer(house)

    async def main():
        async with open_page(house.home) as client:
            async with house.open(approval="ask") as runtime:
                await house.begin(runtime, WRITER)
                (one,) = await until_waiting(client)
            sent = await client.post(f"/api/runs/{one['run']}/answer", answer(one, approve=True))
            (after,) = (await client.get("/api/board"))["waiting"]
            return sent, after

    sent, after = asyncio.run(main())
    assert sent == (200, {"counted": True, "taken": False})
    assert after["answered"]
    house._scripted.clear()
