"""The place of a run in a trace: ids derived from its session id, and the W3C `traceparent` of its caller."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from deputy.core.request import Lineage

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LONGEST = 200
_SAMPLED = 1


class TraceParent(NamedTuple):
    """A span that another program or run made, as W3C Trace Context names it."""

    trace_id: str
    span_id: str
    is_sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.is_sampled:02x}"


def read_traceparent(text: object) -> TraceParent | None:
    """The span that a `traceparent` names; None if it is not valid."""
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    found = _TRACEPARENT.fullmatch(text.strip())
    # Only later versions may have more fields.
    if found is None or (found[4] and text.strip().startswith("00")):
        return None
    if not int(found[1], 16) or not int(found[2], 16):
        return None
    return TraceParent(found[1], found[2], bool(int(found[3], 16) & _SAMPLED))


def run_trace_id(lineage: Lineage) -> str:
    """The trace of a run: its caller's, or one of its root session, the same in every process."""
    caller = read_traceparent(lineage.traceparent)
    if caller is not None:
        return caller.trace_id
    return blake2b(lineage.root_id.encode(), digest_size=16, person=b"deputy-trace").hexdigest()


def run_span_id(session_id: str, number: int) -> str:
    """The span of a round of a run: the same in every process."""
    return blake2b(f"{session_id}/{number}".encode(), digest_size=8, person=b"deputy-span").hexdigest()


def run_traceparent(lineage: Lineage, number: int) -> TraceParent:
    """The span of a round of a run, as the parent of others."""
    return TraceParent(run_trace_id(lineage), run_span_id(lineage.session_id, number), is_sampled=True)
