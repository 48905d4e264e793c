import json

import pytest

from deputy.models.factory import ModelFactory
from deputy.models.server_models import ServedModel, list_server, list_servers

KEY = "sk-very-secret-0123456789"


async def listed(provider: str, **environ: str):
    async with ModelFactory(environ=environ) as models:
        return await list_server(models, provider)


@pytest.mark.parametrize(
    ("row", "window"),
    [
        ({"id": "m"}, None),
        ({"id": "m", "max_model_len": 32768}, 32768),
        ({"id": "m", "meta": {"n_ctx": 4096, "n_ctx_train": 99}}, 4096),
        ({"id": "m", "context_length": 8192}, 8192),
        ({"id": "m", "context_window": 131072}, 131072),
        ({"id": "m", "max_context_length": "much"}, None),
        ({"id": "m", "context_length": -1, "meta": 7}, None),
    ],
)
async def test_a_server_names_its_models_and_their_windows(server, row, window):
    server.body = json.dumps({"data": [row]}).encode()
    found = await listed("vllm", VLLM_BASE_URL=server.root)
    assert (found.models, found.problem) == ((ServedModel(name="m", window=window),), "")


async def test_each_protocol_has_its_own_list(server):
    server.path, server.body = "/v1beta/models", b'{"models": [{"name": "models/gemini-9", "inputTokenLimit": 5}]}'
    found = await listed("google", GOOGLE_GEMINI_BASE_URL=server.root, GEMINI_API_KEY=KEY)
    assert found.models == (ServedModel(name="gemini-9", window=5),)
    server.path, server.body = "/v1/models", b'{"data": [{"id": "claude-9"}], "has_more": false}'
    found = await listed("anthropic", ANTHROPIC_BASE_URL=server.root, ANTHROPIC_API_KEY=KEY)
    assert [model.name for model in found.models] == ["claude-9"]
    headers = {name.lower(): value for name, value in server.asked[-1][1].items()}
    assert (headers["x-api-key"], "anthropic-version" in headers) == (KEY, True)


async def test_a_refused_key_is_a_problem_and_is_not_shown(server):
    server.status, server.body = 401, json.dumps({"error": {"message": f"Incorrect API key: {KEY}"}}).encode()
    found = await listed("openai", OPENAI_BASE_URL=server.address, OPENAI_API_KEY=KEY)
    assert (found.models, found.problem) == ((), "Incorrect API key: *** (status 401)")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"data": 7}', b'{"data": [1]}', b"[" * 100_000])
async def test_an_answer_that_is_no_list_is_a_problem(server, body):
    server.body = body
    assert (await listed("ollama", OLLAMA_BASE_URL=server.root)).problem == "the answer is not a list of models"


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "nonsense", "http://"])
async def test_no_server_is_a_problem(address):
    found = await listed("ollama", OLLAMA_BASE_URL=address)
    assert not found.models
    assert found.problem


async def test_a_provider_without_its_key_is_not_asked(server):
    async with ModelFactory(environ={"OPENAI_BASE_URL": server.address, "VLLM_BASE_URL": server.root}) as models:
        found = await list_servers(models, ["openai", "vllm", "cursor"])
    assert list(found) == ["vllm"]
    assert found["vllm"].chat_models == ["qwen3:8b"]
    assert len(server.asked) == 1
