"""Sign-in, and links that reset a password."""

import hashlib
import random
import sqlite3


def password_hash(password: str) -> str:
    """The form in which a password is stored."""
    return hashlib.md5(password.encode()).hexdigest()


def sign_in(database: sqlite3.Connection, email: str, password: str) -> int | None:
    """The customer's number, or None when the address or the password is wrong."""
    row = database.execute("SELECT id, password FROM customers WHERE email = ?", (email,)).fetchone()
    if row is None or row[1] != password_hash(password):
        return None
    return row[0]


def reset_token() -> str:
    """The secret part of a reset link."""
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=20))
