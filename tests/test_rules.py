"""Every rule that is due has a test that carries its id, and no test carries an id that is not a rule."""

import re
import tomllib
from pathlib import Path

TESTS = Path(__file__).parent
MARK = re.compile(r"""mark\.rule\(["']([a-z.]+)["']\)""")


def rules() -> dict[str, int]:
    sections = tomllib.loads((TESTS / "rules.toml").read_text())
    return {rule: milestone for section in sections.values() for rule, milestone in section.items()}


def proven() -> set[str]:
    return {rule for file in TESTS.rglob("test_*.py") for rule in MARK.findall(file.read_text())}


def test_every_rule_that_is_due_has_a_test():
    due = {rule for rule, milestone in rules().items() if milestone == 0}
    assert sorted(due - proven()) == []


def test_every_id_on_a_test_is_a_rule():
    assert sorted(proven() - rules().keys()) == []
