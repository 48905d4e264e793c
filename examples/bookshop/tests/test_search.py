"""Tests of the search."""

import sqlite3

from bookshop.search import find_books


def test_a_word_of_the_title_finds_the_book():
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE books (id INTEGER, title TEXT, price REAL)")
    database.execute("INSERT INTO books VALUES (1, 'The Tides', 12.5)")
    assert find_books(database, "Tides") == [(1, "The Tides", 12.5)]
