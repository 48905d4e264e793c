"""Who gets in over HTTP: hosts, origins and tokens, for the web page (a port is named) and for MCP (it is not)."""

import pytest
from tests.support.every_case import every_case

from deputy.core.errors import UsageError
from deputy.interfaces.http_access import AccessCheck, find_token

PAGE = AccessCheck(token="t" * 20, ports=[8711])
PROXIED = AccessCheck(token="t" * 20, names={"127.0.0.1", "deputy.example.com"}, ports=[8711], scheme="https")
ANY_PORT = AccessCheck(token="t" * 20)


@every_case(
    ("check", "hosts", "origins", "status"),
    [
        (PAGE, ["127.0.0.1:8711"], [], None),
        (PAGE, ["LOCALHOST:8711"], ["http://localhost:8711"], None),
        (PAGE, ["[::1]:8711"], ["http://[::1]:8711"], None),
        (PAGE, ["127.0.0.1:8712"], [], 421),
        (PAGE, ["127.0.0.1"], [], 421),
        (PAGE, ["127.0.0.1:8711.evil.com"], [], 421),
        (PAGE, ["evil.com"], [], 421),
        (PAGE, ["evil.com:8711"], [], 421),
        (PAGE, [""], [], 421),
        (PAGE, [":8711"], [], 421),
        (PAGE, [], [], 421),
        (PAGE, ["127.0.0.1:8711", "127.0.0.1:8711"], [], 421),
        (PAGE, ["127.0.0.1:8711"], ["http://127.0.0.1:8712"], 403),
        (PAGE, ["127.0.0.1:8711"], ["https://127.0.0.1:8711"], 403),
        (PAGE, ["127.0.0.1:8711"], ["http://localhost:8711"], 403),
        (PAGE, ["127.0.0.1:8711"], ["null"], 403),
        (PAGE, ["127.0.0.1:8711"], ["http://127.0.0.1:8711", "http://evil.com"], 403),
        (PROXIED, ["deputy.example.com"], ["https://deputy.example.com"], None),
        (PROXIED, ["deputy.example.com"], ["http://deputy.example.com"], 403),
        (PROXIED, ["deputy.example.com:8711"], [], None),
        (PROXIED, ["127.0.0.1"], [], 421),
        (ANY_PORT, ["127.0.0.1"], ["http://localhost:3000"], None),
        (ANY_PORT, ["127.0.0.1:1"], [], None),
        (ANY_PORT, ["127.0.0.1:x"], [], 421),
        (ANY_PORT, ["127.0.0.1"], ["http://evil.com"], 403),
    ],
)
def test_only_our_own_host_and_origin_get_in(check, hosts, origins, status):
    refusal = check.refuse_address(hosts, origins)
    assert (None if refusal is None else refusal.status) == status


@every_case(
    ("given", "is_in"),
    [
        (["Bearer " + "t" * 20], True),
        (["bearer " + "t" * 20], True),
        ([], False),
        (["Bearer"], False),
        (["Basic " + "t" * 20], False),
        (["Bearer " + "t" * 19], False),
        (["Bearer " + "t" * 20, "Bearer " + "t" * 20], False),
    ],
)
def test_only_the_token_gets_in(given, is_in):
    assert (PAGE.refuse_token(given) is None) == is_in


def test_a_token_is_made_once_and_only_its_owner_can_read_it(tmp_path, monkeypatch):
    monkeypatch.delenv("DEPUTY_MCP_TOKEN", raising=False)
    home = tmp_path / "home"
    token, source = find_token(home, "mcp-token", "DEPUTY_MCP_TOKEN")
    assert len(token) >= 43
    assert find_token(home, "mcp-token")[0] == token
    assert (home / "mcp-token").stat().st_mode & 0o777 == 0o600
    assert source.endswith("mcp-token")
    assert find_token(home, "mcp-token", is_new=True)[0] != token
    monkeypatch.setenv("DEPUTY_MCP_TOKEN", "short")
    with pytest.raises(UsageError, match="at least 16"):
        find_token(home, "mcp-token", "DEPUTY_MCP_TOKEN")
