"""A delegation by the whole product survives crashes, lost power and full disks: samples of `make crash ONLY=loop`."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.crash.disk import power_losses
from tests.crash.lab import Fault, Lab
from tests.crash.trials import FAULTS, Bench, every_crash

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.crash.lab import Operation

SEED = 23
SYNC_MS = 2


@pytest.fixture(scope="module")
def lab(shim: Path) -> Iterator[Lab]:
    with Lab(shim, "loop", SYNC_MS) as lab:
        yield lab


@pytest.fixture(scope="module")
def recording(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Operation]]:
    return Bench(lab, tmp_path_factory.mktemp("recording"), "ok").recording()


@pytest.mark.rule("journal.first")
@pytest.mark.rule("recover")
@pytest.mark.rule("spawn.once")
@pytest.mark.rule("deliver")
def test_a_crash_at_any_operation_loses_nothing_and_pays_nothing_twice(
    lab: Lab, place: Path, recording: tuple[Path, list[Operation]]
) -> None:
    bench = Bench(lab, place, "ok")
    faults = every_crash(recording[1])
    chance = random.Random(SEED)
    for fault in chance.sample(faults, 3):
        assert bench.crash(fault) == []
    assert bench.crash(chance.choice(faults), chance.choice(faults[: len(faults) // 3])) == []


@pytest.mark.rule("journal.first")
def test_what_went_out_into_the_world_is_known_after_the_power_was_lost(
    lab: Lab, place: Path, recording: tuple[Path, list[Operation]]
) -> None:
    bench = Bench(lab, place, "ok")
    root, operations = recording
    for loss in random.Random(SEED).sample(list(power_losses(operations, root)), 2):
        assert bench.from_disk(*loss) == []


@pytest.mark.parametrize("name", FAULTS)
def test_storage_trouble_is_typed_and_the_work_goes_on_when_it_is_over(lab: Lab, place: Path, name: str) -> None:
    bench = Bench(lab, place, "ok")
    chance = random.Random(f"{SEED} {name}")
    length = bench.length(FAULTS[name][1])
    for sticky in (False, True):
        assert bench.fail(name, chance.randint(1, length), sticky=sticky) == []


def test_where_a_transcript_could_not_be_opened_the_log_says_so(lab: Lab, place: Path) -> None:
    bench = Bench(lab, place, "ok")
    length = bench.length(FAULTS["EMFILE"][1])
    for at in (length - 1, length):
        assert bench.fail("EMFILE", at, sticky=False) == []


def test_a_request_that_goes_out_too_early_is_caught_by_losing_the_power(shim: Path, place: Path) -> None:
    # On a disk this slow, a request that does not wait for it is always first.
    with Lab(shim, "loop", 10 * SYNC_MS) as lab:
        bench = Bench(lab, place, "early")
        root, operations = bench.recording()
        losses = power_losses(operations, root, ("dropped",))
        output = [loss for loss in losses if loss[2] and loss[2][-1].startswith("asked")]
        assert any("lost: asked" in problem for loss in output for problem in bench.left_on(*loss))


def test_a_tool_that_is_wrongly_called_repeatable_is_caught_by_crashes(lab: Lab, place: Path) -> None:
    bench = Bench(lab, place, "again")
    operations = bench.recording()[1]
    output = [number for number, operation in enumerate(operations) if operation.data.startswith(b"did ")]
    # What is told is not counted, and which operations follow it differs a little from run to run.
    counted = [sum(operation.kind != "A" for operation in operations[:number]) for number in output]
    # Most are caught in the middle.
    laters = sorted(range(1, 12), key=lambda later: abs(later - 6))
    faults = [Fault(at=at + later, mode="before") for later in laters for at in counted]
    assert any("done 2 times" in problem for fault in faults for problem in bench.crash(fault))
