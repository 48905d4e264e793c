"""`deputy report`: one file for a run and its tree."""

import json
import re

import pytest


@pytest.fixture
def done(house) -> str:
    model = house.script("m", {"turns": [{"text": "## Found\n\nNothing <b>bold</b>."}]})
    run = house.run("delegate", "-t", "a=look around", "--yes", "--model", model, "--json")
    return json.loads(run.stdout)["session_id"]


def test_the_report_of_a_call_is_one_file_that_only_its_owner_reads(house, done):
    run = house.run("report", done)
    path = house.workspace / f"{done}.html"
    assert run.returncode == 0, run.stderr
    assert re.fullmatch(rf"{done}\.html: 2 runs, \d+ KiB\n", run.stdout)
    assert path.stat().st_mode & 0o777 == 0o600
    page = path.read_text()
    assert page.startswith("<!doctype html>")
    assert "look around" in page
    assert "Nothing &lt;b&gt;bold&lt;/b&gt;." in page
    assert not re.search(r"<script|src=|url\(", page)


def test_a_report_replaces_no_file_unless_it_is_forced(house, done):
    (house.workspace / "r.html").write_text("mine")
    refused = house.run("report", done, "-o", "r.html")
    assert (refused.returncode, (house.workspace / "r.html").read_text()) == (2, "mine")
    assert "name another file, or pass --force" in refused.stderr
    forced = house.run("report", done, "-o", "r.html", "--force", "--json")
    told = json.loads(forced.stdout)
    size = (house.workspace / "r.html").stat().st_size
    assert told == {"session_id": done, "file": "r.html", "runs": 2, "bytes": size}


def test_a_report_goes_to_standard_output_or_says_why_not(house, done):
    assert house.run("report", "last", "-o", "-").stdout.endswith("</html>\n")
    assert house.run("report", done, "-o", "-", "--json").returncode == 2
    assert "create it first" in house.run("report", done, "-o", "no/where.html").stderr
    assert house.run("report", "sess_1_nobody").returncode == 3


def test_the_screen_of_a_report_fits_80_columns(house, done):
    for arguments in (("report", done), ("report", "--help")):
        screen = house.terminal(*arguments)
        screen.end()
        assert max(map(len, screen.text.splitlines())) <= 80
