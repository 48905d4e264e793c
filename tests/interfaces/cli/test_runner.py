"""What becomes of a command on a loop when something outside fails."""

import resource

import pytest
from tests.support.command_house import entries

from deputy.core.errors import StorageCorrupt, StorageFull
from deputy.interfaces.cli.runner import resumable


def test_a_full_disk_says_how_to_go_on_with_the_run_that_it_stopped() -> None:
    output = r"it is full\. Free some space .* continue with: deputy resume sess_1_aaaaaa$"
    with pytest.raises(StorageFull, match=output), resumable("sess_1_aaaaaa"):
        raise StorageFull("journal.db", "it is full")


def test_resume_is_not_suggested_for_a_damaged_run() -> None:
    with (
        pytest.raises(StorageCorrupt, match=r"deputy doctor --repair.*keeps the damaged files\.$"),
        resumable("sess_1_aaaaaa"),
    ):
        raise StorageCorrupt("journal.db", "it is damaged")


@pytest.mark.rule("recover")
def test_a_project_command_and_its_resume_say_how_to_go_on_when_the_journal_cannot_be_written(house):
    model = house.script("slow", {"turns": [{"text": "x", "delay_seconds": 3}], "times": 4})
    assert house.run("task", "add", "One").returncode == 0
    output = stopped_by_its_storage(house, "research", "1", "--yes", "--model", model)
    [run] = [entry["session_id"] for entry in entries(house)]
    assert f"continue with: deputy resume {run}" in output
    assert f"continue with: deputy resume {run}" in stopped_by_its_storage(house, "resume", run)


def stopped_by_its_storage(house, *arguments: str) -> str:
    """What a command shows that can write no more once its model is asked."""
    terminal = house.terminal(*arguments, columns=300)
    terminal.until("thinking")
    # No file may grow any more: what a full disk does, without one.
    resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, (0, 0))
    assert terminal.end() == 1
    return terminal.text
