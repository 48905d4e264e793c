import pytest

from deputy.engine.changed_files import MOST_PATHS, paths_named


@pytest.mark.rule("time.partial")
@pytest.mark.parametrize(
    ("note", "paths"),
    [
        ("Wrote report.md and src/a.py:12-30.", ("report.md", "src/a.py")),
        ("See `docs/plan.md`, (out/x.json); nothing else", ("docs/plan.md", "out/x.json")),
        ("at src/a.py:3:4, again src/a.py", ("src/a.py",)),
        ("https://example.com/a.md is no file, nor is a . or ..", ()),
        ("no file at all", ()),
    ],
)
def test_the_files_that_notes_speak_of_are_found_without_their_lines(note, paths):
    assert paths_named([note]) == paths


def test_notes_without_end_name_a_bounded_number_of_files():
    assert len(paths_named(f"f/{number}" for number in range(10_000))) == MOST_PATHS
    assert paths_named(["x" * 10_000_000, "a/b"]) == ()
