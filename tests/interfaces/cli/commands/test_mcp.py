"""`deputy mcp` at its start: what it cannot serve with is told at once."""

import pytest


@pytest.mark.parametrize("form", [(), ("--json",), ("--http", "0")])
@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ("nope:x", "unknown model: write provider:model, with one of anthropic"),
        ("offline:x", "offline:scout is the only offline model"),
        ("script:/nowhere/to/be/found", "the script cannot be read"),
    ],
)
def test_an_unknown_model_is_refused_at_the_start(house, form, model, problem):
    done = house.run("mcp", *form, "--model", model)
    assert (done.returncode, bool(done.stdout)) == (2, "--json" in form)
    assert f"--model: found {model!r}; {problem}" in done.stderr


@pytest.mark.parametrize("model", ["sonnet", "anthropic:claude-sonnet-4-5", "offline:scout", "cursor:some-model"])
def test_a_known_model_is_served_though_its_key_may_be_missing(house, model):
    assert house.run("mcp", "--model", model).returncode == 0


@pytest.mark.parametrize("given", [("--host", "127.0.0.1"), ("--allow-host", "here.example")])
def test_what_is_for_http_alone_is_refused_without_it(house, given):
    done = house.run("mcp", *given)
    assert done.returncode == 2
    assert f"{given[0]}: found {given[1]!r}; this option is for HTTP; also give --http PORT" in done.stderr
