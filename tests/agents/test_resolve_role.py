"""From definitions, as people write them, to what a task takes over."""

from pathlib import Path

import pytest

from deputy.agents.agent_files import load_agents
from deputy.agents.resolve_role import find_role, names_in
from deputy.core.limits import Budget
from deputy.core.request import READ_ONLY_TOOLS, Grant
from deputy.core.task import NoRole, Role, Task, as_parent, in_role

ALL = Grant(tools=READ_ONLY_TOOLS | {"Edit", "Write", "Run", "Delegate"})
TASK = Task(label="one", prompt="Do it.")


def find(tmp_path: Path, name: str, head: str, *, scope: str = "user", trusted: bool = False) -> Role | NoRole:
    project, home = tmp_path / "project", tmp_path / "home"
    for folder in (project, home):
        (folder / ".deputy" / "agents").mkdir(parents=True)
    place = home if scope == "user" else project
    (place / ".deputy" / "agents" / "scribe.md").write_text(
        f"---\nname: scribe\ndescription: d\n{head}\n---\nYou write."
    )
    models = {"sonnet": "sonnet"}
    return find_role(load_agents(project, home), name, models.get, trusts_project=trusted)


@pytest.mark.rule("agents")
@pytest.mark.parametrize(
    ("head", "tools"),
    [
        ("tools: Read, Bash, MultiEdit", {"Read", "Run", "Edit"}),
        ("tools: [read, write, Task]", {"Read", "Write", "Delegate"}),
        ("tools: Bash(git:*), Grep", {"Grep"}),
        ("tools: []", set()),
        ("tools: Read, mcp__x__y, Nonsense", {"Read"}),
        ("", READ_ONLY_TOOLS | {"Edit", "Write", "Run"}),
        ("tools: '*'", READ_ONLY_TOOLS | {"Edit", "Write", "Run"}),
        ("disallowedTools: Bash(rm:*), Write", READ_ONLY_TOOLS | {"Edit"}),
        ("permission:\n  edit: deny", READ_ONLY_TOOLS | {"Run"}),
    ],
)
def test_tools_are_read_by_the_names_that_people_give_them(tmp_path, head, tools):
    role = find(tmp_path, "scribe", head)
    assert isinstance(role, Role)
    assert role.granted(ALL) == tools


@pytest.mark.rule("guard.subset")
def test_a_definition_grants_no_more_than_the_caller_has(tmp_path):
    role = find(tmp_path, "scribe", "tools: Read, Run, Delegate\nmaxTurns: 9\ntimeout: 5m\nmodel: sonnet")
    caller = Grant(tools=frozenset({"Read", "Edit"}), budget=Budget(requests=4))
    task = in_role(TASK, role, caller)
    assert (task.tools, task.budget.requests, task.timeout, task.model) == (("Read",), 4, 300, "sonnet")
    assert task.wanted.excess(caller) == ()


@pytest.mark.rule("agents")
def test_what_a_task_says_goes_before_what_the_definition_says(tmp_path):
    role = find(tmp_path, "scribe", "tools: Read, Run\nmodel: sonnet\ntimeout: 60\nisolation: none")
    own = Task(label="one", prompt="x", tools=("Grep",), model="other:m", timeout=5.0, isolation="worktree")
    task = in_role(own, role, ALL)
    assert (task.tools, task.model, task.timeout, task.isolation) == (("Grep",), "other:m", 5.0, "worktree")
    assert in_role(TASK, role, ALL).isolation == "none"


@pytest.mark.rule("agents")
def test_a_definition_of_the_project_only_reads_until_the_user_trusts_it(tmp_path):
    head = "tools: Read, Run, Delegate\nrecursive: true\nisolation: none"
    role = find(tmp_path, "scribe", head, scope="project")
    assert (role.granted(ALL), role.is_recursive, role.isolation) == (frozenset({"Read"}), False, None)
    assert "agents.trusted" in role.warnings[0]


@pytest.mark.rule("agents")
def test_a_definition_of_a_trusted_project_counts_as_the_users(tmp_path):
    role = find(tmp_path, "scribe", "tools: Read, Run, Delegate\nrecursive: true", scope="project", trusted=True)
    assert (role.granted(ALL), role.is_recursive, role.warnings) == ({"Read", "Run", "Delegate"}, True, ())


@pytest.mark.rule("agents")
def test_a_definition_that_inherits_reads_only_where_it_is_not_trusted(tmp_path):
    role = find(tmp_path, "scribe", "", scope="project")
    assert role.granted(ALL) == READ_ONLY_TOOLS


@pytest.mark.rule("agents")
def test_a_name_that_is_unknown_is_answered_with_near_ones(tmp_path):
    assert find(tmp_path, "scribbe", "").reason == "no agent has that name; similar names: scribe"


@pytest.mark.rule("agents")
def test_a_name_that_is_like_no_other_is_answered_with_all(tmp_path):
    assert find(tmp_path, "zzz", "").reason == "no agent has that name; the agents are: scribe"


@pytest.mark.rule("agents")
def test_a_disabled_agent_is_not_used_and_not_named(tmp_path):
    assert "disables it" in find(tmp_path, "scribe", "disable: true").reason
    assert names_in(load_agents(tmp_path / "project", tmp_path / "home")) == ()


@pytest.mark.rule("agents")
def test_a_model_that_cannot_be_asked_is_warned_of_and_the_callers_taken(tmp_path):
    role = find(tmp_path, "scribe", "model: strange")
    assert role.model is None
    assert role.warnings == ("The model strange of the definition cannot be used here.",)


def test_at_the_top_an_agent_that_names_no_tools_has_all_of_them():
    assert as_parent(Role(name="x"), ALL).tools == ALL.tools
    assert as_parent(Role(name="x", tools=frozenset({"Read", "Deploy"})), ALL).tools == {"Read"}


@pytest.mark.rule("delegate.norecursion")
def test_only_a_definition_that_names_them_has_the_tools_that_hand_work_on(tmp_path: Path):
    caller = Grant(tools=READ_ONLY_TOOLS | {"Delegate", "Subtask"})
    assert find(tmp_path / "one", "scribe", "model: sonnet").granted(caller) == READ_ONLY_TOOLS
    assert find(tmp_path / "two", "scribe", "tools: Read, Subtask").granted(caller) == {"Read", "Subtask"}


# --- names of files, and tools that do not exist ---


def resolved(tmp_path: Path, files: dict[str, str], name: str, **options):
    for file, head in files.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\ndescription: d\n{head}\n---\nI am {file}.")
    (tmp_path / "home").mkdir(exist_ok=True)
    catalogue = load_agents(tmp_path / "project", tmp_path / "home")
    return find_role(catalogue, name, lambda name: name, trusts_project=True, **options)


@pytest.mark.rule("agents")
def test_an_agent_is_found_by_the_name_of_its_file_too(tmp_path):
    role = resolved(tmp_path, {"project/.claude/agents/reviewer.md": "name: code-reviewer"}, "reviewer")
    assert (role.name, role.warnings) == ("code-reviewer", ())
    assert resolved(tmp_path, {}, "code-reviewer") == role


@pytest.mark.rule("agents")
def test_a_name_wins_over_the_name_of_a_file_and_both_are_named(tmp_path):
    files = {
        "project/.claude/agents/reviewer.md": "name: code-reviewer",
        "home/.claude/agents/other.md": "name: reviewer",
    }
    role = resolved(tmp_path, files, "reviewer")
    assert (role.name, role.prompt) == ("reviewer", "I am home/.claude/agents/other.md.")
    [warning] = role.warnings
    assert "project/.claude/agents/reviewer.md (code-reviewer)" in warning
    assert resolved(tmp_path, {}, "code-reviewer").warnings == ()


@pytest.mark.rule("agents")
def test_tools_that_do_not_exist_are_named(tmp_path):
    head = "name: scribe\ntools: Read, TodoWrite, Bash(git:*), mcp__docs__search, price_of, Note"
    role = resolved(tmp_path, {"project/.deputy/agents/scribe.md": head}, "scribe", own_tools=["price_of"])
    assert role.warnings == (
        "Not granted: Bash(git:*); patterns in tools are not supported.",
        "Not granted: TodoWrite; there is no such tool here.",
    )
