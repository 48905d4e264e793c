"""Keys stay where they belong: in one header of one request."""

import logging
import pickle
import subprocess
import sys
import traceback
from contextlib import aclosing

import msgspec
import pytest

from deputy.core.conversation import GenerationSettings
from deputy.core.errors import UsageError
from deputy.core.model_errors import BadKey, NoKey
from deputy.models.catalog import read_catalog
from deputy.models.factory import ModelFactory
from deputy.models.http_client import HttpClient, proxy_for
from deputy.models.wire import ApiKey
from deputy.testing import ProviderServer, ScriptedTurn
from deputy.testing.faults import answers
from deputy.testing.model_suite import ask, asking, heard

KEY = "sk-very-secret-0123456789"
NAMES = {
    "anthropic:claude-haiku-4-5": ("ANTHROPIC_API_KEY", "x-api-key", KEY),
    "openai:gpt-5.2": ("OPENAI_API_KEY", "authorization", f"Bearer {KEY}"),
    "openai-chat:any": ("OPENAI_API_KEY", "authorization", f"Bearer {KEY}"),
    "google:gemini-2.5-pro": ("GEMINI_API_KEY", "x-goog-api-key", KEY),
}


def test_a_secret_shows_itself_only_when_asked():
    secret = ApiKey(KEY)
    assert secret.reveal() == KEY
    assert KEY not in f"{secret} {secret!r} {secret!s} {[secret]} {secret:>40}"
    assert secret.hide(f"bad key {KEY}!") == "bad key ***!"
    for write in (pickle.dumps, msgspec.json.encode):
        with pytest.raises(TypeError):
            write(secret)
    assert secret == ApiKey(KEY) != ApiKey("other")
    assert not hasattr(secret, "__dict__")


@pytest.mark.parametrize("name", NAMES)
async def test_a_key_is_in_its_header_and_nowhere_else(name, caplog):
    caplog.set_level(logging.DEBUG)
    variable, header, value = NAMES[name]
    quoting = answers(401, {"error": {"type": "authentication_error", "message": f"Incorrect API key: {KEY}."}})
    turn = ScriptedTurn(text="Yes.", faults=("quoting",))
    async with ProviderServer(turn, faults={"quoting": quoting}) as provider:
        models = ModelFactory(environ={**provider.environ, variable: KEY})
        async with models:
            model = models.open(name)
            with pytest.raises(BadKey) as caught:
                await heard(model, asking())
            await heard(model, asking())
    asked = provider.asked[-1]
    assert asked.headers[header] == value
    assert KEY not in asked.path
    assert KEY not in str(asked.body)
    assert [name for name, text in asked.headers.items() if KEY in text] == [header]
    shown = [str(caught.value), repr(caught.value), "".join(traceback.format_exception(caught.value)), caplog.text]
    shown += [
        repr(models),
        repr(model),
        repr(model._model),
        repr(model._model._endpoint),
        caught.value.as_value().message,
    ]
    assert not [text for text in shown if KEY in text]


@pytest.mark.rule("delegate.key")
@pytest.mark.parametrize("name", NAMES)
async def test_without_a_key_nothing_is_asked(name):
    variable = NAMES[name][0]
    async with ProviderServer() as provider:
        environ = {key: value for key, value in provider.environ.items() if key != variable}
        async with ModelFactory(environ=environ) as models:
            with pytest.raises(NoKey, match=f"no API key for provider .*{variable}"):
                await heard(models.open(name), asking())
        assert provider.asked == []


async def test_a_bearer_token_serves_where_a_key_would():
    async with ProviderServer(ScriptedTurn(text="Yes.")) as provider:
        environ = {"ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_AUTH_TOKEN": KEY}
        async with ModelFactory(environ=environ) as models:
            await heard(models.open("haiku"), asking())
    assert provider.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in provider.asked[0].headers


async def test_a_request_can_carry_a_name_of_its_own():
    turn = ScriptedTurn(text="Yes.")
    async with ProviderServer(turn) as provider, ModelFactory(environ=provider.environ) as models:
        await heard(models.open("haiku"), asking(), GenerationSettings(idempotency_key="sess_1/turn-3"))
    assert provider.asked[0].headers["idempotency-key"] == "sess_1/turn-3"
    assert "turn-3" not in str(provider.asked[0].body)


async def test_requests_ask_for_no_compression_and_send_no_cookies():
    async with ProviderServer(ScriptedTurn(text="Yes.")) as provider, ModelFactory(environ=provider.environ) as models:
        await heard(models.open("haiku"), asking())
    headers = provider.asked[0].headers
    assert headers["accept-encoding"] == "identity"
    assert "cookie" not in headers
    assert headers["user-agent"].startswith("deputy/")


# --- proxies ---


def test_proxies_come_from_the_environment(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert proxy_for("https://api.example.com:443") is None
    monkeypatch.setenv("https_proxy", "http://proxy.example.com:3128")
    monkeypatch.setenv("no_proxy", "localhost,.inside.example.com")
    assert proxy_for("https://api.example.com:443") == "http://proxy.example.com:3128"
    assert proxy_for("https://api.inside.example.com:443") is None
    assert proxy_for("http://api.example.com:80") is None


async def test_a_request_goes_through_the_proxy_of_the_environment(monkeypatch):
    async with ProviderServer(ScriptedTurn(text="Yes.")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "")
        environ = {"OPENAI_BASE_URL": "http://api.example.invalid/v1", "OPENAI_API_KEY": KEY}
        async with ModelFactory(environ=environ) as models:
            await heard(models.open("openai-chat:any"), asking())
    assert proxy.asked[0].path == "http://api.example.invalid/v1/chat/completions"


# --- what is loaded ---


def test_making_a_model_loads_no_sdk_and_no_pydantic():
    code = (
        "import sys, deputy\n"
        "from deputy.models.factory import ModelFactory\n"
        "models = ModelFactory(environ={'ANTHROPIC_API_KEY': 'k', 'OPENAI_API_KEY': 'k', 'GEMINI_API_KEY': 'k'})\n"
        "[models.open(n) for n in ('opus', 'gpt-5.2', 'gemini-3-pro', 'ollama:x', 'deepseek:x')]\n"
        "heavy = {'openai', 'anthropic', 'google', 'pydantic', 'pydantic_ai', 'httpx2', 'httpx', 'rich', 'sqlite3'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_core_of_a_conversation_loads_neither_network_nor_loop():
    code = (
        "import sys, deputy.core.conversation, deputy.core.model_script, deputy.core.errors\n"
        "print(sorted({'asyncio', 'aiohttp', 'json', 'socket', 'logging'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_closing_what_was_never_used_is_fine():
    async with aclosing(HttpClient()), ModelFactory(environ={}):
        pass


async def test_a_body_of_megabytes_is_sent_without_a_warning():
    async with ProviderServer(ScriptedTurn(text="Yes.")) as provider, ModelFactory(environ=provider.environ) as models:
        events = [event async for event in ask(models.open("haiku"), asking("word " * 500_000))]
    assert events[-1].message.text == "Yes."


@pytest.mark.parametrize("address", ["localhost:8000", "ftp://x", "http://", "http://x:port/v1", "nonsense"])
def test_an_address_that_cannot_be_used_is_a_usage_error(address):
    with pytest.raises(UsageError, match="OPENAI_BASE_URL"):
        ModelFactory(environ={"OPENAI_BASE_URL": address, "OPENAI_API_KEY": KEY}).open("openai:gpt-5.2")


@pytest.mark.parametrize(
    ("environ", "overlay", "field"),
    [
        ({"OPENAI_BASE_URL": "http://user:hunter2@localhost:8000/v1"}, {}, "OPENAI_BASE_URL"),
        (
            {},
            {"providers": {"openai": {"base_url": "http://user:hunter2@localhost:8000/v1"}}},
            "providers.openai.base_url",
        ),
    ],
)
def test_a_password_in_an_address_beside_a_key_is_a_usage_error_that_does_not_tell_it(environ, overlay, field):
    models = ModelFactory(catalog=read_catalog(overlay), environ={**environ, "OPENAI_API_KEY": KEY})
    with pytest.raises(UsageError) as caught:
        models.open("openai:gpt-5.2")
    assert caught.value.field == field
    assert "OPENAI_API_KEY" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_a_password_in_an_address_is_how_one_gets_in_where_there_is_no_key():
    async with ProviderServer(ScriptedTurn(text="Yes.")) as provider:
        address = provider.url.replace("http://", "http://user:hunter2@")
        async with ModelFactory(environ={"OLLAMA_BASE_URL": address}) as models:
            events = [event async for event in ask(models.open("ollama:qwen3:8b"), asking("word"))]
    assert events[-1].message.text == "Yes."
    assert provider.asked[0].headers["authorization"].startswith("Basic ")


@pytest.mark.parametrize("key", ["with\nnewline", "with\x00null", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_a_usage_error(key):
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        ModelFactory(environ={"OPENAI_API_KEY": key}).open("openai:gpt-5.2")
    assert key not in str(caught.value)
