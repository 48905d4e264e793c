"""What a dead process left waits for a resume, unless the user's own file says otherwise."""

import asyncio
import json
import signal

import pytest

from deputy import Deputy, Task
from deputy.journal.sqlite.sqlite_queries import SqliteQueries


def killed(house, model: str) -> str:
    """The id of a call whose process was killed while its one task was at work."""
    child = house.start("delegate", "-t", "one=work of one", "--yes", "--model", model, "--events", "-")
    session_id = ""
    for line in child.stdout:
        event = json.loads(line)
        session_id = event["session_id"] if event["event"] == "opened" else session_id
        if event["event"] == "note":
            break
    child.send_signal(signal.SIGKILL)
    child.wait()
    return session_id


def statuses(house) -> list[str]:
    return [one["status"] for one in json.loads(house.run("ps", "--json").stdout)["delegations"]]


@pytest.mark.rule("registry.monitor")
@pytest.mark.parametrize("adopts", [True, False])
def test_a_process_at_work_goes_on_with_what_was_interrupted_only_where_the_user_says_so(
    house, tmp_path, monkeypatch, adopts
):
    note = {"calls": [{"name": "Note", "arguments": {"content": "seen"}}]}
    model = house.script("left", {"turns": [note, {"text": "never", "delay_seconds": 600}]})
    call = killed(house, model)
    assert statuses(house) == ["interrupted", "interrupted"]
    house.script("left", {"turns": [note, {"text": "Done."}]})
    other = house.script("other", {"turns": [{"text": "Mine."}]})
    folder = tmp_path / "user" / ".config" / "deputy"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f"[journal]\nadopt = {str(adopts).lower()}\n")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))

    async def work():
        async with Deputy(other, workspace=house.workspace, home=house.home) as deputy:
            await deputy.delegate([Task(label="mine", prompt="x")])
            if adopts:
                await deputy.outcome(call)

    asyncio.run(work())
    with SqliteQueries.open(house.home) as reader:
        assert reader.state(call).status == ("completed" if adopts else "running")
