"""Tasks about the workspace are known by the paths and words in them."""

import pytest

from deputy.core.workspace_words import names_workspace


@pytest.mark.parametrize(
    "task",
    ["What is in pyproject.toml?", "Look at src/deputy", "What does this project do?", "Summarize the README."],
)
def test_a_task_about_the_workspace(task):
    assert names_workspace(task)


@pytest.mark.parametrize(
    "task", ["What is a monad?", "Write a poem.", "Fetch https://example.com/a/b.html", "Compare TCP and UDP."]
)
def test_a_task_about_something_else(task):
    assert not names_workspace(task)
