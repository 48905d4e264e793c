"""What `deputy doctor` says of workers that do not fit."""

from __future__ import annotations

import pytest
from msgspec import structs

from deputy.interfaces.worker_differences import worker_differences, worker_text
from deputy.stores import StoreWorker


def worker(**changes: object) -> StoreWorker:
    fits = StoreWorker("here", "1", "1.0", (), 8, False, 1.0, 0, 0.02, ("A_KEY",))
    return structs.replace(fits, **changes)


@pytest.mark.rule("cluster.compare")
def test_a_worker_that_fits_has_no_difference() -> None:
    one = worker()
    assert list(worker_differences(one, [one, worker(pid="2")], "1.0", ["A_KEY"])) == []
    assert worker_text(one) == "here process 1: version 1.0, clock +0.0 s, keys A_KEY"


@pytest.mark.rule("cluster.compare")
def test_each_difference_of_a_worker_says_what_to_do() -> None:
    old = worker(version="0.9", clock_offset_seconds=-30.04, keys=())
    # A worker with other labels serves other runs.
    others = [worker(keys=("B_KEY",)), worker(labels=("gpu",), keys=("C_KEY",))]
    version, clock, keys = worker_differences(old, [old, *others], "1.0", ["A_KEY"])
    assert "version 1.0: install the same" in version
    assert "synchronize it" in clock
    assert "It lacks A_KEY, B_KEY," in keys
    assert "clock -30.0 s" in worker_text(old)
