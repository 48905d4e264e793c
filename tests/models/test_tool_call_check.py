import pytest

from deputy.core.model_script import ScriptedCall
from deputy.models.factory import ModelFactory
from deputy.models.retry import RetryPolicy
from deputy.models.tool_call_check import CODE_WORD, check_tool_call
from deputy.testing import ProviderServer, ScriptedTurn

READ = ScriptedTurn(calls=(ScriptedCall(name="Read", arguments={"path": "notes.txt"}),))
WRONG = ScriptedTurn(calls=(ScriptedCall(name="Write", arguments={"path": "notes.txt"}),))
WORD = ScriptedTurn(text=f"The word is {CODE_WORD}.")
TEXT = ScriptedTurn(text='<tool_call>\n{"name": "Read", "arguments": {"path": "notes.txt"}}\n</tool_call>')


async def checked(*turns: ScriptedTurn, seconds: float = 60):
    async with (
        ProviderServer(*turns, strict=not any(turn.faults or turn.delay_seconds for turn in turns)) as provider,
        ModelFactory(environ={"OLLAMA_BASE_URL": provider.url}, retry=RetryPolicy(attempts=1)) as models,
    ):
        return await check_tool_call(models, "ollama:qwen3", seconds), provider


@pytest.mark.parametrize(
    ("turns", "result", "can_work"),
    [
        ((READ, WORD), "works", True),
        ((TEXT, WORD), "calls_as_text", True),
        ((READ, ScriptedTurn(text="I cannot.")), "no_use", False),
        ((WRONG,), "no_call", False),
        ((ScriptedTurn(text="It is rose-1."),), "no_call", False),
        ((ScriptedTurn(text="x", faults=("bad_api_key",)),), "failed", False),
    ],
)
async def test_a_model_must_call_the_tool_and_use_its_result(turns, result, can_work):
    check, _ = await checked(*turns)
    assert (check.result, check.can_work) == (result, can_work)
    assert check.remedy or can_work


async def test_the_word_is_only_in_the_result_of_the_tool():
    _, provider = await checked(READ, WORD)
    first, second = (str(request.body) for request in provider.asked)
    assert CODE_WORD not in first
    assert CODE_WORD in second


async def test_a_model_that_takes_too_long_fails():
    check, _ = await checked(ScriptedTurn(text="x", delay_seconds=30), seconds=0.05)
    assert (check.result, check.message) == ("failed", "it did not finish within 0.05 s")


async def test_an_unknown_model_fails_with_what_is_known():
    check = await check_tool_call(ModelFactory(environ={}), "nonsense")
    assert (check.result, check.remedy) == ("failed", "")
    assert check.message.startswith("unknown model: write provider:model, with one of anthropic, ")
