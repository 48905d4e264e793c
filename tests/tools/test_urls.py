"""Which addresses of the web may be fetched; no network is used."""

import pytest
from tests.support.every_case import every_case

from deputy.tools.tool_text import ToolError
from deputy.tools.urls import check_url

# The bad ports of the Fetch standard (https://fetch.spec.whatwg.org/#port-blocking) from 1024 on.
BAD_PORTS = [
    1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
]  # fmt: skip


@pytest.mark.rule("web")
@every_case("port", [0, 22, 25, 79, 81, 442, 444, 1023, *BAD_PORTS])
def test_a_port_of_another_protocol_is_refused(port: int) -> None:
    with pytest.raises(ToolError, match=f"port {port} is not a web port"):
        check_url(f"http://example.com:{port}/")


@pytest.mark.rule("web")
@every_case("port", [80, 443, 1024, 3000, 8080, 8443, 65535])
def test_a_web_port_is_not_refused(port: int) -> None:
    assert check_url(f"http://example.com:{port}/#part").port == port


@pytest.mark.rule("web")
@every_case(("url", "why"), [
    ("http://" + "a" * 64 + ".com/", "not a valid name"),
    ("http://" + "a." * 126 + "com/", "not a valid name"),
    ("http://example.com/" + "a" * (4097 - 19), "is too long"),
])  # fmt: skip
def test_what_is_longer_than_allowed_is_refused(url: str, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        check_url(url)


@pytest.mark.rule("web")
@every_case("url", [
    "http://" + "a" * 63 + ".com/", "http://" + "a." * 125 + "com/", "http://example.com/" + "a" * (4096 - 19),
])  # fmt: skip
def test_what_is_as_long_as_allowed_is_not_refused(url: str) -> None:
    assert str(check_url(url)) == url
