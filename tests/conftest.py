"""How all tests run: properties with the same few examples on every run; `make explore` tries many new ones."""

import gc
import os

import pytest
from hypothesis import settings
from hypothesis.internal import charmap
from tests.support.forked_workers import pytest_addoption, pytest_runtestloop

__all__ = ["pytest_addoption", "pytest_runtestloop"]

# No garbage worth collecting is made while tests are imported and collected.
gc.disable()

settings.register_profile("steady", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what was imported and collected out of every later garbage collection."""
    if any(item.get_closest_marker("hypothesis") for item in session.items):
        # The tables of all characters, 5 s of CPU the first time: made once, before processes are forked.
        charmap.charmap()
        charmap.intervals_from_codec("utf-8")
    gc.freeze()
    gc.enable()
