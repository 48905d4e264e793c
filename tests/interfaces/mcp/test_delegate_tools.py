"""What a client gets from a call of Delegate."""

import asyncio

import pytest
from tests.support.mcp_clients import here, text_of


def delegate(house, **task):
    async def main():
        async with here(house, model="offline:scout", approval="granted") as client:
            return await client.call_tool("Delegate", {"tasks": [{"label": "a", "prompt": "x", **task}]})

    return asyncio.run(main())


@pytest.mark.parametrize("tool", ["Write", "Subtask"])
def test_a_refused_tool_comes_with_the_option_of_the_server_that_allows_it(house, tool):
    result = delegate(house, tools=["Read", tool])
    assert result.structured_content["results"][0]["status"] == "rejected"
    assert f"--allow {tool}" in text_of(result)
    assert f"--allow {tool}" in result.structured_content["next"]


@pytest.mark.rule("delegate.key")
def test_a_mistyped_model_is_answered_with_similar_names(house):
    text = text_of(delegate(house, model="sonet"))
    assert text.startswith("Cannot spawn subagents: no provider lists the model 'sonet', and cursor-agent, which may")
    assert "Did you mean sonnet or " in text
