"""How an outcome is shown to a person: what it warns of is said, once."""

import pytest

from deputy.core.outcome import Completed
from deputy.core.request import Lineage
from deputy.interfaces.cli.ending import show_outcome


@pytest.mark.parametrize(("report", "told"), [("Fine.", "deputy: warning: one is old\n"), ("Warning: one is old", "")])
def test_warnings_are_told_unless_the_report_has_them(report, told, capsys):
    lineage = Lineage.root("sess_1_aaaaaa")
    show_outcome(Completed(lineage=lineage, summary="Fine.", report=report, warnings=("one is old",)), as_json=False)
    assert capsys.readouterr().err == told
