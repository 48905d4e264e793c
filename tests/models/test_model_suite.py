"""Every model passes the same suite: those over the wire, with and without retries, and the scripted one."""

from contextlib import asynccontextmanager

import pytest

from deputy.models.factory import ModelFactory
from deputy.models.script_model import ScriptModel
from deputy.testing import ProviderServer
from deputy.testing.model_suite import CHECKS

WIRES = ("anthropic:claude-sonnet-4-5", "openai:gpt-5.2", "openai-chat:any", "google:gemini-2.5-pro", "ollama:any")


def wire(name):
    @asynccontextmanager
    async def open_model(script):
        async with ProviderServer(script) as provider, ModelFactory(environ=provider.environ) as models:
            yield models.open(name)._model

    return open_model


@asynccontextmanager
async def scripted(script):
    model = ScriptModel(script)
    yield model
    assert not model.unasked()


@pytest.mark.parametrize("open_model", [scripted, *map(wire, WIRES)], ids=["script", *WIRES])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_model_passes_the_suite(check, open_model):
    await check(open_model)
