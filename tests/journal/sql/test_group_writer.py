"""The writer that both stores share."""

from __future__ import annotations

from threading import Thread
from typing import Any

from deputy.journal.sql.group_writer import GroupWriter


def test_an_event_that_is_shown_while_the_writer_takes_the_others_is_not_lost() -> None:
    writer: Any = GroupWriter("store", "owner", bytes, 3.0)
    taken: list[bytes] = []

    def take() -> None:
        taken.extend(row[-1] for row in writer._take_progress())

    taking = Thread(target=take)

    class TakenMeanwhile(dict[str, int]):
        def get(self, *wanted: Any) -> Any:
            # The event is being added; the writer takes the others now, or when it may.
            taking.start()
            taking.join(0.2)
            return super().get(*wanted)

    writer.show_progress("run", 1.0, b"first")
    writer._progressed = TakenMeanwhile(writer._progressed)
    writer.show_progress("run", 2.0, b"second")
    taking.join()
    take()
    assert taken == [b"first", b"second"]
