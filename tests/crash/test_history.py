"""A three-child history survives kills, crashes, lost power and full disks: samples of what `make crash` does whole."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.crash.disk import power_losses
from tests.crash.lab import Lab
from tests.crash.trials import FAULTS, Bench, every_crash

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.crash.lab import Operation

SEED = 11


@pytest.fixture(scope="module")
def lab(shim: Path) -> Iterator[Lab]:
    with Lab(shim, "history") as lab:
        yield lab


@pytest.fixture
def bench(lab: Lab, place: Path) -> Bench:
    return Bench(lab, place, "ok")


@pytest.fixture(scope="module")
def recording(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Operation]]:
    return Bench(lab, tmp_path_factory.mktemp("recording"), "ok").recording()


@pytest.fixture
def operations(recording: tuple[Path, list[Operation]]) -> list[Operation]:
    return recording[1]


@pytest.mark.rule("journal.first")
@pytest.mark.rule("recover")
@pytest.mark.rule("spawn.once")
@pytest.mark.rule("deliver")
def test_a_crash_at_any_operation_loses_nothing(bench: Bench, operations: list[Operation]) -> None:
    for fault in random.Random(SEED).sample(every_crash(operations), 6):
        assert bench.crash(fault) == []


def test_a_crash_while_the_file_is_made_loses_nothing_also_where_there_are_no_hard_links(lab: Lab, place: Path) -> None:
    bench = Bench(lab, place, "linkless")
    operations = bench.recording()[1]
    logged = next(number for number, operation in enumerate(operations) if operation.path.endswith("-wal"))
    assert logged > 10
    for fault in random.Random(SEED).sample(every_crash(operations[:logged]), 4):
        assert bench.crash(fault) == []


@pytest.mark.rule("recover")
def test_a_crash_while_recovering_from_a_crash_loses_nothing(bench: Bench, operations: list[Operation]) -> None:
    chance = random.Random(SEED)
    faults = every_crash(operations)
    for _ in range(2):
        assert bench.crash(chance.choice(faults), chance.choice(faults[: len(faults) // 3])) == []


@pytest.mark.rule("journal.first")
def test_what_was_acknowledged_survives_losing_the_power(bench: Bench, recording: tuple[Path, list[Operation]]) -> None:
    root, operations = recording
    losses = list(power_losses(operations, root))
    assert len(losses) > 200
    for loss in random.Random(SEED).sample(losses, 6):
        assert bench.from_disk(*loss) == []


@pytest.mark.rule("journal.first")
def test_kills_at_random_moments_lose_nothing(bench: Bench) -> None:
    chance = random.Random(SEED)
    longest = min(bench.seconds(), bench.seconds())
    found = [bench.kill(chance.uniform(0, longest)) for _ in range(10)]
    assert [problems for problems, _ in found if problems] == []
    assert sum(killed for _, killed in found) > 1


def test_damaged_bytes_are_never_taken_for_data(bench: Bench) -> None:
    templates = bench.templates()
    for seed in range(10):
        assert bench.damage(templates[seed % len(templates)], seed) == []


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("sticky", [False, True])
def test_storage_trouble_is_typed_and_over_when_it_is_over(bench: Bench, name: str, sticky: bool) -> None:
    at = random.Random(f"{SEED} {name} {sticky}").randint(1, bench.length(FAULTS[name][1]))
    assert bench.fail(name, at, sticky=sticky) == []


@pytest.mark.parametrize(("variant", "word"), [("early", "lost"), ("again", "done 2 times")])
def test_a_history_that_breaks_its_promises_is_caught_by_crashes(
    lab: Lab, place: Path, variant: str, word: str
) -> None:
    bench = Bench(lab, place, variant)
    faults = every_crash(bench.recording()[1])
    found = (bench.crash(fault) for fault in random.Random(SEED).sample(faults, 60))
    assert any(word in problem for problems in found for problem in problems)


def test_a_journal_that_does_not_sync_is_caught_by_losing_the_power(lab: Lab, place: Path) -> None:
    bench = Bench(lab, place, "off")
    root, operations = bench.recording()
    losses = list(power_losses(operations, root, ("dropped", "shuffled")))
    found = (bench.from_disk(*loss) for loss in random.Random(SEED).sample(losses, min(30, len(losses))))
    assert any("lost" in problem for problems in found for problem in problems)


def test_a_journal_without_checksums_is_caught_by_damaging_it(lab: Lab, place: Path) -> None:
    bench = Bench(lab, place, "nosum")
    templates = bench.templates()
    found = (bench.damage(templates[0], seed) for seed in range(1000))
    assert any("wrong data" in problem for problems in found for problem in problems)
