import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.every_case import every_case

from deputy.core.errors import UsageError
from deputy.core.limits import Budget
from deputy.core.request import (
    Grant,
    GrantRequest,
    Hop,
    Lineage,
    TaskContext,
    delegation_context,
    new_session_id,
    signature,
    task_hop,
)

ROOT = Lineage.root("sess_1735460684_a1b2c3", command="implement", deadline=10_000.0)


def below(caller: Lineage, name: str, *, seconds: float | None = None) -> Lineage:
    return caller.child(f"sess_1_{name}", Hop(name, "agent"), name, now=0.0, seconds=seconds)


@pytest.mark.rule("id.session")
def test_a_session_id_is_the_second_and_six_letters():
    assert new_session_id(1735460684, lambda: "a1b2c3", lambda _: False) == "sess_1735460684_a1b2c3"


@pytest.mark.rule("id.session")
def test_an_id_that_is_known_is_drawn_again():
    draws = iter(["aaaaaa", "bbbbbb", "cccccc"])
    known = {"sess_7_aaaaaa", "sess_7_bbbbbb"}
    assert new_session_id(7, lambda: next(draws), known.__contains__) == "sess_7_cccccc"


@pytest.mark.rule("id.session")
def test_a_source_of_randomness_that_is_stuck_is_a_bug_and_not_an_endless_loop():
    with pytest.raises(RuntimeError, match="stuck"):
        new_session_id(7, lambda: "aaaaaa", lambda _: True)


@pytest.mark.rule("guard.path")
def test_a_command_stands_on_the_path_and_adds_no_depth():
    assert ROOT.names == ("orchestrator", "implement")
    assert ROOT.depth == 0
    assert Lineage.root("sess_1_aaaaaa").names == ("orchestrator",)


@pytest.mark.rule("guard.path")
def test_what_a_target_receives_ends_with_its_caller_and_the_registry_ends_with_the_target():
    executor = below(ROOT, "task-executor")
    assert executor.received_names == ("orchestrator", "implement")
    assert executor.names == ("orchestrator", "implement", "task-executor")
    assert executor.depth == 1


@pytest.mark.rule("guard.path")
def test_a_task_without_an_agent_stands_as_its_label():
    assert task_hop("security").name == "task:security"


@pytest.mark.rule("guard.path")
def test_depth_is_counted_and_never_derived_from_the_length_of_the_path():
    deep = below(below(below(ROOT, "task-executor"), "implementer"), "git-workflow-manager")
    assert (deep.depth, len(deep.path)) == (3, 5)
    bare = below(Lineage.root("sess_1_aaaaaa"), "researcher")
    assert (bare.depth, len(bare.path)) == (1, 2)


def test_every_delegation_of_a_tree_knows_its_root_session():
    assert below(below(ROOT, "a"), "b").root_id == ROOT.session_id


@pytest.mark.rule("time.inherit")
def test_a_child_inherits_a_deadline_that_leaves_its_caller_time_to_finish():
    assert below(ROOT, "a", seconds=None).deadline == 9_000.0
    assert below(ROOT, "a", seconds=60.0).deadline == 60.0


def test_waiting_for_a_person_moves_the_deadline():
    assert ROOT.paused(30.0).deadline == 10_030.0
    endless = Lineage.root("sess_1_aaaaaa")
    assert endless.paused(30.0) == endless


@pytest.mark.rule("context.object")
def test_a_target_is_given_its_place_in_the_tree():
    task = TaskContext(task_number=244, language="python")
    context = delegation_context(below(ROOT, "task-executor", seconds=3600.0), 3600.0, task)
    assert context == {
        "session_id": "sess_1_task-executor",
        "delegation_depth": 1,
        "delegation_path": ["orchestrator", "implement"],
        "timeout": 3600.0,
        "deadline": "1970-01-01T01:00:00Z",
        "caller": "implement",
        "task_context": task,
    }


@pytest.mark.rule("context.object")
def test_the_first_four_fields_are_always_there():
    lineage = below(Lineage.root("sess_1_aaaaaa"), "scout")
    assert delegation_context(lineage, None) == {
        "session_id": "sess_1_scout",
        "delegation_depth": 1,
        "delegation_path": ["orchestrator"],
        "timeout": None,
        "caller": "orchestrator",
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


def reordered(value):
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@pytest.mark.rule("guard.signature")
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_the_order_of_keys_does_not_change_a_signature(inputs):
    assert signature("a", "b", inputs) == signature("a", "b", reordered(inputs))


@pytest.mark.rule("guard.signature")
def test_white_space_does_not_change_a_signature():
    one = signature("scout", "find  the\n bug", {"a": " x  y "})
    assert one == signature("scout", "find the bug", {"a": "x y"})


@pytest.mark.rule("guard.signature")
@every_case(
    "other",
    [
        ("other", "find", {"a": 1}),
        ("scout", "find it", {"a": 1}),
        ("scout", "find", {"a": 2}),
        ("scout", "find", {"b": 1}),
        ("scout", "find", {"a": "1"}),
        ("scout", "find", {"a": [1]}),
        ("scout", "find", {}),
    ],
)
def test_target_description_and_inputs_each_change_a_signature(other):
    assert signature("scout", "find", {"a": 1}) != signature(*other)


@pytest.mark.rule("guard.signature")
def test_a_signature_is_the_same_in_every_process():
    assert signature("scout", "find", {"a": 1.0, "b": [True, None]}) == "584e90c6747a44b7c1d80db344608673"


def test_inputs_that_are_no_json_or_too_deep_are_named():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    for inputs in ({"a": deep}, {"a": object()}, {"a": "\ud800"}):
        with pytest.raises(UsageError, match="inputs"):
            signature("scout", "find", inputs)


@pytest.mark.rule("guard.subset")
@every_case(
    ("granted", "path", "covered"),
    [
        ((".",), "src/a.py", True),
        (("src",), "src", True),
        (("src",), "src/a/b.py", True),
        (("src/",), "./src/x", True),
        (("src",), "srcs/a.py", False),
        (("src",), "src/../tests", False),
        (("src",), "docs", False),
        ((".",), "../x", False),
        ((".",), "/etc/passwd", False),
        ((".",), "a/../../x", False),
        ((".",), "", False),
        ((".",), "a\0b", False),
        (("../x",), "../x", False),
        ((), "a", False),
    ],
)
def test_a_path_is_granted_at_or_below_a_granted_one(granted, path, covered):
    assert Grant(paths=granted).covers(path) is covered


@pytest.mark.rule("guard.subset")
def test_what_is_not_named_is_inherited():
    caller = Grant(tools=frozenset({"Read", "Write"}), paths=("src",), budget=Budget(tokens=100))
    assert GrantRequest().granted(caller) == Grant(tools=frozenset({"Read"}), paths=("src",), budget=Budget(tokens=100))
    assert GrantRequest().excess(caller) == ()


@pytest.mark.rule("guard.subset")
def test_a_child_writes_only_where_its_caller_may():
    caller = Grant(writable=("docs",), work_folder="specs")
    child = GrantRequest(tools=frozenset({"Read"})).granted(caller)
    assert (child.writable, child.work_folder) == (("docs",), "specs")
    assert (child.may_write("docs/a.md"), child.may_write("src/a.py")) == (True, False)


@pytest.mark.rule("guard.subset")
def test_everything_that_the_caller_lacks_is_named_at_once():
    caller = Grant(tools=frozenset({"Read"}), paths=("src",), budget=Budget(tokens=100, requests=5))
    wanted = GrantRequest(
        tools=frozenset({"Read", "Run", "Note"}), paths=("src/a", "docs"), budget=Budget(tokens=101, requests=5)
    )
    assert wanted.excess(caller) == ("the tool 'Run'", "the path 'docs'", "a budget of 101 tokens")
