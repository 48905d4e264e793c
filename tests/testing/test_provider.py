"""The provider for tests is strict, counts, and works for code with and without a loop."""

import gzip
import json
import socket
import urllib.request

import pytest

from deputy.core.model_errors import BadRequest
from deputy.models.factory import ModelFactory
from deputy.testing import ModelScript, ProviderServer, ScriptedCall, ScriptedConversation, ScriptedTurn, script_of
from deputy.testing.faults import gzip_bomb
from deputy.testing.model_suite import asking, heard


async def ask(provider, text="hi", model="anthropic:claude-haiku-4-5"):
    async with ModelFactory(environ=provider.environ) as models:
        return await heard(models.open(model)._model, asking(text))


async def test_a_script_that_is_not_asked_fails():
    with pytest.raises(AssertionError, match=r"turn 2 was requested 0 of 1 times"):
        async with ProviderServer(ScriptedTurn(text="one"), ScriptedTurn(text="two")) as provider:
            await ask(provider)


async def test_a_script_that_is_asked_too_often_fails():
    async with ProviderServer(ScriptedTurn(text="one"), strict=False) as provider:
        await ask(provider)
        with pytest.raises(BadRequest, match="was requested too often"):
            await ask(provider)
    with pytest.raises(AssertionError, match="was requested too often"):
        provider.check()


async def test_a_conversation_that_no_script_fits_fails():
    script = ModelScript(conversations=(ScriptedConversation(when="security", turns=(ScriptedTurn(text="x"),)),))
    async with ProviderServer(script, strict=False) as provider:
        with pytest.raises(BadRequest):
            await ask(provider, "about something else")
    with pytest.raises(AssertionError, match="no conversation matches"):
        provider.check()


async def test_a_failure_of_the_test_itself_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        async with ProviderServer(ScriptedTurn(text="never asked")):
            raise ZeroDivisionError


async def test_conversations_are_distinguished_by_what_they_open_with():
    script = ModelScript(
        conversations=(
            ScriptedConversation(when="security", turns=(ScriptedTurn(text="safe"),), times=2),
            ScriptedConversation(turns=(ScriptedTurn(text="other"),)),
        )
    )
    async with ProviderServer(script) as provider:
        said = [(await ask(provider, text))[1].message.text for text in ("security A", "tests", "security B")]
    assert said == ["safe", "other", "safe"]


async def test_requests_are_kept_as_they_came():
    async with ProviderServer(ScriptedTurn(text="x")) as provider:
        await ask(provider, "what came", "google:gemini-2.5-pro")
    (asked,) = provider.asked
    assert asked.protocol == "google"
    assert asked.model == "gemini-2.5-pro"
    assert "what came" in asked.opening
    assert asked.answered == 0


def test_a_plain_with_serves_from_a_thread():
    with ProviderServer(ScriptedTurn(text="From a thread.", calls=(ScriptedCall(name="Read"),))) as provider:
        body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
        with urllib.request.urlopen(f"{provider.url}/v1/chat/completions", body) as answer:
            text = answer.read().decode()
        assert text.endswith("data: [DONE]\n\n")
        address = provider.url.removeprefix("http://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address[0], int(address[1])))


def test_nonsense_is_answered_with_an_error_not_a_crash():
    with ProviderServer(script_of(), strict=False) as provider:
        for path, body in (("/v1/messages", b"{oops"), ("/v1/messages", b"[]"), ("/nowhere", b"{}")):
            with pytest.raises(urllib.error.HTTPError) as caught, urllib.request.urlopen(provider.url + path, body):
                pass
            with caught.value as answer:
                assert answer.code in (400, 404)
                assert "message" in json.load(answer)["error"]


def test_an_unknown_fault_is_refused_at_once():
    with pytest.raises(ValueError, match="sparkle"):
        ProviderServer(ScriptedTurn(faults=("sparkle",)))


@pytest.mark.parametrize("size", [0, 1000, 3 * 1024 * 1024, 3 * 1024 * 1024 + 1])
def test_a_gzip_bomb_unpacks_to_its_size(size):
    body = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
    provider = ProviderServer(ScriptedTurn(faults=("bomb",)), faults={"bomb": gzip_bomb(size)}, strict=False)
    with provider, urllib.request.urlopen(f"{provider.url}/v1/chat/completions", body) as answer:
        packed = answer.read()
    assert len(packed) < 10_000
    assert gzip.decompress(packed) == bytes(size)
