import pytest

from deputy.core.progress import ARGUMENTS_LENGTH, shown_arguments
from deputy.processes.outgoing import process_redactor

TASKS = [{"label": "a", "prompt": "look"}]


@pytest.mark.rule("delegate.events")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"path": "src/lib.rs"}, "src/lib.rs"),
        ({"return": "json", "tasks": TASKS}, 'return=json tasks=[{"label":"a","prompt":"look"}]'),
        ({"tasks": TASKS}, 'tasks=[{"label":"a","prompt":"look"}]'),
        ({"pattern": "TODO\n x", "path": "src", "limit": 5}, "pattern=TODO x path=src limit=5"),
        ({}, ""),
    ],
)
def test_arguments_are_shown_by_name_unless_there_is_one_text(arguments, shown):
    assert shown_arguments(arguments, process_redactor()) == shown


def test_arguments_are_redacted_and_bounded():
    secret = "AKIA" + "Q" * 16
    shown = shown_arguments({"key": secret, "text": "x" * 1_000_000}, process_redactor())
    assert secret not in shown
    assert len(shown) <= ARGUMENTS_LENGTH
    assert shown.endswith("…")
