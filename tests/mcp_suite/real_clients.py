"""`make test-real-clients`: other people's agents, set up by `deputy connect`, call Delegate and get the result."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mcp_suite.node import install

from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedConversation, ScriptedTurn
from deputy.interfaces.mcp_clients import ABOUT, CLIENTS
from deputy.testing import ProviderServer

PACKAGES = {
    "claude": "@anthropic-ai/claude-code@2.1.325",
    "codex": "@openai/codex@0.166.0",
    "opencode": "opencode-ai@1.18.33",
    "gemini": "@google/gemini-cli@0.61.0",
}
NAMES = {
    "claude": ("", "mcp__deputy__Delegate"),
    "codex": ("mcp__deputy", "Delegate"),
    "opencode": ("", "deputy_Delegate"),
    "gemini": ("", "mcp_deputy_Delegate"),
}
PROMPT = "Have a subagent look into the parcel, and tell me what it found."
TASKS = [{"label": "parcel", "prompt": "What is in the parcel? Say only that."}]
FOUND = "a brass sextant"
SECONDS = 180
DEPUTY = str(Path(sys.executable).parent / "deputy")


def main() -> int:
    env = install(*PACKAGES.values())
    wanted = sys.argv[1:] or list(PACKAGES)
    codes = {client: check(client, env) for client in wanted}
    for client, problem in codes.items():
        print(f"{client:<10} {PACKAGES[client]:<42} {problem or 'read the advice, called Delegate and got the result'}")
    return int(any(codes.values()))


def check(client: str, env: dict[str, str]) -> str:
    """What went wrong with a client; nothing when it called Delegate and its model saw the result."""
    space, name = NAMES[client]
    script = ModelScript(
        conversations=(
            ScriptedConversation(when="What is in the parcel?", turns=(ScriptedTurn(text=FOUND),)),
            ScriptedConversation(
                when=PROMPT,
                turns=(
                    ScriptedTurn(calls=(ScriptedCall(namespace=space, name=name, arguments={"tasks": TASKS}),)),
                    ScriptedTurn(text="It holds what the subagent says."),
                ),
                times=3,
            ),
            # Titles, summaries and whatever else a program asks beside the work.
            ScriptedConversation(turns=(ScriptedTurn(text="ok"),) * 3, times=50),
        )
    )
    with tempfile.TemporaryDirectory() as folder, ProviderServer(script, strict=False) as provider:
        place = Path(folder)
        (place / "work").mkdir()
        kept = {name: value for name, value in env.items() if not name.endswith(("_API_KEY", "_BASE_URL", "_TOKEN"))}
        kept |= {"HOME": folder, "DEPUTY_HOME": f"{folder}/deputy", "XDG_CONFIG_HOME": f"{folder}/.config"}
        command, more = COMMANDS[client](place, provider)
        kept = {**kept, **provider.environ, **more, "DEPUTY_MODEL": "anthropic:claude-sonnet-4-5"}

        def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            # Without the folder of `deputy` on PATH: the entry must name it absolutely.
            return subprocess.run(
                arguments,
                cwd=place / "work",
                env=kept,
                stdin=subprocess.DEVNULL,
                text=True,
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )

        try:
            connected = run(DEPUTY, "connect", client, "--yes", "--unattended")
            if connected.returncode:
                return f"deputy connect failed: {connected.stderr}"
            done = run(*command)
        except subprocess.TimeoutExpired as error:
            return f"it took longer than {SECONDS} s: {str(error.stdout)[-300:]}"
        seen = [json.dumps(one.body) for one in provider.asked if PROMPT in json.dumps(one.body)]
        if not any(FOUND in body for body in seen):
            return f"exit {done.returncode}; its model never saw the result: {(done.stdout + done.stderr)[-1500:]}"
        if not any(ABOUT in body for body in seen):
            return "its model never saw the advice"
        run(DEPUTY, "connect", client, "--yes", "--remove")
        known = CLIENTS[client]
        config = known.config_path(kept)
        # An empty file is removed too.
        left = config.read_text() if config.exists() else ""
        is_gone = known.disconnected(left) == left and not known.skill_path(kept).exists()
        return "" if is_gone else f"deputy connect --remove left something: {left[-500:]}"


def claude(place: Path, provider: ProviderServer):
    command = ["claude", "-p", PROMPT, "--allowedTools", "mcp__deputy"]
    return (
        command,
        {
            "ANTHROPIC_API_KEY": "test-key-anthropic",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        },
    )


def codex(place: Path, provider: ProviderServer):
    here = f'{{name="here",base_url="{provider.url}/v1",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    settings = {
        "model_provider": '"here"',
        "model_providers.here": here,
        "model": '"gpt-5.2"',
        "mcp_servers.deputy.required": "true",
        "mcp_servers.deputy.default_tools_approval_mode": '"approve"',
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    (place / ".codex").mkdir()
    # Its first message is about itself and this file; the prompt comes later.
    (place / "work" / "AGENTS.md").write_text(f"{PROMPT}\n")
    command = ["codex", "exec", "--json", "--skip-git-repo-check", *options, PROMPT]
    return command, {"CODEX_HOME": f"{place}/.codex"}


def opencode(place: Path, provider: ProviderServer):
    config = {
        "provider": {
            "here": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{provider.url}/v1", "apiKey": "test-key-here"},
                "models": {"gpt-5.2": {}},
            }
        },
        "model": "here/gpt-5.2",
        "autoupdate": False,
        "share": "disabled",
    }
    (place / "work" / "opencode.json").write_text(json.dumps(config))
    run = f"echo {json.dumps(PROMPT)} | opencode run --format json"
    return ["sh", "-c", run], {"XDG_DATA_HOME": f"{place}/data", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def gemini(place: Path, provider: ProviderServer):
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (place / ".gemini").mkdir()
    (place / ".gemini" / "settings.json").write_text(json.dumps(settings))
    command = ["gemini", "-p", PROMPT, "-m", "gemini-2.5-pro", "--skip-trust", "--approval-mode", "yolo"]
    return command, {"GEMINI_API_KEY": "test-key-gemini"}


COMMANDS = {"claude": claude, "codex": codex, "opencode": opencode, "gemini": gemini}

if __name__ == "__main__":
    sys.exit(main())
