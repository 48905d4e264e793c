"""Numbers for people: tokens, durations, money."""

from __future__ import annotations

from deputy.core.limits import NANOS_PER_DOLLAR


def tokens(given: int, taken: int, *, estimated: bool = False) -> str:
    """Input and output tokens; `~` marks an estimate."""
    return f"{'~' * estimated}in={count(given)} out={count(taken)}"


def count(number: int) -> str:
    """A number in at most four characters or so: 890, 2.1k, 45k, 1.2M."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= size * 0.9995:
            scaled = number / size
            return f"{scaled:.0f}{unit}" if scaled >= 9.95 else f"{scaled:.1f}".removesuffix(".0") + unit
    return str(number)


def elapsed(seconds: float) -> str:
    """A duration in its largest units: 0.4s, 12s, 3m05s, 2h07m, 3d04h."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}s"
    whole = round(seconds)
    for size, unit, part, name in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02d}{name}"
    return f"{whole}s"


def dollars(nanos: int | None) -> str:
    """A cost in dollars; empty if zero or unknown."""
    if not nanos:
        return ""
    cost = nanos / NANOS_PER_DOLLAR
    return f"${cost:.2f}" if cost >= 0.01 else f"${cost:.4f}"
