"""The detectors detect: journals that are broken on purpose are caught, and a sound one is not."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.crash.lab import Fault, Lab, read_log
from tests.crash.trials import FAULTS, Bench, every_crash

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 4


@pytest.fixture(scope="module")
def lab(shim: Path) -> Iterator[Lab]:
    with Lab(shim, "plain") as lab:
        yield lab


def test_operations_are_seen_in_order_with_what_was_promised_between_them(lab: Lab, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    log = tmp_path / "log"
    ended = lab.run(home, "ok", record=log)
    operations = read_log(log)
    assert ended.operations == sum(operation.kind != "A" for operation in operations) > 50
    assert {operation.kind for operation in operations} >= set("CWSTUA")
    promised = [operation.data for operation in operations if operation.kind == "A"]
    assert promised[:3] == [b"k0\n", b"k1\n", b"k2\n"]
    first = next(number for number, operation in enumerate(operations) if operation.kind == "A")
    assert operations[first - 1].kind == "S"
    assert all(operation.path.startswith(str(home)) for operation in operations if operation.kind != "A")


@pytest.mark.parametrize("share", [1, 50, 99])
def test_a_write_is_torn_where_it_was_told_to_be(lab: Lab, tmp_path: Path, share: int) -> None:
    home = tmp_path / "home"
    home.mkdir()
    log = tmp_path / "log"
    lab.run(home, "rewrite", record=log)
    writes = [operation for operation in read_log(log) if operation.kind != "A"]
    at = max(range(len(writes)), key=lambda number: len(writes[number].data)) + 1
    torn = tmp_path / "torn"
    torn.mkdir()
    assert lab.run(torn, "rewrite", Fault(at=at, mode="torn", torn=share)).was_killed
    assert (torn / "records.json").stat().st_size == len(writes[at - 1].data) * share // 100


def test_a_sound_journal_is_found_sound(lab: Lab, tmp_path: Path) -> None:
    bench = Bench(lab, tmp_path, "ok")
    chance = random.Random(SEED)
    for fault in chance.sample(every_crash(bench.recording()[1]), 25):
        assert bench.crash(fault) == []
    root, operations = bench.recording()
    for problems in list(bench.lose_power(operations, root, ("dropped",))):
        assert problems == []
    for name, (_, kinds) in FAULTS.items():
        at = chance.randint(1, bench.length(kinds))
        assert bench.fail(name, at, sticky=False) == []
        assert bench.fail(name, at, sticky=True) == []
    home = bench.fresh()
    lab.run(home, "ok")
    for seed in range(40):
        assert bench.damage(home, seed) == []


@pytest.mark.parametrize(
    ("variant", "word"),
    [("early", "lost"), ("lossy", "holes"), ("twice", "twice"), ("rewrite", "unreadable")],
)
def test_a_broken_journal_is_caught_by_crashes(lab: Lab, tmp_path: Path, variant: str, word: str) -> None:
    bench = Bench(lab, tmp_path, variant)
    found = [bench.crash(fault) for fault in random.Random(SEED).sample(every_crash(bench.recording()[1]), 12)]
    assert any(word in problem for problems in found for problem in problems)


@pytest.mark.parametrize(("variant", "word"), [("nosync", "lost"), ("renamed", "unreadable")])
def test_a_missing_sync_is_caught_by_losing_power_and_by_nothing_else(
    lab: Lab, tmp_path: Path, variant: str, word: str
) -> None:
    bench = Bench(lab, tmp_path, variant)
    for fault in random.Random(SEED).sample(every_crash(bench.recording()[1]), 6):
        assert bench.crash(fault) == []
    root, operations = bench.recording()
    found = bench.lose_power(operations, root)
    assert any(word in problem for problems in found for problem in problems)


@pytest.mark.parametrize(("variant", "word"), [("deaf", "only"), ("untyped", "no storage error")])
@pytest.mark.parametrize("name", ["ENOSPC", "EIO"])
def test_storage_trouble_that_is_swallowed_or_untyped_is_caught(
    lab: Lab, tmp_path: Path, variant: str, word: str, name: str
) -> None:
    bench = Bench(lab, tmp_path, variant)
    found = [bench.fail(name, at, sticky=True) for at in (20, 60, 90)]
    assert any(word in problem for problems in found for problem in problems)


def test_data_without_a_checksum_is_caught_by_damaging_it(lab: Lab, tmp_path: Path) -> None:
    bench = Bench(lab, tmp_path, "nosum")
    home = bench.fresh()
    lab.run(home, "nosum")
    assert any("wrong data" in problem for seed in range(40) for problem in bench.damage(home, seed))


def test_a_kill_at_any_moment_is_a_real_one(lab: Lab, tmp_path: Path) -> None:
    bench = Bench(lab, tmp_path, "early")
    chance = random.Random(SEED)
    found = [bench.kill(chance.uniform(0, 0.02)) for _ in range(12)]
    assert any(killed for _, killed in found)
