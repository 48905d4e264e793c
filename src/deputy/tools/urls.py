"""Check URLs and addresses: a fetch must reach the public internet only."""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from deputy.tools.tool_text import ToolError

if TYPE_CHECKING:
    from collections.abc import Sequence

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

# The special-purpose registries, and metadata services of clouds in public ranges.
SPECIAL_V4 = {
    "0.0.0.0/8": "this network",
    "10.0.0.0/8": "private",
    "100.64.0.0/10": "shared by a carrier",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "cloud metadata",
    "169.254.0.0/16": "link-local or cloud metadata",
    "172.16.0.0/12": "private",
    "192.0.0.0/24": "reserved for protocols",
    "192.0.2.0/24": "documentation",
    "192.31.196.0/24": "reserved for protocols",
    "192.52.193.0/24": "reserved for protocols",
    "192.88.99.0/24": "a relay of IPv6",
    "192.168.0.0/16": "private",
    "192.175.48.0/24": "reserved for protocols",
    "198.18.0.0/15": "benchmarking",
    "198.51.100.0/24": "documentation",
    "203.0.113.0/24": "documentation",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved or broadcast",
}

# Of IPv6 only 2000::/3 is public at all: that alone rules out loopback, link-local, unique local (cloud metadata among
# them), multicast, IPv4 in disguise (`::ffff:0:0/96`) and translated IPv4 (`64:ff9b::/96`).
PUBLIC_V6 = "2000::/3"
SPECIAL_V6 = {
    "2001::/23": "reserved for protocols, tunnels among them",
    "2001:db8::/32": "documentation",
    "2002::/16": "a tunnel of IPv4",
    "2620:4f:8000::/48": "reserved for protocols",
    "3fff::/20": "documentation",
}
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


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


def why_not_public(address: str, allowed: Sequence[IPv4Network | IPv6Network] = ()) -> str | None:
    """The reason why an address is not public; None when it is. Networks in `allowed` count as public."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "not an address"
    if any(parsed in network for network in allowed):
        return None
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None:
            return "local to one interface"
        if parsed not in IPv6Network(PUBLIC_V6):
            return "not a public IPv6 address"
        if int(parsed) >> 32 & 0xFFFF_FFFF in _ISATAP:
            return "a tunnel of IPv4"
    return next((reason for network, reason in _special() if parsed in network), None)


@cache
def _special() -> tuple[tuple[IPv4Network | IPv6Network, str], ...]:
    return tuple((ip_network(network), reason) for network, reason in {**SPECIAL_V4, **SPECIAL_V6}.items())


def networks(*texts: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse networks."""
    return tuple(map(ip_network, texts))
