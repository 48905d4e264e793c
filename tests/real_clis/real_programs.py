"""The real programs against our own provider on loopback: opt-in, by `make test-real-clis`, which installs them.

usage: DEPUTY_PROGRAMS=FOLDER pytest tests/real_clis/real_programs.py
"""

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from deputy.backends.cli import cli_backend
from deputy.core.script import Script, ScriptedCall, ScriptedConversation, ScriptedTurn
from deputy.engine.ports.backend import Assignment, OwnSession
from deputy.testing import ProviderServer
from deputy.testing.backend_suite import CASES, leave_in_the_middle, play

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
PATIENT = {("the provider is overloaded", "gemini"), ("the provider is overloaded", "opencode")}
"""They try again for minutes, which is theirs to decide."""


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
        script = Script(
            conversations=(
                ScriptedConversation(turns=turns, when=case.name),
                ScriptedConversation(turns=(ScriptedTurn(text="…"),) * 9, times=99),
            )
        )
        async with ProviderServer(script, strict=False) as provider:
            yield cli_backend(self.name, self.environ(provider))

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


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.mark.parametrize("name", MODELS)
def test_it_is_found_with_its_version(name, home):
    async def check():
        async with ProviderServer(strict=False) as provider:
            return await cli_backend(name, RealStage(name, home).environ(provider)).check()

    ready = asyncio.run(check())
    print(f"{name} {ready.version}")
    assert ready.version
    assert ready.path.startswith(str(FOLDER))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_script_comes_to_the_same_end(case, name, home, workspace):
    if (case.name, name) in PATIENT:
        case = msgspec.structs.replace(
            case, seconds=START_SECONDS, ends=(msgspec.structs.replace(case.ends[0], kind="limited", code="TIMEOUT"),)
        )
    elif (case.name, name) in UNTOLD:
        case = msgspec.structs.replace(case, ends=(msgspec.structs.replace(case.ends[0], calls=None),))
    elif case.name == "time is up":
        case = msgspec.structs.replace(
            case, seconds=START_SECONDS, turns=(msgspec.structs.replace(case.turns[0], delay_seconds=120),)
        )
    ends = asyncio.run(play(case, RealStage(name, home), workspace))
    # opencode tells its session only with its first words.
    assert all(end.own_session is not None or end.kind == "failed" or name == "opencode" for end in ends)


@pytest.mark.parametrize("name", MODELS)
def test_a_run_that_is_cancelled_leaves_nothing(name, home, workspace):
    asyncio.run(leave_in_the_middle(RealStage(name, home), workspace))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("session", ["0199f1de-0000-7000-8000-000000000000"])
def test_a_session_that_is_gone_says_so(name, session, home, workspace):
    session = "ses_e1c2c94b9ffeUaVZQOc5lM4UKA" if name == "opencode" else session

    async def go_on():
        async with ProviderServer(strict=False) as provider:
            backend = cli_backend(name, RealStage(name, home).environ(provider))
            assignment = Assignment(
                session_id="sess_1_gone",
                prompt="x",
                model=MODELS[name],
                workspace=str(workspace),
                resume=OwnSession(id=session),
            )
            return await backend.run(assignment, lambda _: None)

    end = asyncio.run(go_on())
    assert (end.kind, end.error.code, end.is_resumable) == ("failed", "SESSION_GONE", False)


@pytest.mark.parametrize("name", MODELS)
def test_a_program_that_nobody_is_logged_in_to_says_so(name, home, workspace):
    async def try_it():
        async with ProviderServer(strict=False) as provider:
            environ = RealStage(name, home).environ(provider)
            kept = {key: value for key, value in environ.items() if not key.endswith("_API_KEY")}
            kept["OPENCODE_CONFIG_CONTENT"] = "{}"
            (home / ".gemini/settings.json").unlink()
            model = "anthropic:claude-sonnet-5-5" if name == "opencode" else MODELS[name]
            assignment = Assignment(
                session_id="sess_1_out", prompt="x", model=model, workspace=str(workspace), seconds=START_SECONDS
            )
            return await cli_backend(name, kept).run(assignment, lambda _: None)

    end = asyncio.run(try_it())
    # opencode has no models of a provider that it has no key for.
    wanted = "MODEL_NOT_FOUND" if name == "opencode" else "PROGRAM_NOT_LOGGED_IN"
    assert (end.kind, end.error.code) == ("failed", wanted)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_somebody_else_ends_has_crashed(name, number, home, workspace):
    case = msgspec.structs.replace(CASES[0], turns=(ScriptedTurn(text="Late.", delay_seconds=60),), name="it is ended")

    async def end_it():
        async with RealStage(name, home).open(case, workspace) as backend:
            assignment = Assignment(
                session_id="sess_3_ended", prompt=case.name, model=MODELS[name], workspace=str(workspace), seconds=25
            )
            running = asyncio.ensure_future(backend.run(assignment, lambda _: None))
            await asyncio.wait({running}, timeout=8)
            for pid in of_session("sess_3_ended"):
                os.kill(pid, number)
            return await running

    end = asyncio.run(end_it())
    print(f"{name} {number.name}: {end.kind} {end.error.code} {end.error.message[:150]}")
    assert end.kind in ("failed", "limited")
    # gemini ends well while it starts, and not at all later on.
    assert end.error.code in ("PROGRAM_CRASHED", "TIMEOUT", *(("EMPTY_REPLY",) if name == "gemini" else ()))


def of_session(session):
    """The processes of a run, the one that watches over them left aside."""
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                environ, command = (process / "environ").read_bytes(), (process / "cmdline").read_bytes()
            except OSError:
                continue
            if f"DEPUTY_CALL={session}".encode() in environ and b"warden.py" not in command:
                yield int(process.name)
