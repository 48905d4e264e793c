"""Detection is linear: four times the text takes about four times the work, whatever the text."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

BENCH: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[3] / "bench" / "detect.py"))
SHAPES, seconds = BENCH["SHAPES"], BENCH["seconds"]
SMALL, LARGE = 75_000, 300_000
# Linear work grows fourfold, quadratic work sixteenfold. Below the floor, a clock tells nothing.
MOST, FLOOR_SECONDS = 9, 0.01


@pytest.mark.rule("text.xml")
@pytest.mark.rule("text.prose")
@pytest.mark.rule("text.user")
@pytest.mark.parametrize("shape", SHAPES)
def test_work_grows_with_the_text_and_not_with_its_square(shape: str) -> None:
    small, large = SHAPES[shape](SMALL), SHAPES[shape](LARGE)
    assert seconds(large, rounds=2) < MOST * max(seconds(small, rounds=2), FLOOR_SECONDS)
