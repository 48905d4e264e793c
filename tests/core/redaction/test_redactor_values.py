"""Data that cannot be encoded as JSON is redacted field by field."""

import pytest

from deputy.core.redaction import MARK, Redactor

pytestmark = pytest.mark.rule("redact.where")
LONE = "\udc80"


def test_a_field_that_json_cannot_hold_keeps_no_other_field_from_being_redacted():
    clean = Redactor().redact_value({"odd": object, "text": LONE, "password": "hunter2hunter2"})
    assert clean == {"odd": object, "text": LONE, "password": MARK}


def test_arguments_that_json_cannot_hold_are_redacted_one_by_one():
    known = "k7d93hf7s0q1"
    assert Redactor([known]).redact_value(["run", "--name", LONE, known]) == ["run", "--name", LONE, MARK]
    assert Redactor().redact_value(["run", "--password", "hunter2hunter2", 5]) == ["run", "--password", MARK, 5]
