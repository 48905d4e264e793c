"""Agents by their definitions, in the hands of other agents."""

import asyncio
from pathlib import Path

import pytest
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy.core.model_script import ModelScript
from deputy.core.outcome import Completed, Rejected
from deputy.core.task import Task
from deputy.testing import ProviderServer


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a definition of the user's own."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    folder = tmp_path / "user" / ".deputy" / "agents"
    folder.mkdir(parents=True)

    def define(name: str, head: str = "", prompt: str = "") -> None:
        text = f"---\nname: {name}\ndescription: d\n{head}\n---\n{prompt or f'You are {name}.'}\n"
        (folder / f"{name}.md").write_text(text)

    return define


def hands_on(to: str, prompt: str):
    return call("Delegate", tasks=[{"label": to, "prompt": prompt, "agent": to}])


def parent(*turns, **more):
    return talk(*turns, when="You work for a person", **more)


@pytest.mark.rule("agents")
def test_an_agents_definition_is_its_prompt_its_tools_its_model_and_its_limits(house: House, user):
    user("scribe", "tools: Read\nmodel: anthropic/claude-haiku-4-5\nmaxTurns: 3\ntimeout: 50", "You write verses.")
    conversations = (
        parent(turn("", hands_on("scribe", "a poem")), turn("Done.")),
        talk(turn("A poem."), when="You write verses."),
    )
    with ProviderServer(ModelScript(conversations=conversations)) as provider:
        house.use(provider)
        outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Completed)
    asked = provider.asked[1].body
    assert asked["model"] == "claude-haiku-4-5"
    assert [tool["name"] for tool in asked["tools"]] == ["Read", "Note", "Ask"]
    assert '"timeout":50' in asked["messages"][0]["content"][0]["text"]
    assert "Agents: scribe, code-search-specialist, error-diagnostics, " in str(provider.asked[0].body["tools"])


@pytest.mark.rule("agents")
def test_an_unknown_agent_is_refused_with_near_names_and_nothing_is_spent(house: House, user):
    user("scribe")
    house.script(parent(turn("", hands_on("scrbe", "a poem")), turn("Done.")))
    outcome = asyncio.run(house.run("Do it."))
    assert house.results(outcome) == ["tasks[0].agent is 'scrbe': no agent has that name; similar names: scribe."]


@pytest.mark.rule("guard.depth")
@pytest.mark.rule("depth.told")
@pytest.mark.rule("delegate.norecursion")
def test_agents_that_may_hand_on_do_so_down_to_depth_three_and_no_further(house: House, user):
    for name in ("one", "two", "three", "four"):
        user(name, "tools: Read, Delegate")
    house.script(
        parent(turn("", hands_on("one", "part 1")), turn("All done.")),
        talk(turn("", hands_on("two", "part 2")), turn("One done."), when="You are one."),
        talk(turn("", hands_on("three", "part 3")), turn("Two done."), when="You are two."),
        talk(turn("", hands_on("four", "part 4")), turn("Three done."), when="You are three."),
    )

    async def go():
        async with house.open() as runtime:
            run = await house.start_parent(runtime, "Do it.")
            outcome = await runtime.engine.result(run)
            return outcome, await runtime.journal.descendants(run)

    outcome, below = asyncio.run(go())
    assert outcome.report == "All done."
    worked = [state for state in below if state.status == "completed"]
    assert sorted((state.lineage.depth, state.lineage.names) for state in worked) == [
        (1, ("orchestrator", "one")),
        (2, ("orchestrator", "one", "two")),
        (3, ("orchestrator", "one", "two", "three")),
    ]
    lowest = next(state for state in below if state.agent == "three")
    (output,) = house.results_of(lowest.run)
    assert "### [four] ✗ rejected (depth)" in output
    assert "'three' is at depth 3 of at most 3." in output
    assert "Do this work yourself instead of delegating it." in output
    done = [seen.label for seen in house.seen if seen.event == "completed" and seen.status == "completed"]
    assert done == ["three", "two", "one"]
    [failed] = [seen for seen in house.seen if seen.event == "tool_error"]
    assert (failed.label, failed.tool) == ("three", "Delegate")
    assert failed.reason == "'three' is at depth 3 of at most 3."


@pytest.mark.rule("guard.cycle")
@pytest.mark.parametrize(("head", "is_cycle"), [("", True), ("recursive: true", False)])
def test_an_agent_on_its_own_path_is_a_cycle_unless_it_may_recurse(house: House, user, head, is_cycle):
    user("one", f"tools: Read, Delegate\n{head}")
    inner = () if is_cycle else (talk(turn("Inner done."), when="a smaller part"),)
    house.script(
        *inner,
        parent(turn("", hands_on("one", "part 1")), turn("All done.")),
        talk(turn("", hands_on("one", "a smaller part")), turn("Outer done."), when="You are one."),
    )

    async def go():
        async with house.open() as runtime:
            run = await house.start_parent(runtime, "Do it.")
            await runtime.engine.result(run)
            states = await runtime.journal.descendants(run)
            return [await runtime.engine.outcome(state.run, 0) for state in states]

    outcomes = sorted(asyncio.run(go()), key=lambda outcome: outcome.lineage.depth)
    assert isinstance(outcomes[0], Completed)
    if is_cycle:
        assert isinstance(outcomes[1], Rejected)
        assert outcomes[1].code == "CYCLE_DETECTED"
    else:
        assert isinstance(outcomes[1], Completed)


@pytest.mark.rule("guard.subset")
def test_a_definition_cannot_give_what_its_caller_lacks(house: House, user):
    user("outer", "tools: Read, Delegate")
    user("inner", "tools: Read, Run")
    house.script(
        parent(turn("", hands_on("outer", "part 1")), turn("All done.")),
        talk(turn("", hands_on("inner", "part 2")), turn("Outer done."), when="You are outer."),
        talk(turn("", call("Run", command="touch evil")), turn("Inner done."), when="You are inner."),
    )
    outcome = asyncio.run(house.run("Do it."))
    assert isinstance(outcome, Completed)
    assert not (house.workspace / "evil").exists()


@pytest.mark.rule("agents")
def test_a_definition_of_the_project_reads_only_and_says_so(house: House, user):
    folder = house.workspace / ".claude" / "agents"
    folder.mkdir(parents=True)
    (folder / "helper.md").write_text("---\nname: helper\ndescription: d\ntools: Read, Bash\n---\nYou help.\n")
    work = talk(turn("", call("Run", command="touch evil")), turn("Helped."), when="You help.")
    house.script(parent(turn("", hands_on("helper", "help me")), turn("Done.")), work)
    outcome = asyncio.run(house.run("Do it."))
    assert not (house.workspace / "evil").exists()
    assert "agents.trusted" in house.results(outcome)[0]


@pytest.mark.rule("agents")
def test_a_definition_that_changes_later_changes_nothing_of_what_was_handed_over(house: House, user, tmp_path: Path):
    user("scribe", "tools: Read", "You write verses.")
    house.script(
        parent(turn("", hands_on("scribe", "a poem")), turn("Done.")),
        talk(turn("What about?\n[AWAITING_HUMAN_INPUT]"), turn("A poem."), when="You write verses."),
    )
    asyncio.run(house.run("Do it."))
    (tmp_path / "user" / ".deputy" / "agents" / "scribe.md").unlink()
    child = next(seen.session_id for seen in house.seen if seen.event == "started")
    resumed = house.resume(child, "the sea")
    assert isinstance(resumed, Completed)
    assert resumed.report == "A poem."


def test_a_task_of_a_program_may_name_an_agent_too(house: House, user):
    from deputy import Deputy
    from deputy.core.errors import UsageError

    user("scribe", "tools: Read", "You write verses.")
    house.script(talk(turn("A poem."), when="You are a subagent."), parent(turn("Top.")))

    async def go():
        async with Deputy(house.model, models=house.given, workspace=house.workspace, home=house.home) as deputy:
            with pytest.raises(UsageError, match="similar names: scribe"):
                await deputy.delegate([Task(label="a", prompt="x", agent="scrib")])
            (outcome,) = await deputy.delegate([Task(label="a", prompt="x", agent="scribe")])
            return outcome, await deputy.run("Write.", agent="scribe")

    outcome, top = asyncio.run(go())
    assert outcome.report == "A poem."
    assert outcome.lineage.names == ("orchestrator", "scribe")
    assert (top.report, top.lineage.names) == ("Top.", ("orchestrator", "scribe"))
