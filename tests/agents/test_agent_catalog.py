from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deputy.agents.agent_catalog import load_agents

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path / "project"


@pytest.mark.rule("agents")
def test_definitions_of_all_programs_are_found_in_the_project_and_at_home(project: Path, home: Path, write) -> None:
    write(project / ".deputy/agents/a.md")
    write(project / ".claude/agents/b.md")
    write(project / ".opencode/agent/c.md")
    write(project / ".opencode/agents/d.md")
    write(home / ".deputy/agents/e.md")
    write(home / ".claude/agents/f.md")
    write(home / ".opencode/agent/g.md")
    write(home / ".config/opencode/agents/h.md")
    assert [(agent.name, agent.source) for agent in load_agents(project, home).agents] == [
        ("a", "deputy project"),
        ("b", "claude project"),
        ("c", "opencode project"),
        ("d", "opencode project"),
        ("e", "deputy user"),
        ("f", "claude user"),
        ("g", "opencode user"),
        ("h", "opencode user"),
    ]


@pytest.mark.rule("agents")
def test_the_nearer_definition_of_a_name_wins_and_the_others_say_by_which(project: Path, home: Path, write) -> None:
    near = write(project / "service/.opencode/agent/x.md")
    write(project / ".deputy/agents/x.md")
    write(home / ".deputy/agents/y.md", name="x")
    catalogue = load_agents(project / "service", home)
    assert [agent.path for agent in catalogue.agents] == [str(near)]
    assert [item.by.path for item in catalogue.shadowed] == [str(near)] * 2
    assert [item.definition.source for item in catalogue.shadowed] == ["deputy project", "deputy user"]


def test_in_one_folder_the_first_file_wins(project: Path, home: Path, write) -> None:
    write(project / ".claude/agents/team/a.md", name="x")
    write(project / ".claude/agents/b.md", name="x")
    catalogue = load_agents(project, home)
    assert [agent.path.rpartition("/")[2] for agent in catalogue.agents] == ["b.md"]


def test_one_bad_file_does_not_hide_the_others(project: Path, home: Path, write) -> None:
    write(project / ".claude/agents/README.md", "# Our agents\n")
    write(project / ".claude/agents/z.md")
    catalogue = load_agents(project, home)
    assert [agent.name for agent in catalogue.agents] == ["z"]
    assert [problem.path.rpartition("/")[2] for problem in catalogue.problems] == ["README.md"]


def test_one_folder_under_two_names_is_read_once(project: Path, home: Path, write) -> None:
    write(project / ".claude/agents/a.md")
    (project / ".opencode").mkdir()
    (project / ".opencode/agent").symlink_to("../.claude/agents")
    catalogue = load_agents(project, home)
    assert (len(catalogue.agents), catalogue.shadowed, catalogue.problems) == (1, (), ())


def test_an_agent_is_found_by_its_exact_name(project: Path, home: Path, write) -> None:
    write(project / ".claude/agents/a.md")
    catalogue = load_agents(project, home)
    assert catalogue.named("a") is catalogue.agents[0]
    assert catalogue.named("A") is None


def test_where_there_is_nothing_the_places_are_still_named(tmp_path: Path) -> None:
    catalogue = load_agents(tmp_path / "nowhere", tmp_path / "no-home")
    assert (catalogue.agents, catalogue.problems) == ((), ())
    assert len(catalogue.folders) == 10
