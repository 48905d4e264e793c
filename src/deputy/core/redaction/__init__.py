"""Redaction: hide secrets in text, data and streams. docs/security.md lists what is hidden."""

from deputy.core.redaction.names import known_secrets
from deputy.core.redaction.redactor import Redactor
from deputy.core.redaction.scan import MARK, RedactingStream

__all__ = ["MARK", "RedactingStream", "Redactor", "known_secrets"]
