"""Files and folders as they really are on disk: links, pipes, loops, folders that are files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deputy.agents.agent_files import LIMIT_ENTRIES, DefinitionFolder, files_in, load_agents, places, read_file
from deputy.agents.definition import AgentDefinition, DefinitionProblem
from deputy.agents.read_definition import LIMIT_BYTES


@pytest.fixture
def place(tmp_path: Path) -> DefinitionFolder:
    folder = tmp_path / "project/.claude/agents"
    folder.mkdir(parents=True)
    return DefinitionFolder(folder=folder, family="claude", scope="project", bounds=tmp_path / "project")


def problems(place: DefinitionFolder) -> list[tuple[str, str]]:
    found = [file if isinstance(file, DefinitionProblem) else read_file(file, place) for file in files_in(place)]
    assert all(isinstance(item, DefinitionProblem) for item in found), found
    return [(Path(item.path).name, item.message) for item in found if isinstance(item, DefinitionProblem)]


@pytest.mark.rule("agents")
def test_places_go_from_here_up_to_the_repository_and_then_home(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "home/project"
    (project / "service/deep").mkdir(parents=True)
    (project / ".git").mkdir()
    found = [
        (place.folder.relative_to(tmp_path).as_posix(), place.family, place.scope)
        for place in places(project / "service/deep", home)
    ]
    folders = [(".deputy/agents", "deputy"), (".claude/agents", "claude")]
    folders += [(".opencode/agent", "opencode"), (".opencode/agents", "opencode")]
    levels = ["home/project/service/deep", "home/project/service", "home/project"]
    assert found == [
        *[(f"{level}/{folder}", family, "project") for level in levels for folder, family in folders],
        *[(f"home/{folder}", family, "user") for folder, family in folders],
        ("home/.config/opencode/agent", "opencode", "user"),
        ("home/.config/opencode/agents", "opencode", "user"),
    ]


def test_outside_a_repository_nothing_above_is_looked_at(tmp_path: Path) -> None:
    start = tmp_path / "shared/mine"
    assert {place.folder.parent.parent for place in places(start, tmp_path / "home") if place.scope == "project"} == {
        start
    }


def test_home_is_no_project_of_its_own(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert {place.scope for place in places(tmp_path, tmp_path)} == {"user"}


def test_nested_folders_are_read_after_the_files_beside_them(place: DefinitionFolder, write) -> None:
    for name in ("team/zoe.md", "team/inner/ann.md", "bob.md", "alpha/carl.MD", "notes.txt", ".hidden.md", ".git/x.md"):
        write(place.folder / name)
    found = [file.relative_to(place.folder).as_posix() for file in files_in(place) if isinstance(file, Path)]
    assert found == ["bob.md", "alpha/carl.MD", "team/zoe.md", "team/inner/ann.md"]


def test_opencode_names_a_nested_agent_with_its_folder(tmp_path: Path, write) -> None:
    folder = tmp_path / ".opencode/agent"
    file = write(folder / "team/zoe.md")
    place = DefinitionFolder(folder=folder, family="opencode", scope="project", bounds=tmp_path)
    found = read_file(file, place)
    assert isinstance(found, AgentDefinition)
    assert (found.name, found.source) == ("team/zoe", "opencode project")


@pytest.mark.rule("agents")
def test_a_link_out_of_a_projects_folder_is_not_followed(place: DefinitionFolder, tmp_path: Path, write) -> None:
    secret = write(tmp_path / "project/secret.md")
    (place.folder / "leak.md").symlink_to(secret)
    (place.folder / "outside").symlink_to(tmp_path)
    assert [(name, "leads out" in message) for name, message in problems(place)] == [
        ("leak.md", True),
        ("outside", True),
    ]


def test_a_link_within_the_folder_is_followed(place: DefinitionFolder, write) -> None:
    write(place.folder / "a/real.txt", "---\nname: real\ndescription: x\n---\n")
    (place.folder / "link.md").symlink_to("a/real.txt")
    found = [read_file(file, place) for file in files_in(place) if isinstance(file, Path)]
    assert [agent.name for agent in found if isinstance(agent, AgentDefinition)] == ["real"]


def test_a_persons_own_links_may_lead_anywhere_at_home(tmp_path: Path, write) -> None:
    folder = tmp_path / ".claude/agents"
    folder.mkdir(parents=True)
    (folder / "mine.md").symlink_to(write(tmp_path / "dotfiles/mine.md"))
    place = DefinitionFolder(folder=folder, family="claude", scope="user", bounds=tmp_path)
    assert [file for file in files_in(place) if isinstance(file, Path)] == [folder / "mine.md"]


def test_a_folder_that_leads_out_of_the_project_is_a_problem(tmp_path: Path, write) -> None:
    write(tmp_path / "elsewhere/a.md")
    (tmp_path / "project/.claude").mkdir(parents=True)
    folder = tmp_path / "project/.claude/agents"
    folder.symlink_to(tmp_path / "elsewhere")
    place = DefinitionFolder(folder=folder, family="claude", scope="project", bounds=tmp_path / "project")
    assert "leads out" in problems(place)[0][1]


def test_links_that_go_round_in_circles_end(place: DefinitionFolder, write) -> None:
    write(place.folder / "a/b/x.md")
    (place.folder / "a/b/again").symlink_to(place.folder)
    (place.folder / "self.md").symlink_to("self.md")
    found = list(files_in(place))
    assert [file.name for file in found if isinstance(file, Path)] == ["self.md", "x.md"]
    assert isinstance(read_file(place.folder / "self.md", place), DefinitionProblem)


@pytest.mark.rule("agents")
def test_a_pipe_is_a_problem_and_is_not_waited_for(place: DefinitionFolder) -> None:
    os.mkfifo(place.folder / "pipe.md")
    assert problems(place) == [("pipe.md", "not a regular file")]


def test_a_folder_with_the_name_of_a_file_is_a_problem(place: DefinitionFolder) -> None:
    (place.folder / "dir.md").mkdir()
    assert problems(place) == [("dir.md", "this is a folder, not a file")]


def test_a_file_in_the_place_of_the_folder_is_a_problem(tmp_path: Path, write) -> None:
    folder = write(tmp_path / ".claude/agents")
    place = DefinitionFolder(folder=folder, family="claude", scope="project", bounds=tmp_path)
    assert [name for name, _ in problems(place)] == ["agents"]


def test_a_link_to_nothing_is_a_problem(place: DefinitionFolder) -> None:
    (place.folder / "gone.md").symlink_to("never-there.md")
    assert problems(place) == [("gone.md", "cannot read the file: No such file or directory")]


@pytest.mark.rule("agents")
def test_a_huge_file_is_a_problem_and_is_not_read_whole(place: DefinitionFolder) -> None:
    with (place.folder / "huge.md").open("wb") as file:
        file.truncate(LIMIT_BYTES * 1000)
    ((name, message),) = problems(place)
    assert (name, "larger than" in message) == ("huge.md", True)


def test_a_name_that_is_not_utf8_can_still_be_shown(place: DefinitionFolder) -> None:
    (place.folder / os.fsdecode(b"caf\xe9.md")).write_text("---\ndescription: x\n---\n")
    (file,) = files_in(place)
    assert isinstance(file, Path)
    found = read_file(file, place)
    assert isinstance(found, AgentDefinition)
    assert found.name == "caf\ufffd"
    assert found.path.encode()


def test_a_folder_with_too_many_files_ends_with_a_problem(place: DefinitionFolder) -> None:
    for number in range(LIMIT_ENTRIES + 1):
        (place.folder / f"{number}.txt").touch()
    (only,) = files_in(place)
    assert isinstance(only, DefinitionProblem)
    assert str(LIMIT_ENTRIES) in only.message


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
    assert catalogue.matching("a") == [catalogue.agents[0]]
    assert catalogue.matching("A") == []


def test_where_there_is_nothing_the_places_are_still_named(tmp_path: Path) -> None:
    catalogue = load_agents(tmp_path / "nowhere", tmp_path / "no-home")
    assert (catalogue.agents, catalogue.problems) == ((), ())
    assert len(catalogue.folders) == 10
