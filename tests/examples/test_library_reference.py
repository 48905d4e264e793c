"""The reference of the library says what its docstrings say."""

from scripts.library_reference import GROUPS, METHODS, PAGE, reference

import deputy


def test_the_reference_is_written_from_the_docstrings_of_now():
    assert PAGE.read_text("utf-8") == reference(), "make reference writes it anew"


def test_every_public_name_is_in_the_reference_once():
    listed = [name for names in GROUPS.values() for name in names]
    assert sorted(listed) == sorted(set(dir(deputy)) - {"__version__"})
    for name, methods in METHODS.items():
        assert all(callable(getattr(getattr(deputy, name), method)) for method in methods.split())


def test_every_option_of_a_deputy_says_what_it_is():
    options = reference().partition("| option |")[2].partition("\n\n")[0].splitlines()[2:]
    assert len(options) > 15
    assert [line for line in options if line.endswith("|  |")] == []
