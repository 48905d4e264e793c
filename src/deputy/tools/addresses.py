"""Address ranges that are not on the public internet; a fetch must never reach them."""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def why_not_public(address: str, allowed: Sequence[IPv4Network | IPv6Network] = ()) -> str | None:
    """The reason why an address is not public; None when it is. Networks in `allowed` count as public."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "not an address"
    if any(parsed in network for network in allowed):
        return None
    return _why_not_v4(parsed) if isinstance(parsed, IPv4Address) else _why_not_v6(parsed)


def _why_not_v4(address: IPv4Address) -> str | None:
    return next((reason for network, reason in _special_v4() if address in network), None)


def _why_not_v6(address: IPv6Address) -> str | None:
    if address.scope_id is not None:
        return "local to one interface"
    if address not in IPv6Network(PUBLIC_V6):
        return "not a public IPv6 address"
    if int(address) >> 32 & 0xFFFF_FFFF in _ISATAP:
        return "a tunnel of IPv4"
    return next((reason for network, reason in _special_v6() if address in network), None)


@cache
def _special_v4() -> tuple[tuple[IPv4Network, str], ...]:
    return tuple((IPv4Network(network), reason) for network, reason in SPECIAL_V4.items())


@cache
def _special_v6() -> tuple[tuple[IPv6Network, str], ...]:
    return tuple((IPv6Network(network), reason) for network, reason in SPECIAL_V6.items())


def networks(*texts: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse networks."""
    return tuple(map(ip_network, texts))
