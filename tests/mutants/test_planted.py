"""Every planted bug still fits the source; `make mutants` runs them."""

from collections import Counter

import pytest
from tests.mutants.planted import ROOT, Mutant, planted

MUTANTS = planted()


def test_every_planted_bug_fits_the_source():
    for mutant in MUTANTS:
        text = (ROOT / mutant.file).read_text("utf-8")
        changed = mutant.changed(text)
        assert changed != text
        compile(changed, mutant.file, "exec")
        assert [name for name in mutant.tests if not _is_there(name)] == []


def _is_there(name: str) -> bool:
    path, _, test = name.partition("::")
    return (ROOT / path).exists() and (not test or f"def {test}(" in (ROOT / path).read_text("utf-8"))


def test_every_planted_bug_has_an_id_of_its_own():
    assert len(MUTANTS) >= 60
    assert [name for name, count in Counter(mutant.id for mutant in MUTANTS).items() if count > 1] == []


def test_a_bug_whose_place_is_gone_is_an_error():
    mutant = Mutant(id="gone", file="a.py", old="x = 1", new="x = 2", breaks="", tests=[])
    with pytest.raises(ValueError, match=r"gone: its old text is 0 times in a\.py"):
        mutant.changed("y = 1")
    with pytest.raises(ValueError, match="is 2 times"):
        mutant.changed("x = 1\nx = 1")
