import os
from contextlib import asynccontextmanager

import pytest
from tests.support.programs import install_fake_programs

from deputy.backends.acp import acp_backend
from deputy.backends.acp.known_agents import AGENTS
from deputy.backends.cli import cli_backend
from deputy.tools.workspace_text_files import WorkspaceTextFiles

KEYS = {
    "ANTHROPIC_API_KEY": "canary-anthropic",
    "OPENAI_API_KEY": "canary-openai",
    "GEMINI_API_KEY": "canary-gemini",
    "CURSOR_API_KEY": "canary-cursor",
    "GITHUB_TOKEN": "canary-github",
    "AWS_SECRET_ACCESS_KEY": "canary-aws",
    "CLAUDECODE": "canary-nested",
    "LD_PRELOAD": "",
}
MODELS = {
    "claude": "anthropic:claude-sonnet-5-5",
    "codex": "openai:gpt-5.2",
    "gemini": "google:gemini-3.1-pro-preview",
    "opencode": "anthropic:claude-sonnet-5-5",
    "cursor-agent": "cursor:composer-1",
}
ACP_MODELS = {
    "claude": "anthropic:claude-sonnet-5-5",
    "codex": "openai:gpt-5.2",
    "gemini": "google:gemini-3.1-pro-preview",
    "opencode": "anthropic:claude-sonnet-5-5",
    "copilot": "gpt-5.2",
    "qwen": "qwen:qwen3-coder-plus",
}


@pytest.fixture
def environ(tmp_path):
    (tmp_path / "home").mkdir()
    return {**KEYS, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path / "home")}


@pytest.fixture
def programs(tmp_path):
    return install_fake_programs(tmp_path / "bin")


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


class FakeStage:
    """Plays cases with a fake program."""

    def __init__(self, name, programs, environ):
        self.name, self.programs, self.environ = name, programs, environ

    @property
    def model(self):
        return MODELS[self.name]

    @asynccontextmanager
    async def open(self, case, workspace):
        self.programs.play(self.name, case.turns)
        yield cli_backend(self.name, self.environ)


class FakeAcpStage:
    """Plays cases with a fake agent that speaks the Agent Client Protocol."""

    def __init__(self, name, programs, environ):
        self.name, self.programs, self.environ = name, programs, environ

    @property
    def model(self):
        return ACP_MODELS[self.name]

    @asynccontextmanager
    async def open(self, case, workspace):
        self.programs.play(AGENTS[self.name].program.name, case.turns)
        yield acp_backend(self.name, self.environ, WorkspaceTextFiles)
