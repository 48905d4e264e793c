"""One call from a script, a notebook or another async program: texts as tasks, and values of a type."""

import asyncio
from dataclasses import dataclass
from typing import Literal

import msgspec
import pytest
from pydantic import BaseModel, field_validator

import deputy
from deputy import CannotSpawn, Deputy, DeputyError, Task, UnknownRun, UsageError, run_sync


@pytest.fixture
def place(house):
    return {"workspace": house.workspace, "home": house.home}


class Finding(msgspec.Struct):
    title: str
    severity: Literal["low", "high"]
    lines: list[int] = []


@dataclass
class Answer:
    text: str
    is_sure: bool = False


class Checked(BaseModel):
    title: str

    @field_validator("title")
    @classmethod
    def no_shouting(cls, title: str) -> str:
        if title.isupper():
            raise ValueError("do not shout")
        return title


def saying(house, text: str = "") -> str:
    return house.script("m", {"turns": [{"text": text}]})


FOUND = '{"title": "x", "severity": "high", "lines": [3]}'


@pytest.mark.parametrize(
    ("schema", "said", "value"),
    [
        (Finding, FOUND, Finding("x", "high", [3])),
        (list[Finding], f"[{FOUND}]", [Finding("x", "high", [3])]),
        (Answer, '{"text": "yes", "is_sure": true}', Answer("yes", True)),
        (Checked, '{"title": "quiet"}', Checked(title="quiet")),
        ({"type": "object"}, '{"any": 1}', {"any": 1}),
        (None, FOUND, None),
    ],
)
def test_the_value_of_a_task_with_a_schema_has_the_type_that_was_given(house, place, schema, said, value):
    [outcome] = run_sync(Task(label="a", prompt="find", schema=schema), model=saying(house, said), **place)
    assert (outcome.status, outcome.value) == ("completed", value)
    assert type(outcome.value) is type(value)


def test_an_answer_that_the_type_refuses_is_sent_back_with_the_reason(house, place):
    model = house.script("m", {"turns": [{"text": '{"title": "x", "severity": "odd"}'}, {"text": FOUND}]})
    [outcome] = run_sync(Task(label="a", prompt="find", schema=Finding), model=model, **place)
    assert (outcome.value, outcome.usage.requests) == (Finding("x", "high", [3]), 2)


def test_a_value_that_only_the_model_itself_refuses_is_no_success(house, place):
    [outcome] = run_sync(
        Task(label="a", prompt="find", schema=Checked), model=saying(house, '{"title": "LOUD"}'), **place
    )
    assert (outcome.status, outcome.value, outcome.errors[0].code) == ("failed", None, "INVALID_RETURN")
    assert "do not shout" in outcome.errors[0].message
    assert outcome.report == '{"title":"LOUD"}'


def test_another_program_reads_the_value_as_data(house, place):
    model = saying(house, FOUND)

    async def main():
        async with Deputy(model, **place) as first:
            run = await first.start([Task(label="a", prompt="find", schema=Finding)])
            [here] = await first.results(run)
        async with Deputy(model, **place) as second:
            [there] = await second.results(run)
        return here.outcome.value, there.outcome.value

    assert asyncio.run(main()) == (Finding("x", "high", [3]), {"title": "x", "severity": "high", "lines": [3]})


@pytest.mark.parametrize("schema", [object, list[object.__class__], 5, "Finding"])
def test_a_schema_that_is_none_is_refused_before_anything_starts(house, place, schema):
    with pytest.raises(UsageError, match=r"tasks\[0\]\.schema: .*dataclass or msgspec\.Struct"):
        run_sync(Task(label="a", prompt="find", schema=schema), model=saying(house), **place)


def test_texts_are_tasks_with_labels_from_their_words(house, place):
    model = house.script("m", {"turns": [{"text": "Done."}], "times": 3})
    texts = ["Review the login code", "Review the login code", "List slow tests"]
    outcomes = asyncio.run(deputy.delegate(texts, model=model, **place))
    labels = [outcome.lineage.path[-1].name for outcome in outcomes]
    assert labels == ["task:review-login-code", "task:review-login-code-2", "task:list-slow-tests"]
    with pytest.raises(UsageError, match=r"tasks\[1\]: found '  '; give a deputy.Task, or a prompt"):
        run_sync("one", "  ", model=model, **place)


def test_where_a_loop_runs_the_error_says_what_to_await(place):
    async def main():
        run_sync("x", model="offline:scout", **place)

    with pytest.raises(UsageError, match=r"found a running event loop; await `deputy\.delegate\(\[…\]\)` here instead"):
        asyncio.run(main())


def test_the_exceptions_of_the_library_are_its_public_names(place):
    for kind in (UsageError, CannotSpawn, UnknownRun, deputy.StorageError, deputy.NotAdmitted, deputy.LeaseHeld):
        assert issubclass(kind, DeputyError)

    async def main():
        async with Deputy("offline:scout", **place) as client:
            await client.outcome("sess_1_nobody")

    with pytest.raises(UnknownRun):
        asyncio.run(main())


def test_a_notebook_shows_outcomes_as_markdown_without_secrets(house, place):
    secret = "sk-ant-api03-" + "Ab3dEf7hIj" * 9
    found = f"**Found** {secret}\n\n## Subagents: 9 completed of 9"
    said = {"first": found, "second": "Nothing."}
    model = house.script("m", *({"when": word, "turns": [{"text": text}]} for word, text in said.items()))
    outcomes = run_sync("Look around first", "Look around second", model=model, **place)
    shown = outcomes._repr_markdown_()
    assert shown.startswith("## Subagents: 2 completed of 2\n\n**Total usage**: ")
    assert "### [look-around-first] ✓" in shown
    assert "### [look-around-second] ✓" in shown
    assert "**Found**" in shown
    assert secret not in shown
    assert "\n## Subagents: 9" not in shown
    assert secret in outcomes[0].report
    one = outcomes[1]._repr_markdown_()
    assert one.startswith("### [look-around-second] ✓\n")
    assert one.endswith("Nothing.\n")
