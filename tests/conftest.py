"""How all tests run: properties with the same few examples on every run; `make explore` tries many new ones."""

import gc
import os

from hypothesis import settings

settings.register_profile("steady", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


def pytest_collection_finish() -> None:
    """Leave what was imported out of every later garbage collection."""
    gc.collect()
    gc.freeze()
