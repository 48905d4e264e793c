"""A home and a workspace for another agent's program."""

import pytest


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"
