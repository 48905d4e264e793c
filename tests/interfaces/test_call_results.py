"""Outcomes, results and refinements as a program gets them, with their secrets or without."""

import asyncio
import json
from dataclasses import dataclass

import pytest
from pydantic import BaseModel, Field

from deputy import Deputy, Outcome, Task

SECRET = "hunter2-of-the-database"
LINE = f"The config has password={SECRET} in line 3."
HIDDEN = "The config has password=[redacted] in line 3."


@dataclass
class Login:
    user: str
    password: str


class LongPassword(BaseModel):
    password: str = Field(min_length=20)


def delegate(house, script: str, task: Task, *, redact: bool) -> Outcome:
    async def go() -> Outcome:
        async with Deputy(script, workspace=house.workspace, home=house.home, redact=redact) as client:
            [outcome] = await client.delegate([task])
            return outcome

    return asyncio.run(go())


@pytest.mark.rule("redact.where")
@pytest.mark.parametrize(("redact", "shown"), [(False, LINE), (True, HIDDEN)])
def test_a_program_gets_outcomes_as_they_are_or_redacted(house, redact, shown):
    note = {"name": "Note", "arguments": {"content": LINE}}
    script = house.script("secret", {"turns": [{"calls": [note]}, {"text": LINE}]})
    outcome = delegate(house, script, Task(label="a", prompt="Go."), redact=redact)
    assert (outcome.status, outcome.summary, outcome.report, outcome.notes) == ("completed", shown, shown, (shown,))


@pytest.mark.rule("redact.where")
def test_a_value_is_made_from_the_redacted_report(house):
    script = house.script("login", {"turns": [{"text": json.dumps({"user": "ann", "password": SECRET})}], "times": 2})
    task = Task(label="a", prompt="Go.", schema=Login)
    assert delegate(house, script, task, redact=False).value == Login(user="ann", password=SECRET)
    outcome = delegate(house, script, task, redact=True)
    assert outcome.value == Login(user="ann", password="[redacted]")
    assert SECRET not in outcome.report


def test_a_value_that_does_not_fit_without_its_secret_is_left_out_with_a_warning(house):
    script = house.script("login", {"turns": [{"text": json.dumps({"password": SECRET})}]})
    outcome = delegate(house, script, Task(label="a", prompt="Go.", schema=LongPassword), redact=True)
    assert (outcome.status, outcome.value, SECRET in outcome.report) == ("completed", None, False)
    assert outcome.warnings == ("`value` is left out: without its secrets, the report does not fit the schema.",)


@pytest.mark.rule("redact.where")
def test_runs_and_refinements_are_redacted_too(house):
    judge = {"text": json.dumps({"success": False, "feedback": LINE})}
    script = house.script("all", {"when": "Judge", "turns": [judge]}, {"turns": [{"text": LINE}], "times": 2})

    async def go():
        async with Deputy(script, workspace=house.workspace, home=house.home, redact=True) as client:
            return await client.run("Go."), await client.refine("Go.", "Judge it.", rounds=1)

    outcome, refined = asyncio.run(go())
    assert outcome.report == HIDDEN
    assert SECRET not in repr(refined)
    assert "password=[redacted]" in repr(refined.rounds)
