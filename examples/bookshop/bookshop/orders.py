"""Orders and refunds."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

REFUND_DAYS = 14


@dataclass
class Order:
    """One order of a customer."""

    number: int
    ordered: datetime
    prices: list[float] = field(default_factory=list)
    refunded: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all prices, in euros."""
        return sum(self.prices)


def discounted(order: Order, percent: int) -> float:
    """The total after a discount."""
    return order.total - order.total * percent / 100


def refund(order: Order, amount: float, now: datetime) -> float:
    """Give money back; returns what the customer gets."""
    if now - order.ordered > timedelta(days=REFUND_DAYS):
        raise ValueError("the order is too old for a refund")
    order.refunded += amount
    return amount
