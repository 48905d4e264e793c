"""`deputy web` and `--web` as a person starts them."""

import json
import urllib.request

import pytest
from tests.support.command_house import until
from tests.support.scripts import talk, turn


def started(house, *arguments, **env):
    """A server, and what it printed as JSON."""
    process = house.start("web", *arguments, "--json", **env)
    return process, json.loads(b"".join(iter(process.stdout.readline, b"}\n")) + b"}")


def board(url: str, token: str) -> dict:
    request = urllib.request.Request(f"{url}/api/board", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def token_of(house) -> str:
    return (house.home / "web-token").read_text().strip()


def test_the_page_is_served_until_it_is_stopped(house):
    process, address = started(house)
    assert address["token_in"].endswith("web-token")
    assert board(address["url"], token_of(house))["journal"]["state"] == "none"
    process.terminate()
    assert process.wait(30) == 0
    assert not (house.home / "web-address.json").exists()


def test_a_person_gets_the_address_with_the_token_behind_the_mark(house):
    terminal = house.terminal("web", "--no-open", columns=200)
    terminal.until("Ctrl-C ends it")
    token = token_of(house)
    assert f"/#token={token}" in terminal.text
    terminal.type("\x03")
    assert terminal.end() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0"), "--name NAME"),
        (("--name", "x.example.com"), "--host ADDRESS"),
        (("--insecure",), "--host ADDRESS"),
        (("--port", "70000"), "--port"),
    ],
)
def test_other_machines_need_an_address_and_a_name(house, arguments, said):
    run = house.run("web", *arguments)
    assert run.returncode == 2
    assert said in run.stderr


def test_a_port_in_use_is_named(house):
    _, address = started(house)
    port = address["url"].rpartition(":")[2]
    run = house.run("web", "--port", port, "--no-open")
    assert run.returncode == 2
    assert "give another port" in run.stderr


def test_the_page_beside_a_run_shows_it_takes_the_approval_and_ends_with_it(house):
    model = house.script("m", talk(turn("all is well"), times=9))
    process = house.start("delegate", "-t", "a=Look.", "--web", "--json", "--model", model)
    place = house.home / "web-address.json"
    address = until(lambda: place.exists() and place.read_text())
    url, token = json.loads(address)["url"], token_of(house)
    (one,) = until(lambda: board(url, token)["waiting"])
    body = json.dumps({"key": one["key"], "digest": one["digest"], "approve": True}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/runs/{one['run']}/answer", body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.loads(answer.read()) == {"counted": True, "taken": True}
    assert process.wait(60) == 0
    assert json.loads(process.stdout.read())["completed"] == 1
    assert not (house.home / "web-address.json").exists()
