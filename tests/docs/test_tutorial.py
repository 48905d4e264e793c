"""Every command of the tutorial prints what the tutorial says."""

from tests.docs.tutorial_steps import TUTORIAL, Reader, difference, matches, steps


def test_every_command_of_the_tutorial_prints_what_it_says(tmp_path):
    text = TUTORIAL.read_text("utf-8")
    reader = Reader(tmp_path)
    reader.save_files(text, "examples/bookshop")
    differences = [difference(step, reader.run(step)) for step in steps(text)]
    assert len(differences) > 8
    assert not any(differences), "\n\n".join(filter(None, differences))


def test_only_an_ellipsis_stands_for_other_lines():
    assert matches(["a", "…", "d"], ["a", "b", "c", "d"])
    assert matches(["…"], [])
    assert not matches(["a", "c"], ["a", "b", "c"])
    assert not matches(["a"], ["a", "b"])
