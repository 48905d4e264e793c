"""The writer that both stores share."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest

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


@pytest.mark.rule("store.beat")
@pytest.mark.parametrize("beats_always", [True, False])
def test_a_process_that_writes_nothing_gives_signs_of_life_while_others_must_know_of_it(beats_always: bool) -> None:
    writer: Any = GroupWriter("store", "owner", bytes, 0.0)
    if beats_always:
        writer.beat_always()
    else:
        writer._held.add("run")
    batches: list[list[Any]] = []
    waiting = Thread(target=lambda: batches.append(writer._next_batch()), daemon=True)
    waiting.start()
    waiting.join(30)
    # A batch without work: the commit of it writes the heartbeat.
    assert batches == [[]]
