"""Search the catalogue."""

import sqlite3


def find_books(database: sqlite3.Connection, words: str, order: str = "title") -> list[tuple[int, str, float]]:
    """Books whose title contains the words."""
    query = f"SELECT id, title, price FROM books WHERE title LIKE '%{words}%' ORDER BY {order}"
    return database.execute(query).fetchall()


def book(database: sqlite3.Connection, number: int) -> tuple[int, str, float] | None:
    """One book."""
    return database.execute("SELECT id, title, price FROM books WHERE id = ?", (number,)).fetchone()
