"""Commands through the shipped agents: command → agent → specialist → helper, and no further."""

import json
from typing import Any

import pytest
from tests.project_tasks.conftest import Project, returned, write
from tests.support.scripts import call, talk, turn

from deputy.core.model_script import ScriptedCall, ScriptedTurn
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.project_tasks.orchestrator import CommandResult

REPORT = ".deputy/work/001_cache_the_index/report.md"
EXECUTOR, IMPLEMENTER, GIT = "You execute one task", "You implement one piece", "You commit the files"


def hand_to(agent: str, **more: Any) -> ScriptedCall:
    task = {"label": agent, "prompt": f"Work for {agent}.", "agent": agent, **more}
    return call("Delegate", tasks=[task], **{"return": "json"})


def tree(project: Project, ended: CommandResult) -> list[tuple[int, str, str, list[str]]]:
    """Depth, agent, status and path of every delegation of a session, from the top down."""
    with SqliteQueries.open(project.home) as reader:
        states = sorted(reader.tree(ended.outcome.session_id), key=lambda state: state.lineage.depth)
        return [(state.lineage.depth, state.agent, state.status, list(state.lineage.names)) for state in states]


def told(project: Project, label: str) -> list[dict[str, Any]]:
    """What its Delegate calls gave to the agent of this label, as data."""
    file = next((project.home / "subagent").glob(f"{label}-*.transcript.json"))
    contents = [one["content"] for one in json.loads(file.read_text())["messages"] if one["role"] == "tool"]
    return [json.loads(text[text.index("{") : text.rindex("}") + 1]) for text in contents if '"results"' in text]


@pytest.mark.rule("guard.path")
def test_a_command_and_its_agent_alone(project: Project):
    project.add()
    ended = project.order("research", 1, turn("", write(REPORT)), turn(returned("completed", REPORT)))
    assert tree(project, ended) == [(1, "researcher", "completed", ["orchestrator", "research", "researcher"])]


@pytest.mark.rule("guard.path")
def test_research_through_a_researcher_and_a_specialist(project: Project):
    project.add()
    ended = project.play(
        "research",
        1,
        talk(turn("It is known."), when="You answer one question from the web"),
        talk(turn("", hand_to("web-research-specialist")), turn("", write(REPORT)), done(REPORT)),
    )
    path = ["orchestrator", "research", "researcher"]
    assert tree(project, ended) == [
        (1, "researcher", "completed", path),
        (2, "web-research-specialist", "completed", [*path, "web-research-specialist"]),
    ]
    assert project.task().status == "researched"


@pytest.mark.rule("guard.depth")
@pytest.mark.rule("guard.path")
def test_implementing_through_executor_implementer_and_helper(project: Project):
    project.add()
    ended = project.play(
        "implement",
        1,
        talk(turn("", call("Run", command="git status --short")), turn("Nothing to commit yet."), when=GIT),
        talk(
            turn("", write("code.py")),
            turn("", hand_to("git-workflow-manager", isolation="none")),
            turn("Implemented."),
            when=IMPLEMENTER,
        ),
        talk(turn("", hand_to("implementer", isolation="none")), done("code.py"), when=EXECUTOR),
    )
    path = ["orchestrator", "implement", "task-executor"]
    assert tree(project, ended) == [
        (1, "task-executor", "completed", path),
        (2, "implementer", "completed", [*path, "implementer"]),
        (3, "git-workflow-manager", "completed", [*path, "implementer", "git-workflow-manager"]),
    ]
    outcome = ended.outcome
    assert (outcome.status, [one.path for one in outcome.artifacts]) == ("completed", ["code.py"])
    assert list(outcome.lineage.names) == path
    assert project.task().status == "completed"
    assert ended.outcome.branch


@pytest.mark.rule("guard.depth")
@pytest.mark.rule("depth.told")
def test_a_helper_at_depth_3_cannot_delegate(project: Project):
    project.add()
    agents = project.root / "person/.deputy/agents"
    agents.mkdir(parents=True)
    (agents / "git-workflow-manager.md").write_text(
        "---\nname: git-workflow-manager\ntools: Read, Delegate\n---\nYou commit the files.\n"
    )
    ended = project.play(
        "implement",
        1,
        talk(turn("", hand_to("code-search-specialist")), turn("I did it myself."), when=GIT),
        talk(turn("", hand_to("git-workflow-manager")), turn("Implemented."), when=IMPLEMENTER),
        talk(
            turn("", write("code.py")),
            turn("", hand_to("implementer", isolation="none")),
            done("code.py"),
            when=EXECUTOR,
        ),
    )
    assert [depth for depth, _, status, _ in tree(project, ended) if status != "rejected"] == [1, 2, 3]
    ((refused,),) = [one["results"] for one in told(project, "git-workflow-manager")]
    assert (refused["status"], refused["error"]["code"]) == ("rejected", "MAX_DEPTH_EXCEEDED")
    assert refused["remedy"] == "Do this work yourself instead of delegating it."
    with SqliteQueries.open(project.home) as reader:
        assert "MAX_DEPTH_EXCEEDED" in [row.code for row in reader.errors(10)]
    assert project.task().status == "completed"


@pytest.mark.rule("guard.cycle")
def test_handing_work_back_to_an_agent_above_is_refused(project: Project):
    project.add()
    ended = project.play(
        "implement",
        1,
        talk(turn("", hand_to("task-executor", isolation="none")), turn("I did it."), when=IMPLEMENTER),
        talk(
            turn("", write("code.py")),
            turn("", hand_to("implementer", isolation="none")),
            done("code.py"),
            when=EXECUTOR,
        ),
    )
    (given,) = told(project, "implementer")
    (result,) = given["results"]
    route = "orchestrator → implement → task-executor → implementer → task-executor"
    assert (given["failed"], given["rejected"], result["status"]) == (0, 1, "rejected")
    assert result["error"] == {
        "type": "cycle",
        "code": "CYCLE_DETECTED",
        "message": f"'task-executor' is already on this path: {route}.",
        "recoverable": True,
        "recommendation": "Do this work yourself, or give it to an agent that is not one of "
        "orchestrator, implement, task-executor, implementer.",
    }
    assert [agent for _, agent, status, _ in tree(project, ended) if status == "completed"] == [
        "task-executor",
        "implementer",
    ]


@pytest.mark.rule("guard.quota")
def test_a_command_spawns_64_at_most_its_agent_included(project: Project):
    project.add()
    eight = [{"label": f"part{n}", "prompt": f"Look at part {n}."} for n in range(8)]
    calls = [turn("", call("Delegate", tasks=eight, **{"return": "json"})) for _ in range(8)]
    ended = project.play(
        "research",
        1,
        talk(turn("Seen."), when="Look at part", times=63),
        talk(*calls, turn("", write(REPORT)), done(REPORT)),
    )
    marks = [[result["status"] for result in given["results"]] for given in told(project, "research-1")]
    assert marks == [["ok"] * 8] * 7 + [["ok"] * 7 + ["rejected"]]
    refused = told(project, "research-1")[-1]["results"][-1]["error"]
    assert (refused["code"], refused["message"]) == (
        "SPAWN_QUOTA",
        "This tree has spawned 64 of at most 64 subagents.",
    )
    assert (ended.outcome.status, project.task().status) == ("completed", "researched")


@pytest.mark.rule("guard.quota")
def test_a_resumed_command_does_not_count_its_spawns_anew(project: Project):
    project.add()
    (project.folder / "deputy.toml").write_text("[limits]\nmax_spawns = 2\n")
    one = hand_to("web-research-specialist")
    ended = project.play(
        "research",
        1,
        talk(turn("It is known."), when="You answer one question from the web"),
        talk(
            turn("", one),
            turn("", call("Ask", question="Again?")),
            turn("", one),
            turn("", write(REPORT)),
            done(REPORT),
        ),
    )
    assert ended.outcome.status == "blocked"
    assert project.resume(ended.outcome.session_id, "Yes.").status == "completed"
    first, second = [given["results"][0] for given in told(project, "research-1")]
    assert (first["status"], second["status"], second["error"]["code"]) == ("ok", "rejected", "SPAWN_QUOTA")


@pytest.mark.rule("errors.up")
def test_the_errors_of_a_child_are_seen_by_its_caller_at_every_depth(project: Project):
    project.add()
    breaks = {"return_format": "json", "isolation": "none"}
    failed = turn(returned("failed"))
    ended = project.play(
        "implement",
        1,
        talk(failed, when=GIT),
        talk(turn("", hand_to("git-workflow-manager", **breaks)), failed, when=IMPLEMENTER),
        talk(turn("", hand_to("implementer", **breaks)), failed, when=EXECUTOR),
    )
    with SqliteQueries.open(project.home) as reader:
        states = {state.agent: state for state in reader.tree(ended.outcome.session_id)}
        ids = {agent: state.run for agent, state in states.items()}
        assert {reader.outcome(state).status for state in states.values()} == {"failed"}
    for caller, child in (("implement-1", "implementer"), ("implementer", "git-workflow-manager")):
        (given,) = told(project, caller)
        (result,) = given["results"]
        assert (result["status"], result["session_id"]) == ("error", ids[child])
        assert result["error"] == {
            "type": "build_error",
            "message": "It does not build.",
            "recoverable": True,
            "recommendation": "Mend it.",
        }
    assert ended.outcome.errors[0].message == "It does not build."
    assert project.task().status == "not started"


def done(*paths: str) -> ScriptedTurn:
    return turn(returned("completed", *paths))
