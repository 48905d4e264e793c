"""Real programs with a provider of ours behind them: what all who play cases with them share."""

import os
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from deputy.backends.cli import cli_backend
from deputy.core.model_script import ModelScript, ScriptedCall, ScriptedConversation, ScriptedTurn
from deputy.engine.ports.backend import BackendRequest, BackendSession
from deputy.testing import ProviderServer

FOLDER = Path(os.environ.get("DEPUTY_PROGRAMS", "build/programs")).resolve()
KEY = "sk-test-0123456789abcdef0123456789abcdef"
START_SECONDS = 45.0
"""How long the slowest of them may take before it asks its model."""
MODELS = {
    "claude": "anthropic:claude-sonnet-5-5",
    "codex": "openai:gpt-5.2",
    "gemini": "google:gemini-3.1-pro-preview",
    "opencode": "test:m1",
}
TOOLS = {
    "claude": {"Read": ("Read", "file_path"), "Write": ("Write", "file_path")},
    "codex": {"Read": ("exec_command", "cmd"), "Write": ("exec_command", "cmd")},
    "gemini": {"Read": ("read_file", "file_path"), "Write": ("write_file", "file_path")},
    "opencode": {"Read": ("read", "filePath"), "Write": ("write", "filePath")},
    "copilot": {"Read": ("view", "path"), "Write": ("create", "path")},
    "qwen": {"Read": ("read_file", "file_path"), "Write": ("write_file", "file_path")},
}
UNTOLD = {("it wants to write and may not", "codex")}
"""A command that its sandbox ends at once is told of in some runs and not in others."""


class RealStage:
    """Plays cases with a real program whose provider plays the script."""

    def __init__(self, name, home):
        self.name, self.home = name, home

    @property
    def model(self):
        return MODELS[self.name]

    @asynccontextmanager
    async def open(self, case, workspace):
        turns = tuple(self._turn(turn, workspace) for turn in case.turns)
        script = ModelScript(
            conversations=(
                ScriptedConversation(turns=turns, when=case.name),
                ScriptedConversation(turns=(ScriptedTurn(text="…"),) * 9, times=99),
            )
        )
        async with ProviderServer(script, strict=False) as provider:
            yield self.backend(provider)

    def backend(self, provider):
        return cli_backend(self.name, self.environ(provider))

    def _turn(self, turn, workspace):
        """Programs ask again after a failure, and call tools by their own names."""
        calls = tuple(self._call(call, workspace) for call in turn.calls)
        return msgspec.structs.replace(turn, calls=calls, faults=turn.faults * 20)

    def _call(self, call, workspace):
        name, argument = TOOLS[self.name][call.name]
        path = str(workspace / call.arguments["path"])
        if self.name == "codex":
            command = f"cat {path}" if call.name == "Read" else f"printf 'made\\n' > {path}"
            return ScriptedCall(name=name, arguments={argument: command})
        renamed = {"content": "file_text"} if self.name == "copilot" else {}
        rest = {renamed.get(key, key): value for key, value in call.arguments.items() if key != "path"}
        return ScriptedCall(name=name, arguments={argument: path, **rest})

    def environ(self, provider):
        self.home.mkdir(exist_ok=True)
        settle(self.home, provider.url)
        return {
            "PATH": f"{FOLDER / 'node_modules/.bin'}:/usr/bin:/bin",
            "HOME": str(self.home),
            "ANTHROPIC_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "OPENAI_API_KEY": KEY,
            "GEMINI_API_KEY": KEY,
            "GOOGLE_GEMINI_BASE_URL": provider.url,
            "OPENCODE_CONFIG_CONTENT": msgspec.json.encode(opencode_config(provider.url)).decode(),
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": f"{provider.url}/v1",
            "COPILOT_PROVIDER_API_KEY": KEY,
            "COPILOT_MODEL": "gpt-5.2",
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "OPENAI_MODEL": "m1",
        }


def settle(home, url):
    """The files that point programs at a provider."""
    provider = f'{{name="test",base_url="{url}/v1",env_key="OPENAI_API_KEY",wire_api="responses"'
    retries = "request_max_retries=0,stream_max_retries=0}"
    files = {
        ".codex/config.toml": f'model_provider="test"\n[model_providers]\ntest={provider},{retries}\n',
        ".gemini/settings.json": '{"security": {"auth": {"selectedType": "gemini-api-key"}}}',
    }
    for path, content in files.items():
        (home / path).parent.mkdir(exist_ok=True)
        (home / path).write_text(content)


def opencode_config(url):
    options = {"baseURL": f"{url}/v1", "apiKey": KEY}
    models = {"m1": {"name": "m1", "limit": {"context": 100_000, "output": 4096}}}
    return {"provider": {"test": {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}}}


def adapted(case, name, patient):
    """A case as a program plays it: it needs time to start, some ask again for minutes, one does not tell of a call."""
    replace = msgspec.structs.replace
    if (case.name, name) in patient:
        return replace(case, seconds=START_SECONDS, ends=(replace(case.ends[0], kind="limited", code="TIMEOUT"),))
    if (case.name, name) in UNTOLD:
        return replace(case, ends=(replace(case.ends[0], calls=None),))
    if case.name == "time is up":
        return replace(case, seconds=START_SECONDS, turns=(replace(case.turns[0], delay_seconds=120),))
    return case


async def look_for(stage):
    """Whether a program is there, and which."""
    async with ProviderServer(strict=False) as provider:
        return await stage.backend(provider).check()


async def go_on_with_what_is_gone(stage, workspace):
    """The end of a turn in a session that there never was."""
    session = "ses_e1c2c94b9ffeUaVZQOc5lM4UKA" if stage.name == "opencode" else "0199f1de-0000-7000-8000-000000000000"
    assignment = BackendRequest(
        session_id="sess_1_gone",
        prompt="x",
        model=stage.model,
        workspace=str(workspace),
        resume=BackendSession(id=session),
        seconds=60,
    )
    async with ProviderServer(strict=False) as provider:
        return await stage.backend(provider).run(assignment, lambda _: None)
