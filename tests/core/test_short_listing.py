"""A short listing shows all files, or as many levels of folders as fit."""

from deputy.core.short_listing import short_listing


def test_few_files_are_listed_whole():
    assert short_listing(["README.md", "src/a.py"]) == "README.md\nsrc/a.py"
    assert short_listing([]) == ""


def test_many_files_are_counted_by_folder():
    paths = ["README.md", *(f"src/{part}/{number}.py" for part in "ab" for number in range(30))]
    assert short_listing(paths) == "README.md\nsrc/a/ (30 files)\nsrc/b/ (30 files)"
    assert short_listing([*paths, "src/c/1.py"]).endswith("\nsrc/c/ (1 file)")


def test_too_many_names_at_the_top_are_cut_with_their_number():
    listed = short_listing([f"{number:03}.txt" for number in range(50)]).splitlines()
    assert (len(listed), listed[-1]) == (41, "and 10 more")


def test_the_notes_of_a_search_are_no_files():
    assert short_listing(["a.txt", "[more results than the limit: narrow the search]"]) == "a.txt"
