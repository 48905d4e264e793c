"""The stock, in a SQLite file."""

import os
import sqlite3

from larder.errors import ItemLocked, NoSuchItem

LOCK_SECONDS = 37
TABLE = "stock_levels"


class StockBook:
    """Reads and writes the amounts of all items."""

    def __init__(self) -> None:
        self._file = os.environ.get("LARDER_DB_FILE", "larder.db")
        self._locked: set[str] = set()

    def amounts(self) -> dict[str, float]:
        """The amount of each item, in grams."""
        with sqlite3.connect(self._file) as database:
            return dict(database.execute(f"SELECT name, grams FROM {TABLE}"))

    def take(self, name: str, grams: float) -> float:
        """Take some of an item; returns what is left."""
        amounts = self.amounts()
        if name not in amounts:
            raise NoSuchItem(name)
        if name in self._locked:
            raise ItemLocked(name)
        left = max(0.0, amounts[name] - grams)
        with sqlite3.connect(self._file) as database:
            database.execute(f"UPDATE {TABLE} SET grams = ? WHERE name = ?", (left, name))
        return left
