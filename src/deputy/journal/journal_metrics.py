"""Metrics of a journal: what waits in it now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.events import APPROVAL

if TYPE_CHECKING:
    from deputy.engine.ports.queries import Queries


def waiting_in(queries: Queries) -> tuple[float, int]:
    """The age in seconds of the oldest run that was requested and has not started, and the waiting approvals."""
    now, live = queries.now(), queries.live()
    ages = [now - state.asked_clock for state in live if state.status == "requested"]
    approvals = sum(topic == APPROVAL for state in live for topic in state.waits.values())
    return max(0.0, *ages, 0.0), approvals
