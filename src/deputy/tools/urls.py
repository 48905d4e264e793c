"""Check a URL before anything is resolved or connected."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING

from deputy.tools.addresses import why_not_public
from deputy.tools.tool_error import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Network, IPv6Network

    from yarl import URL

_LONGEST = 4096
_HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
INNER_DOMAINS = ("localhost", "localdomain", "local", "internal", "intranet", "lan", "home.arpa")
"""Domains that exist only inside private networks."""

WEB_PORTS = frozenset({80, 443})
REFUSED_HIGH_PORTS = frozenset({
    1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
})  # fmt: skip
"""Ports from 1024 on that browsers refuse, because servers of other protocols could obey a request."""


def check_url(text: str, allowed: Sequence[IPv4Network | IPv6Network] = ()) -> URL:
    """Parse a URL of the public web, without its fragment; the error says what is wrong."""
    from yarl import URL

    text = text.strip()
    if len(text) > _LONGEST or not text.isprintable() or any(character in text for character in " \\"):
        raise _refused(text, "it contains characters that no URL has, or is too long")
    try:
        url = URL(text).with_fragment(None)
        port = url.port
    except ValueError as error:
        raise _refused(text, f"it is not a URL ({error})") from error
    if url.scheme not in ("http", "https"):
        raise _refused(text, "only http and https can be fetched")
    if url.user is not None or url.password is not None:
        raise _refused(text, "it contains a user name or password")
    if port is None or (port not in WEB_PORTS and (port < 1024 or port in REFUSED_HIGH_PORTS)):
        raise _refused(text, f"port {port} is not a web port")
    host = (url.raw_host or "").lower().rstrip(".")
    problem = _why_not_host(host, allowed)
    if problem:
        raise _refused(text, problem)
    return url.with_host(host)


def _why_not_host(host: str, allowed: Sequence[IPv4Network | IPv6Network]) -> str | None:
    if ":" in host:
        return _why_not_literal(host, IPv6Address, allowed)
    labels = host.split(".")
    if not set(host) <= _HOST_CHARACTERS or len(host) > 253 or not all(0 < len(label) < 64 for label in labels):
        return "its host is not a valid name"
    if _is_number(labels[-1]):
        return _why_not_literal(host, IPv4Address, allowed)
    if len(labels) == 1 or any(host == inner or host.endswith(f".{inner}") for inner in INNER_DOMAINS):
        return "its host is a name of a private network, not on the public internet"
    return None


def _why_not_literal(
    host: str, kind: type[IPv4Address | IPv6Address], allowed: Sequence[IPv4Network | IPv6Network]
) -> str | None:
    try:
        address = kind(host)
    except ValueError:
        return "its host is an address in an unusual spelling"
    reason = why_not_public(str(address), allowed)
    return reason and f"its address is not on the public internet ({reason})"


def _is_number(label: str) -> bool:
    """Whether some resolvers take a host with this last label for an address."""
    return label.isdigit() or (label.startswith("0x") and all(digit in "0123456789abcdef" for digit in label[2:]))


def _refused(text: str, reason: str) -> ToolError:
    return ToolError(f"{text!r:.200} was not fetched: {reason}.")
