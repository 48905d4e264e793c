"""One delegation on several ways: our own loop, programs, and at last no subagent at all."""

import asyncio
import os

import pytest
from tests.engine.conftest import House, call, talk, turn

from deputy.core.events import FellBack, Started
from deputy.core.ladder import Routing
from deputy.core.outcome import Blocked, Completed, Failed, Partial
from deputy.core.script import Script
from deputy.core.task import Task
from deputy.journal.reader import Reader
from deputy.journal.transcript import transcribe
from deputy.testing import ProviderServer
from deputy.testing.programs import install_fake_programs

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY")
SONNET = "anthropic:claude-sonnet-4-5"
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


@pytest.fixture
def provider(house, monkeypatch):
    """A provider that refuses every key, as many times as it is asked."""
    refused = talk(turn("", faults=("bad_api_key",) * 20))
    with ProviderServer(Script(conversations=(refused,)), strict=False) as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        yield server


def events_of(house, outcome, kind):
    return [record.event for record in house.records(outcome.session_id) if isinstance(record.event, kind)]


@pytest.mark.rule("ladder")
def test_without_a_key_the_providers_own_program_does_it(house: House, programs):
    programs.play("claude", (turn("All quiet."),))
    outcome = house.one(LOOK)
    assert isinstance(outcome, Completed)
    assert (outcome.report, outcome.backend, outcome.is_isolated) == ("All quiet.", "cli:claude", True)
    assert outcome.usage.input == 100
    assert "Look around." in programs.calls("claude")[0].stdin
    [fallback] = outcome.fallbacks
    assert fallback.left == f"{SONNET} on native"
    assert fallback.reason == "There is no API key for provider anthropic."


@pytest.mark.rule("ladder")
def test_with_a_key_no_program_is_started(house: House, programs, monkeypatch):
    with ProviderServer(Script(conversations=(talk(turn("Native.")),))) as server:
        house.use(server)
        outcome = house.one(LOOK)
    assert (outcome.report, outcome.backend) == ("Native.", "native")
    assert not any(programs.calls(name) for name in ("claude", "cursor-agent"))


@pytest.mark.rule("ladder")
@pytest.mark.rule("fallback")
def test_a_native_failure_steps_to_the_program_and_every_step_is_told(house: House, programs, provider):
    programs.play("claude", (turn("All quiet."),))
    outcome = house.one(LOOK)
    assert isinstance(outcome, Completed)
    assert outcome.backend == "cli:claude"
    [fallback] = outcome.fallbacks
    assert (fallback.left, fallback.taken) == (f"{SONNET} on native", f"{SONNET} on cli:claude")
    assert fallback.reason
    assert [event.fallback for event in events_of(house, outcome, FellBack)] == [fallback]
    assert [one.content for one in house.seen if one.event == "fallback"] == [fallback.taken]


@pytest.mark.rule("ladder")
def test_two_native_failures_and_native_is_skipped_for_the_rest_of_the_session(house: House, programs, provider):
    programs.play("claude", (turn("Quiet."), turn("Quiet."), turn("Quiet.")))
    tasks = [Task(label=f"t{number}", prompt=f"Look at {number}.") for number in range(3)]
    outcomes = asyncio.run(house.delegate(*tasks, concurrency=1))
    assert [len(outcome.fallbacks) for outcome in outcomes] == [1, 1, 0]
    assert [events_of(house, one, Started)[0].backend for one in outcomes] == ["native", "native", "cli:claude"]
    again = asyncio.run(house.delegate(tasks[0]))
    assert events_of(house, again[0], Started)[0].backend == "native", "a new session begins at zero"


@pytest.mark.rule("fallback")
def test_a_model_that_fails_is_followed_by_the_next_of_its_chain(house: House, programs):
    with ProviderServer(Script(conversations=(talk(turn("From the next.", faults=("model_not_found",))),))) as server:
        house.use(server, "opus-4.6-thinking")
        outcome = house.one(LOOK)
    assert isinstance(outcome, Completed)
    assert (outcome.backend, outcome.report) == ("native", "From the next.")
    assert [one.taken for one in outcome.fallbacks] == ["sonnet-4.5-thinking on native"]
    assert outcome.model == "anthropic:claude-sonnet-4-5"


@pytest.mark.rule("fallback")
def test_no_step_is_taken_after_something_was_changed(house: House, programs):
    turns = (turn("", call("Write", path="made.txt", content="x")), turn("", faults=("model_not_found",)))
    with ProviderServer(Script(conversations=(talk(*turns),)), strict=False) as server:
        house.use(server)
        outcome = house.one(Task(label="w", prompt="Write.", tools=("Read", "Write"), isolation="none"))
    assert isinstance(outcome, Failed)
    assert not outcome.fallbacks
    assert not programs.calls("claude")


@pytest.mark.rule("fallback")
def test_no_step_is_taken_after_a_program_may_have_changed_something(house: House, programs):
    write = call("Write", path="made.txt", content="made\n")
    programs.play("claude", (turn("I write.", write), turn("", faults=("model_not_found",))))
    outcome = house.one(Task(label="w", prompt="Write.", tools=("Read", "Edit", "Write", "Run"), isolation="none"))
    assert isinstance(outcome, Failed)
    assert (outcome.backend, len(outcome.fallbacks)) == ("cli:claude", 1)
    assert not programs.calls("cursor-agent")


@pytest.mark.rule("ladder")
def test_all_ways_failing_ends_failed_with_every_reason(house: House, programs, provider):
    programs.play("claude", (turn("x"),), misbehaviour="crashes")
    programs.play("cursor-agent", (turn("x"),), misbehaviour="is logged out")
    outcome = house.one(LOOK)
    assert isinstance(outcome, Failed)
    assert [one.taken.rpartition(" ")[2] for one in outcome.fallbacks] == [
        "cli:claude",
        "cli:cursor-agent",
        "cli:cursor-agent",
    ]
    codes = {error.code for error in outcome.errors}
    assert {"BAD_API_KEY", "PROGRAM_CRASHED", "PROGRAM_NOT_LOGGED_IN", "MODEL_FAILED"} <= codes


@pytest.mark.rule("ladder")
@pytest.mark.rule("text.degradation")
def test_all_ways_failing_ends_inline_where_another_model_works(house: House, programs):
    programs.play("claude", (turn("x"),), misbehaviour="crashes")
    programs.play("cursor-agent", (turn("x"),), misbehaviour="crashes")
    house.model = f"script:{house._script}"
    house.script(talk(turn("Done here."), when="You are a subagent"))
    task = Task(label="scout", prompt="Look around.", model=SONNET, degradation="Think out loud.")
    outcome = house.one(task)
    assert isinstance(outcome, Completed)
    assert (outcome.backend, outcome.is_isolated, outcome.report) == ("inline", False, "Done here.")
    said = [message.content for message in transcript(house, outcome).messages if message.role == "user"]
    assert said[-1].index("Think out loud.") < said[-1].index("Look around.")


@pytest.mark.rule("ladder")
def test_inline_can_be_forbidden_and_so_can_every_fallback(house: House, programs):
    programs.play("claude", (turn("x"),), misbehaviour="crashes")
    programs.play("cursor-agent", (turn("x"),), misbehaviour="crashes")
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

    from deputy.core.events import Opened
    from deputy.core.request import Grant, Lineage
    from deputy.engine.root import DELEGATE, FanOut

    async with house.open() as runtime:
        run = await runtime.engine.draw_id()
        arguments = msgspec.Raw(msgspec.json.encode(FanOut(tasks=(task,), concurrency=1)))
        grant = Grant(tools=frozenset({"Read"}))
        birth = Opened(
            lineage=Lineage.root(run),
            model=house.model,
            command=DELEGATE,
            arguments=arguments,
            grant=grant,
            routing=routing,
        )
        await runtime.engine.submit(run, birth)
        await runtime.engine.result(run)
        [child] = await runtime.journal.descendants(run)
        return await runtime.engine.outcome(child.run, child.round)


@pytest.mark.rule("ladder")
def test_a_parent_gets_back_what_no_subagent_can_do(house: House, programs):
    programs.play("claude", (turn("x"),), misbehaviour="crashes")
    programs.play("cursor-agent", (turn("x"),), misbehaviour="crashes")
    house.model = f"script:{house._script}"
    tasks = [{"label": "scout", "prompt": "Look around.", "model": SONNET}]
    house.script(talk(turn("", call("Delegate", tasks=tasks)), turn("I looked myself.")))
    outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Completed)
    [told] = house.results(outcome)
    assert "do it yourself" in told
    assert told.index("do it yourself") < told.rindex("Look around.")


@pytest.mark.rule("delegate.key")
def test_no_key_and_no_program_is_said_before_anybody_is_asked(house: House, programs):
    for name in ("claude", "cursor-agent"):
        (programs.folder / name).unlink()
    house.model = f"script:{house._script}"
    tasks = [{"label": "scout", "prompt": "Look around.", "model": SONNET}]
    house.script(talk(turn("", call("Delegate", tasks=tasks)), turn("So be it.")))
    outcome = asyncio.run(house.run("Do it.", approval="ask", can_ask=True))
    assert house.results(outcome) == ["Cannot spawn subagents: no API key for provider anthropic"]


@pytest.mark.rule("cli")
@pytest.mark.rule("escalate")
def test_a_programs_question_blocks_and_the_answer_goes_on_in_its_own_session(house: House, programs):
    asks = (turn("Which one?\n\n[AWAITING_HUMAN_INPUT]"), turn("And when?\n[AWAITING_HUMAN_INPUT]"))
    programs.play("claude", (*asks, turn("Done.")))
    blocked = house.one(LOOK)
    assert isinstance(blocked, Blocked)
    assert blocked.question == "Which one?"
    again = house.resume(blocked.session_id, "the blue one")
    assert isinstance(again, Blocked)
    assert again.question == "And when?"
    done = house.resume(blocked.session_id, "now")
    assert isinstance(done, Completed)
    assert (done.backend, done.report) == ("cli:claude", "Done.")
    _, second, third = programs.calls("claude")
    assert "the blue one" in second.stdin
    assert "Look around." not in second.stdin
    assert "now" in third.stdin
    assert not done.warnings


@pytest.mark.rule("escalate")
def test_a_program_whose_session_is_gone_starts_afresh_with_what_is_known_and_says_so(house: House, programs):
    programs.play("claude", (turn("Which one?\n\n[AWAITING_HUMAN_INPUT]"),))
    blocked = house.one(LOOK)
    programs.play("claude", (turn("Done."),))
    done = house.resume(blocked.session_id, "the blue one")
    assert isinstance(done, Completed), done
    stdin = programs.calls("claude")[-1].stdin
    assert [word in stdin for word in ("Look around.", "Which one?", "the blue one")] == [True, True, True]
    assert any("started afresh" in warning for warning in done.warnings)


@pytest.mark.rule("cli")
@pytest.mark.rule("contract.lenient")
def test_a_programs_return_is_read_leniently_and_repaired_in_its_session(house: House, programs):
    good = '{"status": "done", "summary": "So.", "artifacts": [], "session_id": "s", "agent_type": "task:scout"}'
    programs.play("claude", (turn("It is so."), turn(good)))
    outcome = house.one(Task(label="scout", prompt="Look around.", return_format="json"))
    assert len(programs.calls("claude")) == 2
    assert "not valid JSON" in programs.calls("claude")[1].stdin
    assert isinstance(outcome, Failed), "its session id is not ours"
    assert outcome.errors[0].code == "INVALID_RETURN"


@pytest.mark.rule("cli")
def test_a_program_at_its_time_limit_hands_in_and_what_it_said_is_kept(house: House, programs):
    programs.play("claude", (turn("Late.", delay_seconds=30),))
    outcome = house.one(Task(label="scout", prompt="Look around.", timeout=3))
    assert isinstance(outcome, Partial)
    assert outcome.errors[0].type == "timeout"
    assert outcome.backend == "cli:claude"


def transcript(house, outcome):
    reader = Reader.open(house.home)
    with reader:
        return transcribe(list(reader.records(outcome.session_id)))


@pytest.mark.rule("cli")
@pytest.mark.rule("transcript")
def test_a_programs_words_and_tools_are_in_the_transcript(house: House, programs):
    (house.workspace / "notes.txt").write_text("remember the milk\n")
    programs.play("claude", (turn("I look.", call("Read", path="notes.txt")), turn("Milk.")))
    outcome = house.one(LOOK)
    messages = transcript(house, outcome).messages
    assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1].tool_calls[0].name == "Read"
    assert messages[-1].content == "Milk."
    assert [one.tool for one in house.seen if one.event == "tool_call"] == ["Read"]
    assert outcome.usage.requests >= 1


@pytest.mark.rule("cli")
def test_a_program_counts_against_the_budget(house: House, programs):
    from deputy.core.limits import Budget

    programs.play("claude", (turn("One."), turn("Two.")))
    task = Task(label="scout", prompt="Look around.", return_format="json", budget=Budget(requests=1))
    outcome = house.one(task)
    assert isinstance(outcome, Partial)
    assert outcome.errors[0].type == "budget"
    assert len(programs.calls("claude")) == 1
