"""Import aiohttp without reading the CA certificates, which is a fifth of the CPU before a first request over HTTP."""

from __future__ import annotations

import ssl
import sys
import threading
from typing import Any

_CONTEXTS = ("_SSL_CONTEXT_VERIFIED", "_SSL_CONTEXT_UNVERIFIED")
"""The contexts that aiohttp makes when it is imported."""


class _UnreadContext(ssl.SSLContext):
    """A TLS context that reads the CA certificates for its first connection, and is then an ordinary one."""

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self._read().wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        return self._read().wrap_socket(*args, **kwargs)

    def _read(self) -> ssl.SSLContext:
        object.__setattr__(self, "__class__", ssl.SSLContext)
        self.set_default_verify_paths()
        return self


def import_aiohttp() -> None:
    """Import aiohttp, unless it is imported; its own TLS contexts read the certificates when they are first used."""
    if "aiohttp" in sys.modules:
        return
    importer, read = threading.get_ident(), ssl.SSLContext.set_default_verify_paths

    def skip(self: ssl.SSLContext) -> None:
        if threading.get_ident() != importer:
            read(self)

    ssl.SSLContext.set_default_verify_paths = skip
    try:
        from aiohttp import connector
    finally:
        del ssl.SSLContext.set_default_verify_paths
    for name in _CONTEXTS:
        # Without such a context aiohttp trusts no certificate: it fails closed.
        if isinstance(context := getattr(connector, name, None), ssl.SSLContext):
            context.__class__ = _UnreadContext
