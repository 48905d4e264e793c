"""`deputy models` says what can be asked, and never shows a key."""

import json

from click.testing import CliRunner

from deputy.interfaces.cli import deputy

KEY = "sk-very-secret-0123456789"


def run(*arguments, **environ):
    cleared = {"ANTHROPIC_API_KEY": None, "ANTHROPIC_AUTH_TOKEN": None, "OPENAI_API_KEY": None, "GEMINI_API_KEY": None}
    return CliRunner().invoke(deputy, ["models", *arguments], env={**cleared, "GOOGLE_API_KEY": None, **environ})


def test_providers_are_listed_with_whether_they_have_a_key():
    done = run(ANTHROPIC_API_KEY=KEY)
    assert done.exit_code == 0
    assert "anthropic    ✓ key in ANTHROPIC_API_KEY" in done.output
    assert "openai       ✗ no key; set OPENAI_API_KEY" in done.output
    assert "cursor       ✗ used only through its own program" in done.output
    assert "opus-4.6-thinking" in done.output
    assert "; retired on 2026-06-15, then claude-opus-5-5" in done.output
    assert KEY not in done.output


def test_json_tells_the_same_to_programs():
    done = run("anthropic", "--json", ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL="https://me:pass@proxy.example/x")
    output = json.loads(done.output)
    (provider,) = output["providers"]
    assert provider["ready"] is True
    assert provider["key_variable"] == "ANTHROPIC_API_KEY"
    assert provider["base_url"] == "https://proxy.example/x"
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
