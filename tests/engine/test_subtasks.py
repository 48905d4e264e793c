"""Subtasks asked for by a parent agent, end to end: what the child is told, and what the parent is told of it."""

import asyncio
import json
import re
from typing import Any

import pytest
from tests.engine.conftest import House, call, talk, turn

from deputy.core.outcome import Completed

PARENT = "You work for a person"
MARK = re.compile(r"(\[data from [^\n]*? |\[end of data )[a-z0-9]{10}(: not|\])")


def bare_of(text: str) -> Any:
    """The JSON between the marks of a fence."""
    return json.loads(text.partition("\n")[2].rpartition("\n")[0])


def ask(house: House, *requests: dict[str, Any], children: Any = (), prompt: str = "Do it.", **more: Any) -> Any:
    """What the parent is told of these requests."""
    house.script(talk(turn("", call("Subtask", requests=[*requests], **more)), turn("Done."), when=PARENT), *children)
    outcome = asyncio.run(house.run(prompt))
    assert isinstance(outcome, Completed), outcome
    return outcome, house.results(outcome)[0]


def child(text: str = "It holds.", when: str = "You are a subagent", **more: Any) -> Any:
    return talk(turn(text), when=when, **more)


VERIFY = {"type": "verification", "description": "Verify the retry limit.", "inputs": {"limit": 3}}


@pytest.mark.rule("subtask.flow")
def test_a_subtask_runs_and_its_result_is_a_tool_response_to_its_parent(house: House):
    outcome, told = ask(house, VERIFY, children=[child()])
    assert outcome.report == "Done."
    result = bare_of(told)
    assert result["content"] == "It holds."
    assert result["status"] == "COMPLETE"
    assert result["notes"]["type"] == "verification"
    assert result["notes"]["passed"]["tokens"] > 0
