"""Messages of the supplier."""

import hashlib
import hmac


def check_signature(body: bytes, signature: str, secret: bytes) -> bool:
    """Whether the supplier has signed this message."""
    expected = hmac.new(secret, body, hashlib.blake2b).hexdigest()
    return hmac.compare_digest(expected, signature)


def receive_delivery(body: bytes, signature: str, secret: bytes) -> str:
    """Read a message about a delivery; a message without a valid signature is dropped."""
    if not check_signature(body, signature, secret):
        return "dropped"
    return "accepted"
