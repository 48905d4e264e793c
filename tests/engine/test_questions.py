"""Questions to people: asked at a terminal, kept without one, and answered as often as they are asked."""

import asyncio
import os

import pytest
from tests.support.house import House
from tests.support.programs import install_fake_programs
from tests.support.scripts import call, talk, turn

from deputy.client import Deputy
from deputy.core.errors import UsageError
from deputy.core.events import ModelCallEnded
from deputy.core.model_script import ModelScript
from deputy.core.outcome import Blocked, Completed
from deputy.core.task import Task
from deputy.testing import ProviderServer

ASKS = "Which one?\n\n[AWAITING_HUMAN_INPUT]"


def opened(house: House, **options):
    return Deputy(house.model, models=house.given, workspace=house.workspace, home=house.home, **options)


@pytest.mark.rule("escalate")
def test_a_question_at_the_end_of_an_answer_is_asked_and_the_answer_goes_back(house: House):
    house.script(talk(turn(ASKS), turn("And when?\n[AWAITING_HUMAN_INPUT]"), turn("Done.")))
    asked = []

    async def answer(question):
        asked.append((question.topic, question.text))
        return f"answer {len(asked)}"

    async def go():
        async with opened(house, answer=answer) as deputy:
            return await deputy.delegate([Task(label="scout", prompt="Look.")])

    [outcome] = asyncio.run(go())
    assert isinstance(outcome, Completed)
    assert outcome.report == "Done."
    assert asked == [("answer", "Which one?"), ("answer", "And when?")]


@pytest.mark.rule("escalate")
def test_without_a_person_to_ask_it_ends_blocked_and_each_question_can_be_answered(house: House):
    house.script(talk(turn(ASKS), turn("And when?\n[AWAITING_HUMAN_INPUT]"), turn("Done.")))
    first = house.one()
    second = house.resume(first.session_id, "the blue one")
    third = house.resume(first.session_id, "now")
    assert [type(one) for one in (first, second, third)] == [Blocked, Blocked, Completed]
    assert (first.question, second.question, third.report) == ("Which one?", "And when?", "Done.")


async def leave_asking(house: House, task: Task) -> str:
    """A run whose process goes while a person is being asked."""
    is_asked = asyncio.Event()

    async def answer(_):
        is_asked.set()
        await asyncio.Event().wait()
        return ""

    async with opened(house, answer=answer) as deputy:
        run = await deputy.start([task])
        await is_asked.wait()
        return run


async def answer_later(house: House, run: str, words: str):
    """The outcome when it is answered later, without a person to ask."""
    async with opened(house, approval="refuse") as deputy:
        await deputy.resume(run, words)
        return await deputy.results(run)


@pytest.mark.rule("escalate")
@pytest.mark.parametrize("way", ["Ask", "words", "claude-agent-acp", "claude"])
def test_a_question_survives_its_process_and_is_answered_later(house: House, tmp_path, monkeypatch, way):
    first = turn("", call("Ask", question="Which one?")) if way == "Ask" else turn(ASKS)
    if way.startswith("claude"):
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
        install_fake_programs(tmp_path / "bin", [way]).play(way, (first, turn("Done.")))
        house.model = "anthropic:claude-sonnet-4-5"
    else:
        house.script(talk(first, turn("Done.")))

    run = asyncio.run(leave_asking(house, Task(label="scout", prompt="Look.")))
    [result] = asyncio.run(answer_later(house, run, "the blue one"))
    assert isinstance(result.outcome, Completed), result
    assert result.outcome.report == "Done."


@pytest.mark.rule("honest.model")
@pytest.mark.rule("model.alias")
@pytest.mark.parametrize("answer", ["the blue one", False], ids=["answered", "no answer"])
def test_a_run_whose_model_retires_while_it_waits_names_the_model_that_answered(
    house: House, tmp_path, monkeypatch, answer
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    config = tmp_path / ".config" / "deputy" / "config.toml"
    config.parent.mkdir(parents=True)

    def retire(day: str) -> None:
        config.write_text(f'[providers.anthropic.models.claude-sonnet-4-5]\nretires = "{day}"\n')

    async def answer_at_once(_):
        return answer

    async def resume(run: str):
        async with opened(house, answer=answer_at_once) as deputy:
            await deputy.resume(run)
            return (await deputy.results(run))[0].outcome

    script = ModelScript(conversations=(talk(turn("", call("Ask", question="Which one?")), turn("Done.")),))
    with ProviderServer(script, strict=bool(answer)) as server:
        house.use(server, "sonnet-4.5")
        retire("9999-12-31")
        run = asyncio.run(leave_asking(house, Task(label="scout", prompt="Look.")))
        retire("2000-01-01")
        outcome = asyncio.run(resume(run))
        asked = [f"anthropic:{one.model}" for one in server.asked]
    assert isinstance(outcome, Completed if answer else Blocked), outcome
    assert asked == ["anthropic:claude-sonnet-4-5", "anthropic:claude-sonnet-5-5"][: 2 if answer else 1]
    assert outcome.model == asked[-1]
    assert [one.split(";")[0] for one in outcome.warnings] == ["claude-sonnet-4-5 is retired"] * bool(answer)
    events = [record.event for record in house.records(outcome.session_id)]
    assert [one.model for one in events if isinstance(one, ModelCallEnded)] == asked


@pytest.mark.rule("escalate")
def test_an_approval_that_was_asked_for_is_given_later(house: House):
    house.script(talk(turn("Done.")))

    run = asyncio.run(leave_asking(house, Task(label="w", prompt="Write.", tools=("Read", "Write"))))

    async def approve_later():
        async with opened(house, approval="refuse") as deputy:
            with pytest.raises(UsageError, match=f"deputy approve {run}|waits for approval"):
                await deputy.resume(run, "yes")
            asking = await deputy.asking(run)
            assert await deputy.approve(run, digest=asking.digest)
            await deputy.resume(run)
            return await deputy.results(run)

    [result] = asyncio.run(approve_later())
    assert isinstance(result.outcome, Completed), result
