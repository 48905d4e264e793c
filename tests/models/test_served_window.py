"""The context window of a local model is what its server says, in each server's own words."""

import asyncio
import json

import pytest
from aiohttp import web

from deputy.models.factory import ModelFactory

ANSWERS = {
    "llamacpp": {"/v1/models": {"data": [{"id": "whatever.gguf", "meta": {"n_ctx": 8192, "n_ctx_train": 32768}}]}},
    "vllm": {"/v1/models": {"data": [{"id": "other", "max_model_len": 1}, {"id": "m", "max_model_len": 8192}]}},
    "lmstudio": {"/api/v0/models": {"data": [{"id": "m", "max_context_length": 9, "loaded_context_length": 8192}]}},
    "ollama": {
        "/api/show": {"parameters": 'stop "x"\nnum_ctx                        8192\ntop_p 0.9'},
        "/api/ps": {"models": [{"name": "m:latest", "context_length": 1}]},
    },
}


def asked(provider: str, answers: dict[str, object]) -> int | None:
    async def answer(request: web.Request) -> web.Response:
        found = answers.get(request.path)
        return web.Response(status=404) if found is None else web.json_response(found)

    async def go() -> int | None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        environ = {f"{provider.upper()}_BASE_URL": f"http://127.0.0.1:{port}/v1"}
        async with ModelFactory(environ=environ) as models:
            find = models.find_window(f"{provider}:m")
            window = await find()
        await runner.cleanup()
        return window

    return asyncio.run(go())


@pytest.mark.rule("context.window")
@pytest.mark.parametrize("provider", ANSWERS)
def test_the_window_is_read_from_the_server(provider):
    assert asked(provider, ANSWERS[provider]) == 8192


@pytest.mark.rule("context.window")
def test_ollama_says_with_which_window_a_model_was_loaded():
    assert asked("ollama", {"/api/ps": {"models": [{"name": "m:latest", "context_length": 4096}]}}) == 4096


@pytest.mark.rule("context.window")
@pytest.mark.parametrize("provider", ANSWERS)
@pytest.mark.parametrize("answer", [None, [], {"data": 5, "models": "x"}, {"data": [{"id": "m"}], "models": [7]}])
def test_a_server_that_does_not_say_leaves_the_window_unknown(provider, answer):
    answers = {} if answer is None else dict.fromkeys(ANSWERS[provider], json.loads(json.dumps(answer)))
    assert asked(provider, answers) is None


def test_only_servers_on_this_machine_are_asked():
    models = ModelFactory(environ={})
    assert models.find_window("anthropic:claude-sonnet-4-5") is None
    assert models.find_window("openai:some-new-model") is None
    assert models.find_window("offline:scout") is None
