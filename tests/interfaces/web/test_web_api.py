"""What the routes answer: the same as the journal, redacted, in pages."""

import asyncio
import io
import json
import subprocess
import zipfile

from tests.support.busy_journal import BusyJournal
from tests.support.scripts import call, talk, turn
from tests.support.web_client import open_page

from deputy.core.limits import Budget
from deputy.core.task import Task
from deputy.engine.recover import shown_status
from deputy.interfaces.web.board import FIELDS, Frame, read_position
from deputy.interfaces.web.feed import RESET, Reader
from deputy.journal.registry import list_runs
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

SECRET = "sk-ant-api03-" + "Zq8" * 28
TASK = Task(label="scout", prompt="Look around.")


def field(row, name):
    return row[FIELDS.index(name)]


def repository(folder):
    def git(*words):
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True, capture_output=True
        )

    git("init", "-q", "-b", "main")
    (folder / "a.py").write_text("one\ntwo\n")
    git("add", ".")
    git("commit", "-qm", "first")


def test_the_board_has_the_statuses_of_ps_and_the_totals_of_the_journal(house):
    house.script(talk(turn("all is well"), times=2))
    asyncio.run(house.delegate(TASK, Task(label="other", prompt="Look too.")))

    async def main():
        async with open_page(house.home) as client:
            return await client.get("/api/board")

    board = asyncio.run(main())
    with SqliteQueries.open(house.home) as queries:
        listed = list_runs(queries, ended=200)
    assert board["fields"] == list(FIELDS)
    assert {row[0]: field(row, "status") for row in board["runs"]} == {
        one.state.run: shown_status(one) for one in listed
    }
    assert {row[0]: field(row, "input") for row in board["runs"]} == {
        one.state.run: one.state.usage.input for one in listed
    }
    assert [field(row, "label") for row in board["runs"]] == ["delegate", "scout", "other"]
    assert board["journal"]["state"] == "ok"


def test_a_home_without_a_journal_and_then_with_one(house):
    house.home.mkdir(mode=0o700)

    async def main():
        async with open_page(house.home) as client:
            board = await client.get("/api/board")
            assert board["journal"]["state"] == "none"
            assert (await client.ask("GET", "/api/runs/x"))[0] == 503
            async with client.follow(board["cursor"]) as stream:
                house.script(talk(turn("all is well")))
                await house.delegate(TASK)
                await stream.until(lambda event, _: event == "reset")
            return await client.get("/api/board")

    assert len(asyncio.run(main())["runs"]) == 2


def test_every_frame_has_the_position_that_a_reader_continues_from(house, monkeypatch):
    monkeypatch.setattr("deputy.interfaces.web.feed.BEAT_SECONDS", 0.1)
    house.home.mkdir(mode=0o700)
    house.script(talk(turn("all is well")))

    async def main():
        async with open_page(house.home) as client:
            first = (await client.get("/api/board"))["cursor"]
            async with client.follow(first) as stream:
                frames = [await stream.next()]
                outcome = (await house.delegate(TASK))[0]
                while frames[-1][0] != "reset":
                    frames.append(await stream.next())
            board = await client.get("/api/board")
            async with client.follow(board["cursor"]) as stream:
                await client.post(f"/api/runs/{outcome.session_id}/pin", {})
                while {"beat", "job"} - {event for event, _, _ in frames[1:]}:
                    frames.append(await stream.next())
            return first, board["cursor"], frames

    first, last, frames = asyncio.run(main())
    assert frames[0][:2] == ("beat", first)
    assert all(position for _, position, _ in frames), frames
    server = last.split(".")[3]
    assert {position.split(".")[3] for event, position, _ in frames[1:] if event == "job"} == {server}


def test_the_stream_shows_a_run_from_its_request_to_its_end(house):
    house.script(talk(turn("I look at", call("Glob", pattern="*")), turn("all is well")))

    async def main():
        async with open_page(house.home) as client, house.open() as runtime:
            board = await client.get("/api/board")
            async with client.follow(board["cursor"]) as stream:
                run = await house.begin(runtime, TASK)
                statuses = []
                while "completed" not in statuses:
                    event, _, data = await stream.next()
                    if event == "rows":
                        statuses += [field(row, "status") for row in data["rows"] if field(row, "label") == "scout"]
                return run

    assert asyncio.run(main())


def test_text_and_records_are_streamed_only_to_the_watchers_of_the_run(house):
    house.script(talk(turn("first words", call("Glob", pattern="*")), turn("all is well " * 20, pace_seconds=0.05)))

    async def main():
        async with open_page(house.home) as client, house.open() as runtime:
            top = await house.begin(runtime, TASK)
            await house.until(lambda: any(one.event == "tool_call" for one in house.seen))
            (child,) = await runtime.journal.descendants(top)
            board = await client.get("/api/board")
            async with client.follow(board["cursor"], child.run) as stream, client.follow(board["cursor"]) as other:
                said = await stream.until(lambda event, _: event == "text")
                heads = await stream.until(lambda event, data: event == "records" and data["run"] == child.run)
                events = set()
                while "completed" not in str(events):
                    event, _, data = await other.next()
                    events.add(event + (field(data["rows"][-1], "status") if event == "rows" else ""))
                return said, heads, events

    said, heads, events = asyncio.run(main())
    assert said["piece"] in "first words" + "all is well " * 20
    assert all(len(head) == 5 for head in heads["heads"])
    assert not {"text", "records"} & events


def test_a_stream_without_news_beats_and_every_other_frame_has_a_position(house, monkeypatch):
    monkeypatch.setattr("deputy.interfaces.web.feed.BEAT_SECONDS", 0.05)
    house.script(talk(turn("all is well")))

    async def main():
        async with open_page(house.home) as client, house.open() as runtime:
            board = await client.get("/api/board")
            async with client.follow(board["cursor"]) as stream:
                await stream.until(lambda event, _: event == "beat")
                await house.begin(runtime, TASK)
                seen = []
                while not any(event == "rows" and "completed" in str(data) for event, _, data in seen):
                    seen.append(await stream.next())
                return seen

    positions = [position for event, position, _ in asyncio.run(main()) if event not in ("beat", "job")]
    assert positions
    assert all(read_position(one) is not None for one in positions)


def test_one_run_has_everything_about_it_and_its_records_come_in_pages(house):
    house.script(talk(turn("", call("Note", content="**seen** it"), call("Glob", pattern="*")), turn("all is well")))
    outcome = house.one(TASK)

    async def main():
        async with open_page(house.home) as client:
            run = outcome.session_id
            whole = await client.get(f"/api/runs/{run}")
            pages = [
                await client.get(f"/api/runs/{run}/records?after={after}&limit=3&bodies=1")
                for after in range(0, whole["seq"], 3)
            ]
            notes = await client.get(f"/api/runs/{run}/notes")
            said = await client.get(f"/api/runs/{run}/transcript")
            spans = await client.get(f"/api/tree/{whole['parent']}")
            usage = await client.get("/api/usage")
            assert (await client.ask("GET", f"/api/runs/{run}/records?after=-1"))[0] == 400
            for path in ("", "/records", "/notes", "/transcript", "/diff", "/export.zip", "/report.html"):
                assert (await client.ask("GET", f"/api/runs/sess_none{path}"))[0] == 404
            return whole, pages, notes, said, spans, usage

    whole, pages, notes, said, spans, usage = asyncio.run(main())
    assert (whole["prompt"], whole["status"]) == ("Look around.", "completed")
    assert whole["outcome"]["report"] == "all is well"
    assert len(whole["turns_used"]) == 2
    heads = [head for page in pages for head in page["heads"]]
    assert [head[0] for head in heads] == list(range(1, whole["seq"] + 1))
    assert [head[2] for head in heads] == [record.event.kind for record in house.records(outcome.session_id)]
    assert [note[2] for note in notes["notes"]] == ["**seen** it"]
    assert said["transcript"]["messages"][-1]["content"] == "all is well"
    assert {span[0] for lane in spans["lanes"] for span in lane["spans"]} == {"model", "tool"}
    assert usage["model"][0]


def test_a_run_has_what_was_used_of_each_of_its_budgets(house):
    house.script(talk(turn("", call("Glob", pattern="*")), turn("all is well")))
    outcome = house.one(Task(label="scout", prompt="Look around.", budget=Budget(tokens=50_000, requests=5)))

    async def main():
        async with open_page(house.home) as client:
            return await client.get(f"/api/runs/{outcome.session_id}")

    budgets = {one["resource"]: (one["used"], one["cap"]) for one in asyncio.run(main())["budgets"]}
    used = outcome.usage
    assert budgets == {"tokens": (used.input + used.output, 50_000), "requests": (2, 5)}


def test_the_diff_of_a_worktree_comes_file_by_file_and_without_secrets(house):
    repository(house.workspace)
    house.script(
        talk(
            turn(
                "",
                call("Write", path="b.py", content=f"KEY = '{SECRET}'\nthree\n"),
                call("Write", path=".env", content="A=1\n"),
            ),
            turn("", call("Edit", path="a.py", old="two", new="2")),
            turn("done"),
        )
    )
    outcome = house.one(Task(label="writer", prompt="Write.", tools=("Read", "Write", "Edit")))

    async def main():
        async with open_page(house.home) as client:
            run = outcome.session_id
            files = await client.get(f"/api/runs/{run}/diff")
            patches = {
                one["path"]: (await client.get(f"/api/runs/{run}/diff?path={one['path']}"))["patch"]
                for one in files["files"]
            }
            return files, patches

    house.workspace.joinpath("unrelated.txt").write_text("x")
    files, patches = asyncio.run(main())
    changed = {one["path"]: (one["added"], one["removed"]) for one in files["files"]}
    assert (changed["a.py"], changed["b.py"]) == ((1, 1), (2, 0))
    assert "-two\n+2" in patches["a.py"]
    assert "+three" in patches["b.py"]
    assert SECRET not in patches["b.py"]
    assert patches.get(".env", "") == ""


def test_an_export_is_a_zip_of_the_whole_tree(house):
    house.script(talk(turn("all is well")))
    outcome = house.one(TASK)

    async def main():
        async with open_page(house.home) as client:
            top = (await client.get(f"/api/runs/{outcome.session_id}"))["parent"]
            return top, await client.get(f"/api/runs/{top}/export.zip")

    top, content = asyncio.run(main())
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        assert json.loads(archive.read(f"{top}/export.json"))["session_id"] == top
    assert f"{top}/events.jsonl" in names
    assert any(name.startswith(f"{top}/subagents/scout-") for name in names)


def test_no_secret_is_in_any_response(house):
    """A secret in the prompt, the label, tool arguments, results, notes, texts and the report."""
    (house.workspace / "conf.txt").write_text(f"token={SECRET}\n")
    house.script(
        talk(
            turn(f"key {SECRET}", call("Read", path="conf.txt"), call("Note", content=f"saw {SECRET}")),
            turn(f"The key is {SECRET}."),
        )
    )
    outcome = house.one(Task(label="use", prompt=f"Use {SECRET} now."))

    async def main():
        async with open_page(house.home) as client:
            run = outcome.session_id
            top = (await client.get(f"/api/runs/{run}"))["parent"]
            bodies = [
                await client.get(path)
                for path in (
                    "/api/board",
                    "/api/usage",
                    f"/api/tree/{top}",
                    *(
                        f"/api/runs/{one}{what}"
                        for one in (run, top)
                        for what in ("", "/records?bodies=1", "/records", "/notes", "/transcript", "/report.html")
                    ),
                )
            ]
            archive = zipfile.ZipFile(io.BytesIO(await client.get(f"/api/runs/{top}/export.zip")))
            async with client.follow("0.0.0.x.0", run) as stream:
                bodies.append((await stream.next())[2])
            return bodies + [archive.read(name).decode() for name in archive.namelist()]

    assert SECRET.encode() in b"".join(path.read_bytes() for path in house.home.glob("journal.db*"))
    for body in asyncio.run(main()):
        assert SECRET[:30] not in str(body)


def test_a_damaged_journal_is_read_and_not_written(house):
    house.script(talk(turn("all is well")))
    house.one(TASK)
    with SqliteQueries.open(house.home) as queries:
        (run,) = [state.run for state in queries.ended(10) if state.parent]
    import sqlite3

    with sqlite3.connect(house.home / "journal.db") as connection:
        connection.execute("UPDATE runs SET sum = x'00' WHERE run = ?", (run,))
    connection.close()

    async def main():
        async with open_page(house.home) as client:
            board = await client.get("/api/board")
            answer = {"key": "x", "digest": "x", "approve": True}
            for path, body in (("resume", {}), ("again", {}), ("pin", {}), ("answer", answer)):
                status, content = await client.post(f"/api/runs/{run}/{path}", body)
                assert status == 503, path
                assert "doctor" in content["error"]["remedy"]
                assert "doctor" not in content["error"]["message"]
            assert (await client.post("/api/cancel", {"ids": [run]}))[0] == 503
            return board, await client.get(f"/api/runs/{run}")

    board, whole = asyncio.run(main())
    assert board["journal"]["state"] == "damaged"
    assert "its checksum does not fit" in board["journal"]["message"]
    assert "doctor" not in board["journal"]["message"]
    assert [field(row, "status") for row in board["runs"] if row[0] == run] == ["completed"]
    assert whole["outcome"]["report"] == "all is well"


def test_a_page_learns_of_damage_as_soon_as_the_server_has_read_it(house):
    house.script(talk(turn("all is well")))
    outcome = house.one(TASK)
    import sqlite3

    with sqlite3.connect(house.home / "journal.db") as connection:
        connection.execute("UPDATE events SET sum = x'00' WHERE run = ? AND seq = 2", (outcome.session_id,))
    connection.close()

    async def main():
        async with open_page(house.home) as client:
            board = await client.get("/api/board")
            async with client.follow(board["cursor"]) as stream:
                await client.get(f"/api/runs/{outcome.session_id}/records")
                await stream.until(lambda event, _: event == "reset")
            assert (await client.post(f"/api/runs/{outcome.session_id}/resume", {}))[0] == 503
            return board, await client.get("/api/board")

    before, after = asyncio.run(main())
    # Records are not read before a person opens their run.
    assert before["journal"]["state"] == "ok"
    assert after["journal"]["state"] == "damaged"
    assert outcome.session_id in after["journal"]["message"]


def test_when_nothing_is_live_the_board_has_the_latest_fifty_runs(house):
    async def main():
        async with SqliteJournal(house.home, fsync="off") as journal:
            busy = BusyJournal(journal)
            for number in range(53):
                await busy.complete(*await busy.root(f"run {number}"))
        async with open_page(house.home) as client:
            return await client.get("/api/board")

    labels = [field(row, "label") for row in asyncio.run(main())["runs"]]
    assert labels == [f"run {number}" for number in range(3, 53)]


def test_a_journal_of_a_newer_version_is_not_read(house):
    house.script(talk(turn("all is well")))
    house.one(TASK)
    import sqlite3

    with sqlite3.connect(house.home / "journal.db") as connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()

    async def main():
        async with open_page(house.home) as client:
            return await client.get("/api/board")

    assert asyncio.run(main())["journal"]["state"] == "newer"


def test_metrics_are_served_to_scrapers_with_the_token(house):
    async def main():
        async with open_page(house.home) as client:
            before = await client.get("/metrics")
            house.script(talk(turn("all is well")))
            await house.delegate(TASK)
            after = await client.get("/metrics")
            refused = await client.ask("GET", "/metrics", Authorization=None)
            return before, after, refused

    before, after, (status, _) = asyncio.run(main())
    assert b'deputy_runs_total{status="completed"} 0\n' in before
    assert b'deputy_runs_total{status="completed"} 2\n' in after
    assert status == 401


def test_a_long_question_in_the_timeline_is_redacted_before_it_is_cut(house, monkeypatch):
    monkeypatch.setenv("SOME_API_TOKEN", "canary-5f2e9d7c1b3a-8e4d6f0a2c5b")
    house.script(talk(turn(f"{'x' * 280} canary-5f2e9d7c1b3a-8e4d6f0a2c5b is it? [AWAITING_HUMAN_INPUT]")))
    outcome = house.one(Task(label="ask", prompt="Ask."))
    assert outcome.status == "blocked"

    async def main():
        async with open_page(house.home) as client:
            return await client.get(f"/api/tree/{(await client.get(f'/api/runs/{outcome.session_id}'))['parent']}")

    texts = [span[3] for lane in asyncio.run(main())["lanes"] for span in lane["spans"] if span[0] == "waiting"]
    assert any("x" * 280 in text for text in texts)
    assert "canary" not in "".join(texts)


def test_a_reader_that_does_not_read_keeps_few_bytes_and_then_reads_the_board_again():
    async def main():
        reader = Reader(frozenset())
        rows = Frame("rows", b"x" * 1_000_000, 1)
        for _ in range(5):
            reader.put([rows])
        assert len(await reader.next()) == 5
        for _ in range(100):
            reader.put([rows])
        assert sum(len(frame.data) for frame in reader._frames) <= 8_000_000
        assert await reader.next() == [RESET]

    asyncio.run(main())
