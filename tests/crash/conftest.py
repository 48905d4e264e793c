"""The shim, built once; without a compiler these tests say so and fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.crash.lab import build_shim

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_shim(tmp_path_factory.mktemp("shim"))
