"""Any pydantic-ai model passes our suite behind the adapter, and its errors become ours."""

from contextlib import asynccontextmanager

import pytest

from deputy.core import model_errors as errors
from deputy.core.errors import UsageError
from deputy.models.factory import ModelFactory
from deputy.testing import ProviderServer, ScriptedTurn
from deputy.testing.faults import FAULTS, cuts
from deputy.testing.model_suite import CHECKS, asking, heard


@asynccontextmanager
async def opened(provider, **options):
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    from deputy.models.pydantic_ai import PydanticAIModel

    async with AsyncOpenAI(api_key="k", base_url=f"{provider.url}/v1", max_retries=0) as client:
        theirs = OpenAIChatModel(
            "any",
            provider=OpenAIProvider(openai_client=client),
            profile={"openai_chat_streaming_requires_finish_reason": True},
        )
        yield PydanticAIModel(theirs, **options)


@asynccontextmanager
async def adapted(script):
    async with ProviderServer(script) as provider, opened(provider) as model:
        yield model


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_an_adapted_model_passes_the_suite(check):
    await check(adapted)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (FAULTS["context_exhausted"], errors.ContextExhausted),
        (FAULTS["bad_api_key"], errors.BadKey),
        (FAULTS["model_not_found"], errors.ModelNotFound),
        (FAULTS["rate_limited_by_google"], errors.RateLimited),
        (FAULTS["overloaded"], errors.Overloaded),
        (FAULTS["server_failed"], errors.ServerFailed),
        (FAULTS["silent"], errors.Silent),
        (cuts(3, "chunked-end"), (errors.StreamCut, errors.BadReply, errors.ServerFailed)),
    ],
)
async def test_their_errors_become_ours(fault, kind):
    turn = ScriptedTurn(text="Hello there, you.", faults=("fault",))
    async with (
        ProviderServer(turn, faults={"fault": fault}, strict=False) as provider,
        opened(provider, idle_seconds=0.3) as model,
    ):
        with pytest.raises(kind) as caught:
            await heard(model, asking())
    assert caught.value.model == model.name == "pydantic-ai:openai:any"


def test_their_models_are_opened_by_name():
    with pytest.raises(UsageError, match="pydantic-ai says"):
        ModelFactory(environ={}).open("pydantic-ai:nonsense-without-provider")
    assert ModelFactory(environ={}).open("pydantic-ai:test").name == "pydantic-ai:test:test"
