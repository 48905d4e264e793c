"""What an outcome says of what was not done because no person could be asked."""

from deputy.engine.approvals import is_refused_unasked, warn_refused
from deputy.engine.history import History


def test_other_warnings_do_not_crowd_out_refusals_and_refusals_are_bounded():
    history = History("")
    history.warnings = tuple(f"warning {number}" for number in range(30))
    for number in range(30):
        warn_refused(history, f"Run {number}")
        warn_refused(history, f"Run {number}")
    refused = [warning for warning in history.warnings if is_refused_unasked(warning)]
    assert len(refused) == len(set(refused)) == 20
    assert refused[0].startswith("Run 0 was refused")
