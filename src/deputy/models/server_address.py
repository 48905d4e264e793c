"""Addresses of model servers: from variables and settings, checked, and shown without a password."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from deputy.core.errors import UsageError

if TYPE_CHECKING:
    from deputy.models.wire_model import Endpoint

_EVERY_INTERFACE = ("", "0.0.0.0", "::", "[::]")  # noqa: S104  only compared
_DEFAULT_PORTS = {"http": "80", "https": "443"}


def address_of_host(value: str, port: str) -> str:
    """The address in a variable like OLLAMA_HOST: a host, a port, both, or an address; `port` is for a bare host."""
    value = value.strip().strip("'\"")
    scheme, separator, rest = value.partition("://")
    if separator:
        port = _DEFAULT_PORTS.get(scheme, port)
    else:
        scheme, rest = "http", value
    place, slash, path = rest.partition("/")
    host, colon, given = place.rpartition(":")
    if not colon or (place.count(":") > 1 and not host.endswith("]")):
        host, given = place, port
    if host.count(":") and not host.startswith("["):
        host = f"[{host}]"
    # A server that listens everywhere is reached on this machine.
    host = "127.0.0.1" if host in _EVERY_INTERFACE else host
    return f"{scheme}://{host}:{given or port}{slash}{path}"


def with_version(url: str) -> str:
    """The address with `/v1` when it has no path: servers print their address both ways."""
    try:
        is_bare = urlsplit(url).path in ("", "/")
    except ValueError:
        return url
    return f"{url.rstrip('/')}/v1" if is_bare and "?" not in url else url


def check_address(endpoint: Endpoint, field: str) -> None:
    """Raise unless the address is valid and has at most one kind of credential."""
    url = endpoint.base_url
    if not is_address(url):
        raise UsageError(field, without_password(url), "give an address like https://example.com/v1")
    # A key and a password would need the same header.
    if "authorization" in endpoint.headers() and "@" in urlsplit(url).netloc:
        expected = f"remove the user and password from the address: {endpoint.key_variable} is used instead"
        raise UsageError(field, without_password(url), expected)


def is_address(url: str) -> bool:
    """Whether a URL can be called."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def without_password(url: str) -> str:
    """A URL to show."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"
