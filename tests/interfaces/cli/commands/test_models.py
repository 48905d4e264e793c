"""`deputy models` says what servers have and what can be asked, and never shows a key."""

import json

import pytest
from click.testing import CliRunner
from tests.support.command_house import KEYS, LOCAL
from tests.support.programs import install_fake_programs

from deputy.interfaces.cli import deputy
from deputy.testing import ProviderServer

KEY = "sk-very-secret-0123456789"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_config(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, **environ):
    cleared = {f"{name}_API_KEY": None for name in (*KEYS, *LOCAL)} | {"ANTHROPIC_AUTH_TOKEN": None}
    unreachable = {f"{name}_BASE_URL": NOWHERE for name in ("ANTHROPIC", "OPENAI", *LOCAL)}
    return CliRunner().invoke(deputy, ["models", *arguments], env={**cleared, **unreachable, **environ})


def test_a_tick_means_that_the_server_answered():
    with ProviderServer(models=("claude-opus-4-6", "claude-next"), strict=False) as server:
        done = run(ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=server.url)
    assert done.exit_code == 0
    assert f"anthropic    ✓ 2 models at {server.url}; key in ANTHROPIC_API_KEY" in done.output
    assert "openai       ✗ no key; set OPENAI_API_KEY" in done.output
    assert "cursor       ✗ used only through its own program" in done.output
    assert "opus-4.6-thinking" in done.output
    assert "; retired on 2026-06-15, then claude-opus-5-5" in done.output
    assert KEY not in done.output

    done = run(ANTHROPIC_API_KEY=KEY)
    assert "anthropic    ✗ no answer from 127.0.0.1:9: Connection refused; key in ANTHROPIC_API_KEY" in done.output


def test_one_provider_is_listed_with_what_its_server_has():
    with ProviderServer(models=("claude-opus-4-6", "claude-next"), strict=False) as server:
        done = run("anthropic", ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=server.url)
    lines = done.output.splitlines()
    assert lines[1] == "  claude-opus-4-6            1,000,000 tokens   $5 in, $25 out"
    assert lines[2] == "  claude-next                  window unknown   price unknown"
    assert lines[3:5] == ["", "aliases"]


def test_the_list_of_all_has_the_first_models_of_a_local_server_and_says_how_many_more():
    with ProviderServer(models=[f"m{number}" for number in range(11)], strict=False) as server:
        done = run(LMSTUDIO_BASE_URL=server.url)
        one = run("lmstudio", LMSTUDIO_BASE_URL=server.url)
    assert f"lmstudio     ✓ 11 models at {server.url}/v1\n  m0 " in done.output
    assert "  m7                           window unknown   free\n  and 3 more: deputy models lmstudio" in done.output
    assert "m10" in one.output


def test_a_server_of_the_users_own_is_listed(no_config):
    config = no_config / ".config/deputy/config.toml"
    config.parent.mkdir(parents=True)
    with ProviderServer(models=("big", "small"), strict=False) as server:
        config.write_text(f'[providers.mine]\nbase_url = "{server.url}"\nis_free = true\n')
        done = run("mine")
    assert done.output.splitlines()[:2] == [
        f"mine         ✓ 2 models at {server.url}/v1",
        "  big                          window unknown   free",
    ]


def test_no_line_is_wider_than_80_columns(house):
    with ProviderServer(models=("a-model-with-a-name-that-is-longer-than-most-others",), strict=False) as server:
        terminal = house.terminal("models", columns=80, VLLM_BASE_URL=server.url)
        assert terminal.end() == 0
    assert [line for line in terminal.text.splitlines() if len(line) > 80] == []
    assert "vllm         ✓ 1 model at" in terminal.text


def test_the_models_of_a_program_are_those_that_it_lists(no_config):
    programs = install_fake_programs(no_config / "bin", ["opencode", "qwen", "codex"])
    programs.lists("opencode", "".join(f"opencode/m{number}\n" for number in range(10)))
    programs.lists("codex", '{"models": [{"slug": "gpt-next", "visibility": "list"}]}')
    path = {"PATH": f"{programs.folder}:/usr/bin:/bin"}
    done = run(**path)
    assert "opencode     ✓ 10 models through opencode; no login found\n  Run `opencode auth login`" in done.output
    assert "  opencode/m7                  window unknown   price unknown\n  and 2 more: deputy models" in done.output
    assert "qwen         ✗ qwen has no command that lists its models; no login found" in done.output
    assert "copilot      ✗ used only through its own program, copilot, which is not usable here" in done.output
    assert "openai       ✓ 1 model through codex; no login found\n" in done.output
    assert "opencode/m9" in run("opencode", **path).output
    form = json.loads(run("opencode", "--json", **path).output)
    assert (form["providers"][0]["answered"], len(form["providers"][0]["models"])) == (True, 10)
    (no_config / ".local/share/opencode").mkdir(parents=True)
    (no_config / ".local/share/opencode/auth.json").write_text("{}")
    assert run("opencode", **path).output.startswith("opencode     ✓ 10 models through opencode\n  opencode/m0")


def test_json_tells_the_same_to_programs():
    with ProviderServer(models=("claude-sonnet-4-5",), strict=False) as server:
        address = server.url.replace("//", "//me:pass@")
        done = run("anthropic", "--json", ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=address)
    output = json.loads(done.output)
    (provider,) = output["providers"]
    assert provider["ready"] is True
    assert provider["key_variable"] == "ANTHROPIC_API_KEY"
    assert (provider["answered"], provider["problem"], provider["base_url"]) == (True, None, server.url)
    sonnet = next(model for model in provider["models"] if model["name"] == "claude-sonnet-4-5")
    assert sonnet == {
        "name": "claude-sonnet-4-5",
        "window": 200_000,
        "max_output": 64_000,
        "thinks": True,
        "retires": "2026-11-30",
        "dollars_per_million_input": 3.0,
        "dollars_per_million_output": 15.0,
    }
    assert {"name": "planning", "model": "anthropic:claude-opus-4-6", "thinking": "high"} in output["names"]
    assert KEY not in done.output


def test_an_unknown_provider_is_a_usage_error():
    done = run("nowhere")
    assert "PROVIDER: found 'nowhere'" in str(done.exception)
