"""What a task refers to."""

from __future__ import annotations

import pytest

from deputy.core.detect.referenced_context import LIMIT_ITEMS, MORE, infer_context

pytestmark = pytest.mark.rule("text.context")


@pytest.mark.parametrize(
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
