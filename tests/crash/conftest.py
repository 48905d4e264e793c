"""The shim, built once, and a place to crash in; without a compiler these tests say so and fail."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.crash.lab import build_shim

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shim(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder in memory where there is one: what is lost with the power is simulated, so real syncs prove nothing."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    place = Path(tempfile.mkdtemp(dir=memory, prefix="deputy-crash-"))
    yield place
    shutil.rmtree(place)
