"""The inputs that fuzzing found worth keeping are read without an undocumented exception; `make fuzz` finds more."""

import pytest
from tests.fuzz.run import kept
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("name", TARGETS)
def test_every_kept_input_is_read(name: str):
    target, inputs = TARGETS[name], kept(name)
    assert inputs
    for data in (*inputs, *target.examples, b"", b"\0"):
        target.read(data)
