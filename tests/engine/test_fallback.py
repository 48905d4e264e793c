"""One delegation on several ways: our own loop, programs, and at last no subagent at all."""

import asyncio
import os
from typing import NamedTuple

import pytest
from msgspec import UNSET
from tests.support.house import House
from tests.support.programs import FakePrograms, install_fake_programs
from tests.support.scripts import call, talk, turn

from deputy import ObservedRun, Observer
from deputy.core.effective_settings import EffectiveSettings
from deputy.core.errors import remedy
from deputy.core.events import FellBack, ModelCallEnded, Started, Validated
from deputy.core.fallback import Routing
from deputy.core.model_script import ModelScript
from deputy.core.outcome import Blocked, Completed, Failed, Partial
from deputy.core.task import Task
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.transcript import transcribe
from deputy.models.catalog import read_catalog
from deputy.testing import ProviderServer

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
SONNET = "anthropic:claude-sonnet-4-5"
NEXT = str(read_catalog().resolve("sonnet-4.5-thinking"))
"""The model after opus-4.6-thinking: that version, or its successor from the day it is retired."""
LOOK = Task(label="scout", prompt="Look around.")


@pytest.fixture
def programs(tmp_path, monkeypatch, house):
    """Fake programs before everything else on the PATH, and no key anywhere."""
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    (tmp_path / "user").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("CURSOR_API_KEY", "canary-cursor")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    house.model = SONNET
    return install_fake_programs(tmp_path / "bin")


WAYS = {"acp:claude": "claude-agent-acp", "cli:claude": "claude"}
"""Both ways to the same program, the better one first."""


class Way(NamedTuple):
    """One of them, the only one that leads on."""

    backend: str
    name: str
    programs: FakePrograms

    def play(self, *turns, **how):
        self.programs.play(self.name, turns, **how)

    @property
    def calls(self):
        return self.programs.calls(self.name)


@pytest.fixture(params=WAYS)
def way(request, programs):
    """The provider's own program: by the protocol where it speaks that, else by its command line."""
    if request.param == "cli:claude":
        remove(programs, "claude-agent-acp")
    return Way(request.param, WAYS[request.param], programs)


def remove(programs, *names):
    for name in names:
        (programs.folder / name).unlink()


def break_all(programs, how="crashes"):
    """No program of ours does well."""
    for name in (*WAYS.values(), "cursor-agent"):
        programs.play(name, (turn("x"),), misbehaviour=how)


@pytest.fixture
def provider(house, monkeypatch):
    """A provider that refuses every key, as many times as it is asked."""
    refused = talk(turn("", faults=("bad_api_key",) * 20))
    with ProviderServer(ModelScript(conversations=(refused,)), strict=False) as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        yield server


def events_of(house, outcome, kind):
    return [record.event for record in house.records(outcome.session_id) if isinstance(record.event, kind)]


class FallbackObserver(Observer):
    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []

    def fell_back(self, run: ObservedRun, taken: str, reason: str) -> None:
        self.seen.append((run.label, taken, reason))


@pytest.mark.rule("ladder")
def test_without_a_key_the_providers_own_program_does_it(house: House, way):
    way.play(turn("All quiet."))
    observer = FallbackObserver()
    outcome = house.one(LOOK, observer=observer)
    assert isinstance(outcome, Completed)
    assert (outcome.report, outcome.backend, outcome.is_isolated) == ("All quiet.", way.backend, True)
    assert (outcome.usage.input, outcome.usage.requests) == (100, 1)
    assert "Look around." in way.calls[0].stdin
    [fallback] = outcome.fallbacks
    assert fallback.left == f"{SONNET} on native"
    assert fallback.reason == "No API key for provider anthropic."
    assert observer.seen == [("scout", fallback.taken, fallback.reason)]


AT_THE_DOOR = {
    "speaks another version": "PROGRAM_WRONG_VERSION",
    "does not know a flag": "PROGRAM_WRONG_VERSION",
    "is logged out": "PROGRAM_NOT_LOGGED_IN",
    "says nothing": "EMPTY_REPLY",
    "prints garbage": "BAD_REPLY",
    "has no modes": "GRANT_NOT_HELD",
}


@pytest.mark.rule("ladder")
@pytest.mark.parametrize("how", AT_THE_DOOR)
def test_an_agent_that_opens_no_session_is_followed_by_the_same_programs_command_line(house: House, programs, how):
    programs.play("claude-agent-acp", (turn("x"),), misbehaviour=how)
    programs.play("claude", (turn("All quiet."),))
    task = Task(label="w", prompt="Write.", tools=("Read", "Edit", "Write", "Run"), isolation="none")
    outcome = house.one(task)
    assert isinstance(outcome, Completed), outcome
    assert (outcome.backend, outcome.report) == ("cli:claude", "All quiet.")
    taken = [f"{SONNET} on acp:claude", f"{SONNET} on cli:claude"]
    assert [one.taken for one in outcome.fallbacks] == taken
    assert [one.content for one in house.seen if one.event == "fallback"] == taken
    assert [event.fallback for event in events_of(house, outcome, FellBack)] == list(outcome.fallbacks)
    ended, _ = events_of(house, outcome, ModelCallEnded)
    assert (ended.backend, ended.error.code) == ("acp:claude", AT_THE_DOOR[how])
    assert ended.error.message in outcome.fallbacks[1].reason


@pytest.mark.rule("ladder")
def test_with_a_key_no_program_is_started(house: House, programs, monkeypatch):
    with ProviderServer(ModelScript(conversations=(talk(turn("Native.")),))) as server:
        house.use(server)
        outcome = house.one(LOOK)
    assert (outcome.report, outcome.backend) == ("Native.", "native")
    assert not any(programs.calls(name) for name in ("claude", "cursor-agent"))


@pytest.mark.rule("ladder")
@pytest.mark.rule("fallback")
def test_a_native_failure_steps_to_the_program_and_every_step_is_reported(house: House, way, provider):
    way.play(turn("All quiet."))
    outcome = house.one(LOOK)
    assert isinstance(outcome, Completed)
    assert outcome.backend == way.backend
    [fallback] = outcome.fallbacks
    assert (fallback.left, fallback.taken) == (f"{SONNET} on native", f"{SONNET} on {way.backend}")
    assert fallback.reason
    assert [event.fallback for event in events_of(house, outcome, FellBack)] == [fallback]
    assert [one.content for one in house.seen if one.event == "fallback"] == [fallback.taken]


@pytest.mark.rule("ladder")
@pytest.mark.rule("ladder.default")
def test_two_native_failures_and_native_is_skipped_for_the_rest_of_the_session(house: House, way, provider):
    way.play(turn("Quiet."))
    tasks = [Task(label=f"t{number}", prompt=f"Look at {number}.") for number in range(3)]
    outcomes = asyncio.run(house.delegate(*tasks, concurrency=1))
    assert [len(outcome.fallbacks) for outcome in outcomes] == [1, 1, 1]
    [skipped] = outcomes[2].fallbacks
    assert (skipped.left, skipped.taken) == (f"{SONNET} on native", f"{SONNET} on {way.backend}")
    assert skipped.reason == "Native is skipped: it failed 2 times in this session."
    assert [events_of(house, one, Started)[0].backend for one in outcomes] == ["native", "native", way.backend]
    again = asyncio.run(house.delegate(tasks[0]))
    assert events_of(house, again[0], Started)[0].backend == "native", "a new session begins at zero"


@pytest.mark.rule("fallback")
def test_a_model_that_fails_is_followed_by_the_next_of_its_chain(house: House, programs):
    with ProviderServer(
        ModelScript(conversations=(talk(turn("From the next.", faults=("model_not_found",))),))
    ) as server:
        house.use(server, "opus-4.6-thinking")
        outcome = house.one(LOOK)
    assert isinstance(outcome, Completed)
    assert (outcome.backend, outcome.report) == ("native", "From the next.")
    assert [one.taken for one in outcome.fallbacks] == ["sonnet-4.5-thinking on native"]
    assert outcome.fallbacks[0].reason.endswith("no such model (HTTP 404)."), outcome.fallbacks
    assert outcome.model == NEXT


@pytest.mark.rule("fallback")
def test_no_step_is_taken_after_something_was_changed(house: House, programs):
    turns = (turn("", call("Write", path="made.txt", content="x")), turn("", faults=("model_not_found",)))
    with ProviderServer(ModelScript(conversations=(talk(*turns),)), strict=False) as server:
        house.use(server)
        outcome = house.one(Task(label="w", prompt="Write.", tools=("Read", "Write"), isolation="none"))
    assert isinstance(outcome, Failed)
    assert not outcome.fallbacks
    assert not any(programs.calls(name) for name in WAYS.values())


@pytest.mark.rule("fallback")
def test_no_step_is_taken_after_a_program_may_have_changed_something(house: House, way):
    write = call("Write", path="made.txt", content="made\n")
    way.play(turn("I write.", write), turn("", faults=("model_not_found",)))
    outcome = house.one(Task(label="w", prompt="Write.", tools=("Read", "Edit", "Write", "Run"), isolation="none"))
    assert isinstance(outcome, Failed)
    assert (outcome.backend, len(outcome.fallbacks)) == (way.backend, 1)
    assert (house.workspace / "made.txt").read_text() == "made\n"
    others = {*WAYS.values(), "cursor-agent"} - {way.name}
    assert not any(way.programs.calls(name) for name in others)


@pytest.mark.rule("ladder")
def test_all_ways_failing_ends_failed_with_every_reason(house: House, programs, provider):
    break_all(programs)
    programs.play("cursor-agent", (turn("x"),), misbehaviour="is logged out")
    outcome = house.one(LOOK)
    assert isinstance(outcome, Failed)
    assert [one.taken.rpartition(" ")[2] for one in outcome.fallbacks] == [
        "acp:claude",
        "cli:claude",
        "cli:cursor-agent",
        "cli:cursor-agent",
    ]
    codes = {error.code for error in outcome.errors}
    assert {"BAD_API_KEY", "PROGRAM_CRASHED", "PROGRAM_NOT_LOGGED_IN"} <= codes
    first, *others = outcome.errors
    assert (first.code, first.candidate, outcome.summary) == ("BAD_API_KEY", UNSET, first.message)
    assert "acp:claude" in str(others[0].candidate)
    assert all(error.candidate is not UNSET for error in others)


@pytest.mark.rule("errors.once")
def test_the_advice_is_about_the_model_that_was_named_and_the_failure_is_logged_once(house: House, programs, provider):
    remove(programs, *WAYS.values(), "cursor-agent")
    outcome = house.one(LOOK)
    assert isinstance(outcome, Failed)
    assert [error.code for error in outcome.errors][:2] == ["BAD_API_KEY", "PROGRAM_NOT_INSTALLED"]
    advice = "Manual intervention required: "
    assert outcome.errors[0].recommendation == f"{advice}Check the key and its permissions."
    assert remedy(outcome.errors).startswith(f"{advice}{outcome.errors[0].message}")
    assert remedy(outcome.errors).endswith("Check the key and its permissions.")
    reader = SqliteQueries.open(house.home)
    assert reader is not None
    with reader:
        assert [(error.code, error.count) for error in reader.errors(10)] == [("BAD_API_KEY", 1)]


@pytest.mark.rule("ladder")
@pytest.mark.rule("ladder.default")
@pytest.mark.parametrize("model", [SONNET, "composer-1"])
def test_a_model_that_nothing_can_serve_is_replaced_by_the_sessions_own_in_a_subagent(house: House, programs, model):
    break_all(programs)
    house.model = f"script:{house._script}"
    house.script(talk(turn("Done."), when="You are a subagent"))
    outcome = house.one(Task(label="scout", prompt="Look around.", model=model))
    assert isinstance(outcome, Completed)
    assert (outcome.backend, outcome.is_isolated, outcome.model) == ("native", True, house.model)
    assert outcome.fallbacks[-1].taken == f"{house.model} on native"


@pytest.mark.rule("ladder")
@pytest.mark.rule("ladder.default")
@pytest.mark.rule("text.degradation")
def test_inline_is_the_last_resort_when_native_is_skipped_and_every_program_fails(house: House, programs, provider):
    break_all(programs)
    house.model = f"script:{house._script}"
    house.script(talk(turn("Done."), when="You are a subagent", times=3))
    how = {"prompt": "Look around.", "model": SONNET, "degradation": "Think out loud."}
    tasks = [Task(label=f"t{number}", **how) for number in range(3)]
    *before, outcome = asyncio.run(house.delegate(*tasks, concurrency=1))
    assert [one.backend for one in before] == ["native", "native"]
    assert isinstance(outcome, Completed)
    assert (outcome.backend, outcome.is_isolated, outcome.report) == ("inline", False, "Done.")
    said = [message.content for message in transcript(house, outcome).messages if message.role == "user"]
    assert said[-1].index("Think out loud.") < said[-1].index("Look around.")


@pytest.mark.rule("ladder")
def test_inline_can_be_forbidden_and_so_can_every_fallback(house: House, programs):
    break_all(programs)
    house.model = f"script:{house._script}"
    house.script()
    task = Task(label="scout", prompt="Look around.", model=SONNET)
    never = asyncio.run(routed(house, task, Routing(inline="never")))
    assert isinstance(never, Failed)
    assert never.backend == "cli:cursor-agent"
    alone = asyncio.run(routed(house, task, Routing(falls_back=False)))
    assert isinstance(alone, Failed)
    assert not alone.fallbacks


async def routed(house, task, routing):
    import msgspec

    from deputy.core.events import RunOpened
    from deputy.core.request import Grant, Lineage
    from deputy.engine.call import DELEGATE, FanOut

    async with house.open() as runtime:
        run = await runtime.engine.new_id()
        arguments = msgspec.Raw(msgspec.json.encode(FanOut(tasks=(task,), concurrency=1)))
        grant = Grant(tools=frozenset({"Read"}))
        start = RunOpened(
            lineage=Lineage.root(run),
            model=house.model,
            command=DELEGATE,
            arguments=arguments,
            grant=grant,
            routing=routing,
        )
        await runtime.engine.submit(run, start)
        await runtime.engine.result(run)
        [child] = await runtime.journal.descendants(run)
        return await runtime.engine.outcome(child.run, child.round)


@pytest.mark.rule("ladder")
def test_a_parent_gets_back_what_no_subagent_can_do(house: House, programs):
    break_all(programs)
    house.model = f"script:{house._script}"
    tasks = [{"label": "scout", "prompt": "Look around.", "model": SONNET}]
    house.script(talk(turn("", call("Delegate", tasks=tasks)), turn("I looked myself.")))
    outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Completed)
    [output] = house.results(outcome)
    assert "Do it yourself" in output
    assert output.index("Do it yourself") < output.rindex("Look around.")


@pytest.mark.rule("delegate.key")
def test_no_key_and_no_program_is_reported_before_asking(house: House, programs):
    remove(programs, *WAYS.values(), "cursor-agent")
    house.model = f"script:{house._script}"
    tasks = [{"label": "scout", "prompt": "Look around.", "model": SONNET}]
    house.script(talk(turn("", call("Delegate", tasks=tasks)), turn("So be it.")))
    outcome = asyncio.run(house.run("Do it.", approval="ask", can_ask=True))
    assert house.results(outcome) == ["Cannot spawn subagents: no API key for provider anthropic"]


@pytest.mark.rule("cli")
@pytest.mark.rule("escalate")
def test_a_programs_question_blocks_and_the_answer_goes_on_in_its_own_session(house: House, way):
    asks = (turn("Which one?\n\n[AWAITING_HUMAN_INPUT]"), turn("And when?\n[AWAITING_HUMAN_INPUT]"))
    way.play(*asks, turn("Done."))
    blocked = house.one(LOOK)
    assert isinstance(blocked, Blocked)
    assert blocked.question == "Which one?"
    again = house.resume(blocked.session_id, "the blue one")
    assert isinstance(again, Blocked)
    assert again.question == "And when?"
    done = house.resume(blocked.session_id, "now")
    assert isinstance(done, Completed)
    assert (done.backend, done.report) == (way.backend, "Done.")
    _, second, third = way.calls
    assert "the blue one" in second.stdin
    assert "Look around." not in second.stdin
    assert "now" in third.stdin
    assert not done.warnings


@pytest.mark.rule("escalate")
def test_a_program_whose_session_is_gone_starts_afresh_with_what_is_known_and_says_so(house: House, way):
    way.play(turn("Which one?\n\n[AWAITING_HUMAN_INPUT]"))
    blocked = house.one(LOOK)
    way.play(turn("Done."))
    done = house.resume(blocked.session_id, "the blue one")
    assert isinstance(done, Completed), done
    stdin = way.calls[-1].stdin
    assert [word in stdin for word in ("Look around.", "Which one?", "the blue one")] == [True, True, True]
    assert any("started a new session" in warning for warning in done.warnings)


@pytest.mark.rule("cli")
@pytest.mark.rule("contract.lenient")
def test_a_programs_return_is_repaired_in_its_session_and_read_leniently(house: House, way):
    loose = '{"status": "done", "summary": "So.", "artifacts": [], "session_id": "{session_id}", "agent_type": "x"}'
    way.play(turn("It is so."), turn(loose))
    outcome = house.one(Task(label="scout", prompt="Look around.", return_format="json"))
    assert isinstance(outcome, Completed), outcome
    assert (outcome.summary, outcome.backend) == ("So.", way.backend)
    corrections = [warning for warning in outcome.warnings if "read" in warning]
    assert corrections == [
        "status: done read as completed",
        "session_id: read from the top level into metadata",
        "agent_type: read from the top level into metadata",
    ]
    assert "not valid JSON" in way.calls[1].stdin
    assert "Look around." not in way.calls[1].stdin
    checked = [event.problems for event in events_of(house, outcome, Validated)]
    assert checked == [("Return is not valid JSON",), ()]


@pytest.mark.rule("honest.calls")
def test_a_program_that_asks_for_subtasks_is_told_once_that_it_cannot_have_them(house: House, way):
    asks = '{"content": "", "status": "CONTINUATION", "notes": {"subtask_request": {"type": "a", "description": "b"}}}'
    way.play(turn(asks), turn(asks))
    outcome = house.one(Task(label="scout", prompt="Look around."))
    assert isinstance(outcome, Failed)
    assert outcome.errors[0].code == "INVALID_REQUEST"
    assert "you cannot have subtasks here" in way.calls[1].stdin


@pytest.mark.rule("contract.repair")
def test_a_return_with_another_session_id_fails_after_its_repair(house: House, way):
    other = '{"status": "done", "summary": "So.", "artifacts": [], "session_id": "s", "agent_type": "task:scout"}'
    way.play(turn(other), turn(other))
    outcome = house.one(Task(label="scout", prompt="Look around.", return_format="json"))
    assert isinstance(outcome, Failed)
    assert outcome.errors[0].code == "INVALID_RETURN"
    assert len(way.calls) == 2
    assert not way.programs.calls("cursor-agent"), "the work failed, and no backend"


@pytest.mark.rule("contract.repair")
def test_a_repair_that_comes_to_nothing_is_followed_by_the_next_way(house: House, programs):
    good = '{"status": "completed", "summary": "So.", "artifacts": [], "metadata": %s}'
    good %= '{"session_id": "{session_id}", "agent_type": "task:scout"}'
    programs.play("claude-agent-acp", (turn("It is so."), turn("", faults=("bad_api_key",))))
    programs.play("claude", (turn("It is so."), turn(good)))
    outcome = house.one(Task(label="scout", prompt="Look around.", return_format="json"))
    assert isinstance(outcome, Completed), outcome
    assert (outcome.backend, outcome.summary) == ("cli:claude", "So.")
    assert "It is so." in programs.calls("claude")[0].stdin, "what the first one said is known to the next"


@pytest.mark.rule("cli")
def test_a_program_at_its_time_limit_hands_in_and_what_it_said_is_kept(house: House, way):
    way.play(turn("So far."), misbehaviour="hangs")
    outcome = house.one(Task(label="scout", prompt="Look around.", timeout=8))
    assert isinstance(outcome, Partial)
    assert (outcome.errors[0].type, outcome.backend, outcome.report) == ("timeout", way.backend, "So far.")
    assert not way.programs.calls("cursor-agent")


@pytest.mark.rule("cli")
@pytest.mark.rule("time.idle")
def test_one_that_falls_silent_goes_on_in_its_own_session(house: House, way):
    way.play(turn("So far."), turn("Done."), misbehaviour="hangs once")
    outcome = house.one(LOOK, rules=EffectiveSettings(idle_seconds=1.0))
    assert isinstance(outcome, Completed), outcome
    assert (outcome.backend, len(way.calls)) == (way.backend, 2)
    assert "Look around." not in way.calls[1].stdin
    assert "interrupted" in way.calls[1].stdin


@pytest.mark.rule("cli")
def test_one_that_stays_silent_is_resumed_twice_and_then_the_next_way_is_taken(house: House, way):
    way.play(turn("So far."), misbehaviour="hangs")
    if way.backend == "acp:claude":
        remove(way.programs, "claude")
    way.programs.play("cursor-agent", (turn("Done."),))
    outcome = house.one(LOOK, rules=EffectiveSettings(idle_seconds=0.5))
    assert isinstance(outcome, Completed), outcome
    assert (outcome.backend, outcome.report) == ("cli:cursor-agent", "Done.")
    assert len(way.calls) == 3
    assert "made no progress" in outcome.fallbacks[-1].reason
    assert "So far." in way.programs.calls("cursor-agent")[0].stdin


@pytest.mark.rule("cli")
def test_silence_after_which_nothing_is_left_keeps_what_was_said(house: House, way):
    way.play(turn("So far."), misbehaviour="hangs")
    remove(way.programs, *({"claude", "cursor-agent"} - {way.name}))
    outcome = house.one(LOOK, rules=EffectiveSettings(idle_seconds=0.5))
    assert isinstance(outcome, Partial), outcome
    assert (outcome.errors[0].code, outcome.report) == ("SILENT", "So far.")


async def leave_in_the_middle(house: House, way, task):
    """A delegation whose process goes while a program is at work."""
    async with house.open() as runtime:
        run = await house.begin(runtime, task)
        await house.until(lambda: any(one.event == "text" for one in house.seen))
        [child] = await runtime.journal.descendants(run)
        return child.run


async def take_up(house: House, run):
    """What comes of it when another process goes on with it."""
    async with house.open() as runtime:
        await runtime.engine.ensure_running(run)
        return await runtime.engine.result(run)


@pytest.mark.rule("recover")
@pytest.mark.rule("cli")
def test_a_turn_that_was_lost_is_taken_again_where_it_could_only_read(house: House, way):
    way.play(turn("So far."), misbehaviour="hangs")
    run = asyncio.run(leave_in_the_middle(house, way, LOOK))
    way.play(turn("Done."))
    outcome = asyncio.run(take_up(house, run))
    assert isinstance(outcome, Completed), outcome
    assert (outcome.backend, outcome.report) == (way.backend, "Done.")
    assert [word in way.calls[0].stdin for word in ("Look around.", "interrupted")] == [True, True]
    assert any("was under way when its process died; it started a new session" in one for one in outcome.warnings)
    assert [one.event for one in house.seen].count("fallback") == 1, "it is not told again by who goes on"


@pytest.mark.rule("recover")
@pytest.mark.rule("fallback")
def test_a_turn_that_was_lost_is_not_taken_again_where_it_could_change_something(house: House, way):
    way.play(turn("So far."), misbehaviour="hangs")
    task = Task(label="w", prompt="Write.", tools=("Read", "Edit", "Write", "Run"), isolation="none")
    run = asyncio.run(leave_in_the_middle(house, way, task))
    way.play(turn("Done."))
    outcome = asyncio.run(take_up(house, run))
    assert isinstance(outcome, Partial), outcome
    assert outcome.errors[0].code == "PROGRAM_LOST"
    assert not way.calls
    again = house.resume(run, "nothing was changed, go on")
    assert isinstance(again, Completed), again
    assert "nothing was changed" in way.calls[0].stdin


def transcript(house, outcome):
    reader = SqliteQueries.open(house.home)
    with reader:
        return transcribe(list(reader.records(outcome.session_id)))


@pytest.mark.rule("cli")
@pytest.mark.rule("transcript")
def test_a_programs_words_and_tools_are_in_the_transcript(house: House, way):
    (house.workspace / "notes.txt").write_text("remember the milk\n")
    way.play(turn("I look.", call("Read", path="notes.txt")), turn("Milk."))
    outcome = house.one(LOOK)
    messages = transcript(house, outcome).messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1].tool_calls[0].name.lower() == "read"
    assert messages[-1].content == "Milk."
    assert [one.tool.lower() for one in house.seen if one.event == "tool_call"] == ["read"]
    assert outcome.usage.requests >= 1


@pytest.mark.rule("cli")
def test_a_program_counts_against_the_budget(house: House, way):
    from deputy.core.limits import Budget

    way.play(turn("One."), turn("Two."))
    task = Task(label="scout", prompt="Look around.", return_format="json", budget=Budget(requests=1))
    outcome = house.one(task)
    assert isinstance(outcome, Partial)
    assert outcome.errors[0].type == "budget"
    assert len(way.calls) == 1


GARDEN = """---
type: gardening
description: Plant trees.
model: %s
---
Plant them well.
"""


def ask_for_a_subtask(house: House, model: str) -> str:
    """What a parent is told of a subtask whose template names a model."""
    folder = house.workspace / ".deputy" / "templates"
    folder.mkdir(parents=True)
    (folder / "garden.md").write_text(GARDEN % model)
    house.model = f"script:{house._script}"
    request = {"type": "gardening", "description": "Plant trees.", "inputs": {}}
    house.script(talk(turn("", call("Subtask", requests=[request])), turn("So be it.")))
    [output] = house.results(asyncio.run(house.run("Do it.")))
    return output


@pytest.mark.rule("delegate.key")
@pytest.mark.parametrize(("model", "name"), [(SONNET, "claude-agent-acp"), ("composer-1", "cursor-agent")])
def test_a_subtask_goes_to_a_model_that_only_a_program_can_reach(house: House, programs, model, name):
    programs.play(name, (turn("Planted."),))
    assert "Planted." in ask_for_a_subtask(house, model)
    assert "Plant them well." in programs.calls(name)[0].stdin


@pytest.mark.rule("delegate.key")
@pytest.mark.parametrize(
    ("model", "told"),
    [(SONNET, "no API key for provider anthropic"), ("composer-1", "only cursor-agent has the model")],
)
def test_a_subtask_for_a_model_that_nothing_can_reach_is_refused(house: House, programs, model, told):
    remove(programs, *WAYS.values(), "cursor-agent")
    assert told in ask_for_a_subtask(house, model)


@pytest.mark.rule("fallback")
def test_a_parents_model_that_fails_is_followed_by_the_next_of_its_chain_and_by_no_program(house: House, programs):
    failing = talk(turn("From the next.", faults=("model_not_found",)))
    with ProviderServer(ModelScript(conversations=(failing,))) as server:
        house.use(server, "opus-4.6-thinking")
        outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Completed), outcome
    assert (outcome.report, outcome.model) == ("From the next.", NEXT)
    assert [(one.left, one.taken) for one in outcome.fallbacks] == [
        ("opus-4.6-thinking on native", "sonnet-4.5-thinking on native")
    ]
    assert [one.content for one in house.seen if one.event == "fallback"] == ["sonnet-4.5-thinking on native"]
    assert not any(programs.calls(name) for name in WAYS.values())


@pytest.mark.rule("fallback")
def test_a_parent_takes_no_other_model_after_something_was_changed(house: House, programs):
    turns = (turn("", call("Write", path="made.txt", content="x")), turn("", faults=("model_not_found",) * 9))
    with ProviderServer(ModelScript(conversations=(talk(*turns),)), strict=False) as server:
        house.use(server, "opus-4.6-thinking")
        outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Failed)
    assert not outcome.fallbacks
    assert (house.workspace / "made.txt").read_text() == "x"
