from pathlib import Path

import pytest

from deputy.agents.agent_files import load_agents
from deputy.agents.resolve_role import role_of
from deputy.core.limits import WALL_LIMITS
from deputy.core.project_task import MOVES
from deputy.core.task import WRITING_TOOLS
from deputy.project_tasks.command_table import commands

SHIPPED = {
    "researcher", "planner", "implementer", "task-executor", "reviewer", "reviser", "error-diagnostics",
    "web-research-specialist", "code-search-specialist", "git-workflow-manager", "status-sync-manager",
}  # fmt: skip


@pytest.mark.rule("commands")
def test_every_command_has_limits_and_a_shipped_agent(tmp_path: Path) -> None:
    assert set(MOVES) < set(commands())
    catalogue = load_agents(tmp_path, tmp_path / "home", with_shipped=True)
    assert {agent.name for agent in catalogue.agents} == SHIPPED
    for name, command in commands().items():
        assert name in WALL_LIMITS
        assert command.agent("python", {}) in SHIPPED


def test_shipped_definitions_are_read_without_a_word_of_forgiveness(tmp_path: Path) -> None:
    catalogue = load_agents(tmp_path, tmp_path / "home", with_shipped=True)
    assert catalogue.problems == ()
    assert [agent.name for agent in catalogue.agents if agent.warnings] == []
    roles = {agent.name: role_of(agent, lambda _: None) for agent in catalogue.agents}
    assert all(role.tools for role in roles.values())
    for command in commands().values():
        role = roles[command.agents["default"]]
        assert role.tools is not None
        assert role.tools <= set(command.tools)
        # Who writes reports alone needs no worktree, and has nothing that could write elsewhere.
        if command.writes != "anywhere":
            assert not role.tools & (WRITING_TOOLS - {"Write"})


@pytest.mark.parametrize("scope", ["project", "home"])
def test_a_definition_of_the_project_or_the_user_goes_before_the_shipped_one(tmp_path: Path, scope: str) -> None:
    folder = tmp_path / scope / ".deputy/agents"
    folder.mkdir(parents=True)
    (folder / "mine.md").write_text("---\nname: researcher\n---\nMine.\n")
    (tmp_path / "project").mkdir(exist_ok=True)
    catalogue = load_agents(tmp_path / "project", tmp_path / "home", with_shipped=True)
    found, *_ = catalogue.matching("researcher")
    assert (found.prompt.strip(), len(catalogue.shadowed)) == ("Mine.", 1)


def test_languages_choose_agents_whatever_their_case_and_others_get_the_default() -> None:
    implement = commands()["implement"]
    own = {"Lean": "prover", "default": "mine"}
    assert implement.agent("lean", own) == "prover"
    assert implement.agent(" LEAN ", own) == "prover"
    assert implement.agent("python", own) == "mine"
    assert implement.agent("", {}) == "task-executor"
