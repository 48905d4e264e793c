"""Answers to approvals: bound to what was asked, and in time."""

import pytest

from deputy.core.approval import ApprovalRequest
from deputy.core.errors import UsageError
from deputy.core.state import answer_key
from deputy.interfaces.questions import PendingApproval, answer_to

REQUEST = ApprovalRequest(tool="Run", title="Use Run", parts=(), risk="high")
PENDING = PendingApproval("sess_1_aaaaaa", "tool:0.0:approval", REQUEST.digest, "Use Run", REQUEST, until=100.0)


@pytest.mark.rule("approve.exact")
def test_a_yes_after_its_time_is_a_no():
    early, late = (answer_to(PENDING, "yes", digest=PENDING.digest, now=now) for now in (99.9, 100.0))
    assert (early.decision.choice, late.decision.choice) == ("yes", "no")
    assert early.key == answer_key(PENDING.key)
    assert answer_to(PENDING._replace(until=None), "yes", digest=PENDING.digest, now=1e9).decision.choice == "yes"


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize(("choice", "digest"), [("yes", ""), ("yes", "other"), ("always", ""), ("no", "other")])
def test_an_answer_that_does_not_name_the_digest_is_refused(choice, digest):
    with pytest.raises(UsageError, match="name the digest of what you approve"):
        answer_to(PENDING, choice, digest=digest, now=0.0)


@pytest.mark.rule("approve.exact")
def test_a_no_needs_no_digest_and_always_must_be_offered():
    assert answer_to(PENDING, "no", digest="", now=0.0).decision.choice == "no"
    with pytest.raises(UsageError, match="answer yes or no"):
        answer_to(PENDING, "always", digest=PENDING.digest, now=0.0)
