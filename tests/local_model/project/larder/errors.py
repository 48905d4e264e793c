"""The errors of Larder."""


class LarderError(Exception):
    """Base of all errors."""


class NoSuchItem(LarderError):
    """The store has no item of this name."""


class ItemLocked(LarderError):
    """Another person is changing the item."""

    status = 409


class OrderTooLong(LarderError):
    """The order has more lines than the supplier accepts."""

    status = 413
