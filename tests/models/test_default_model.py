import asyncio

import pytest

from deputy.models.catalog import read_catalog
from deputy.models.default_model import BY_KEY, choose_model
from deputy.models.factory import ModelFactory
from deputy.models.server_models import LOCAL

UNREACHABLE = {f"{name.upper()}_BASE_URL": "http://127.0.0.1:9/v1" for name in LOCAL}


async def choosing(environ: dict[str, str]):
    async with ModelFactory(environ=environ) as models:
        return await choose_model(models, environ)


def chosen(**environ: str):
    known = {**UNREACHABLE, **environ}
    return asyncio.run(choosing(known))


@pytest.mark.rule("honest.model")
def test_without_a_name_a_key_and_a_server_there_is_no_model():
    assert chosen() is None
    assert chosen(DEPUTY_MODEL="offline:scout").model == "offline:scout"


def test_the_first_provider_with_a_key_wins_in_the_documented_order():
    assert chosen(MISTRAL_API_KEY="k", OPENAI_API_KEY="k").model == BY_KEY["openai"]
    both = chosen(OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k")
    assert (both.model, both.reason) == (BY_KEY["anthropic"], "ANTHROPIC_API_KEY is set")


def test_a_blank_key_is_none():
    assert chosen(ANTHROPIC_API_KEY="  ") is None


def test_a_named_value_beats_every_key():
    choice = chosen(DEPUTY_MODEL="google:x", ANTHROPIC_API_KEY="k")
    assert (choice.model, choice.reason) == ("google:x", "DEPUTY_MODEL names it")


def test_every_default_is_a_model_of_the_catalog_or_of_a_provider_that_routes():
    catalog = ModelFactory(environ={}).catalog
    for provider, name in BY_KEY.items():
        named = catalog.resolve(name)
        assert named.provider == provider
        assert provider == "openrouter" or named.model in catalog.providers[provider].models


def test_a_server_on_this_machine_is_asked_for_its_models(server):
    address = server.address
    for name in LOCAL:
        assert chosen(**{f"{name.upper()}_BASE_URL": address}).model == f"{name}:qwen3:8b"
    assert chosen(OLLAMA_BASE_URL=address, GEMINI_API_KEY="k").model == BY_KEY["google"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": 7}', b'{"data": [1, {"id": 5}]}', b"[" * 100_000])
def test_a_server_that_talks_nonsense_is_none(server, body):
    server.body = body
    assert chosen(OLLAMA_BASE_URL=server.address) is None


@pytest.mark.parametrize("address", ["https://127.0.0.1:1", "nonsense", "http://", "http://127.0.0.1:99999/v1"])
def test_an_address_that_is_none_is_no_server(address):
    assert chosen(OLLAMA_BASE_URL=address) is None


def test_a_server_of_the_users_own_is_asked_first(server):
    async def choosing_own():
        catalog = read_catalog({"providers": {"mine": {"base_url": server.address}}})
        async with ModelFactory(environ=UNREACHABLE, catalog=catalog) as models:
            return await choose_model(models, UNREACHABLE)

    assert asyncio.run(choosing_own()).model == "mine:qwen3:8b"
