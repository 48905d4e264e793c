"""The form a task wants its result in."""

from __future__ import annotations

import pytest

from deputy.core.detect.output_format import infer_output

pytestmark = pytest.mark.rule("text.output")


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("Return a list.", "a list"),
        ("Look. Return a list of the 3.5 best! Go.", "a list of the 3.5 best"),
        ("- Return **one** word", "**one** word"),
        ("Please output the names, sorted.", "the names, sorted"),
        ("Do it and\nreturn all of it", "all of it"),
        ("Tell it as markdown, please", "Markdown"),
        ("As plain YAML, or as a CSV", "YAML\nCSV"),
        ("Output format: JSON lines", "JSON lines"),
        ("**Expected Output:**\n\n- a\n- b\n\nGo.", "- a\n- b"),
        ("Return:\n```json\n{}\n\n[]\n```\nGo.", "```json\n{}\n\n[]\n```"),
        ("Retournez un tableau. Format attendu", "un tableau"),
        ("Return a list. Return a list.", "a list"),
    ],
)
def test_the_wanted_form_is_found(task: str, expected: str) -> None:
    assert infer_output(task) == expected


@pytest.mark.parametrize(
    "task",
    [
        *("", "Go home.", "Return to the start.", "They return a list.", "the output is long", "information: none"),
        *("return(x)", "Returned as jsonb", "Output", "Format", "reformat: it", "    ```\n    return 1\n    ```"),
    ],
)
def test_words_that_only_look_alike_mean_nothing(task: str) -> None:
    assert infer_output(task) is None
