"""Orders to the supplier."""

from larder.errors import OrderTooLong

MAX_LINES = 24
SAFETY_FACTOR = 1.65


class OrderQueue:
    """Collects the lines of the next order."""

    def __init__(self) -> None:
        self._lines: list[tuple[str, float]] = []

    def add(self, item: str, grams: float) -> None:
        """Add a line to the order."""
        if len(self._lines) >= MAX_LINES:
            raise OrderTooLong(f"an order has at most {MAX_LINES} lines")
        self._lines.append((item, grams))

    def send(self) -> list[tuple[str, float]]:
        """Empty the queue and return its lines."""
        lines, self._lines = self._lines, []
        return lines


def reorder_point(daily_use: float, days: int, deviation: float) -> float:
    """The amount at which an item is ordered again."""
    return daily_use * days + SAFETY_FACTOR * deviation
