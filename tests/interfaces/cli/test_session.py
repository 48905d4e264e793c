"""What becomes of a command on a loop when something outside fails."""

import pytest

from deputy.core.errors import StorageFull
from deputy.interfaces.cli.session import resumable


def test_a_full_disk_says_how_to_go_on_with_the_run_that_it_stopped() -> None:
    told = r"it is full\. Free some space .* go on with: deputy resume sess_1_aaaaaa$"
    with pytest.raises(StorageFull, match=told), resumable("sess_1_aaaaaa"):
        raise StorageFull("journal.db", "it is full")
