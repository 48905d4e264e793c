"""Context and output format that the words of a task imply."""

from __future__ import annotations

import pytest
from tests.support.every_case import every_case

from deputy.core.detect.inference import LIMIT_ITEMS, MORE, infer_context, infer_output

pytestmark = [pytest.mark.rule("text.context"), pytest.mark.rule("text.output")]


@every_case(
    ("task", "expected"),
    [
        ("Read `src/a.py`, (lib/b.c) and [the guide](docs/c.md).", ["src/a.py", "lib/b.c", "docs/c.md"]),
        ("See src/a.py:42 and ../up.txt, at /var/log", ["src/a.py", "../up.txt", "/var/log"]),
        (".github/workflows and $HOME/x and a/b/c.json", [".github/workflows", "$HOME/x", "a/b/c.json"]),
        ("Twice src/a.py and src/a.py, {x} and {x}", ["{x}", "src/a.py"]),
        ("http://a.org/x.py and //b.org/y.py", []),
        ("Work with\nthe old data, slowly", ["the old data"]),
        ("Fait avec le guide, depuis la base", ["le guide", "la base"]),
        ("withdraw from", []),
        ("", []),
    ],
)
def test_the_task_is_searched_for_what_it_refers_to(task: str, expected: list[str]) -> None:
    assert list(infer_context(task, ())) == expected


def test_given_context_comes_first_and_is_not_repeated() -> None:
    assert infer_context("Read {b} and {a}", ("about {a}",)) == ("about {a}", "{b}")


def test_too_much_context_is_cut_visibly() -> None:
    found = infer_context(" ".join(f"{{v{number}}}" for number in range(LIMIT_ITEMS * 2)), ())
    assert len(found) == LIMIT_ITEMS + 1
    assert found[-1] == MORE


@every_case(
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


@every_case(
    "task",
    [
        *("", "Go home.", "Return to the start.", "They return a list.", "the output is long", "information: none"),
        *("return(x)", "Returned as jsonb", "Output", "Format", "reformat: it", "    ```\n    return 1\n    ```"),
    ],
)
def test_words_that_only_look_alike_mean_nothing(task: str) -> None:
    assert infer_output(task) is None
