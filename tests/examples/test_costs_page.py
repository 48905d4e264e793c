"""The examples of docs/costs.md, run one after another against a provider's server, print what the page says."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from tests.support.fork_server import run

from deputy.config import load_catalog
from deputy.core.conversation import TokenUsage
from deputy.models.catalog import read_catalog
from deputy.testing import ModelScript, ProviderServer, ScriptedConversation, ScriptedTurn

PAGE = (Path(__file__).parents[2] / "docs" / "costs.md").read_text()
USED = TokenUsage(input_tokens=1000, output_tokens=20)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


def answer(when: str, text: str, times: int) -> ScriptedConversation:
    return ScriptedConversation(turns=(ScriptedTurn(text=text, usage=USED),), when=when, times=times)


def without_durations(text: str) -> str:
    return re.sub(r" +", " ", re.sub(r"\b\d+(\.\d+)?s\b", "0.1s", text)).strip()


@pytest.mark.rule("cost.unit")
def test_every_example_prints_what_the_page_says(tmp_path):
    script = ModelScript(
        conversations=(answer("passwords", "In src/auth.py.", 2), answer("not tested", "The login page.", 1))
    )
    delegate, refused, stats = blocks("console")
    (program,) = blocks("python")
    with ProviderServer(script) as server:
        env = {**os.environ, "HOME": str(tmp_path), "DEPUTY_HOME": str(tmp_path / "home"), "NO_COLOR": "1"}
        env |= {"DEPUTY_MODEL": "anthropic:claude-sonnet-5-5", **server.environ}

        def output(*arguments: str) -> str:
            ended = run([sys.executable, *arguments], cwd=tmp_path, env=env, capture_output=True, text=True)
            return ended.stdout or ended.stderr

        def check(block: str) -> None:
            command, _, expected = block.partition("\n")
            said = output("-m", *shlex.split(command.removeprefix("$ ")))
            assert without_durations(said) == without_durations(expected)

        check(delegate)
        check(refused)
        printed = output("-c", program).strip()
        assert f"It prints `{printed}`." in PAGE
        check(stats)


@pytest.mark.rule("cost.unit")
def test_a_price_of_the_user_is_read_as_the_page_says(tmp_path, monkeypatch):
    folder = tmp_path / ".config" / "deputy"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(blocks("toml")[0])
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    catalog = read_catalog(load_catalog(str(tmp_path)))
    prices = catalog.entry(catalog.resolve("openrouter:vendor/model")).prices
    assert prices is not None
    assert (prices.input, prices.output, prices.cached) == (0.5, 1.5, 0.05)
