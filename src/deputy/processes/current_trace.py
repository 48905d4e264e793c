"""The trace context of this moment: the current OpenTelemetry span, or the variable TRACEPARENT."""

from __future__ import annotations

import os
import sys

from deputy.core.trace_context import TraceParent, read_traceparent

VARIABLE = "TRACEPARENT"


def current_traceparent() -> TraceParent | None:
    """The span that is current here: of this process, else of the program that started it."""
    # Where the API is not imported, there is no current span; importing it here would cost every start.
    api = sys.modules.get("opentelemetry.trace")
    if api is not None:
        current = api.get_current_span().get_span_context()
        if current.is_valid:
            return TraceParent(f"{current.trace_id:032x}", f"{current.span_id:016x}", current.trace_flags.sampled)
    return read_traceparent(os.environ.get(VARIABLE))
