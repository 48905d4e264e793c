import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import deputy
from deputy.core.guard import Policy, Ticket, admit
from deputy.core.limits import Budget, SpawnCounts
from deputy.core.outcome import NO_USAGE, Rejected
from deputy.core.request import ALWAYS_GRANTED, Grant, GrantRequest, Hop, Lineage, Request, subtask_hop, task_hop

POLICY = Policy()
EMPTY = SpawnCounts()
EVERYTHING = Grant(tools=frozenset({"Read", "Grep", "Write", "Run"}))
ROOT = Lineage.root("sess_1_aaaaaa", command="implement")


def request(target: Hop | str, caller: Lineage = ROOT, **changes: object) -> Request:
    hop = Hop(target, "agent") if isinstance(target, str) else target
    first = Request(
        session_id="sess_1_bbbbbb", target=hop, prompt=f"work for {hop.name}", caller=caller, caller_grant=EVERYTHING
    )
    return structs.replace(first, **changes)


def admitted(target: Hop | str, caller: Lineage = ROOT, **changes: object) -> Ticket:
    ticket = admit(request(target, caller, **changes), POLICY, EMPTY, 0.0)
    assert isinstance(ticket, Ticket), ticket
    return ticket


def refused(asked: Request, policy: Policy = POLICY, spawn_counts: SpawnCounts = EMPTY, now: float = 0.0) -> Rejected:
    rejected = admit(asked, policy, spawn_counts, now)
    assert isinstance(rejected, Rejected), rejected
    return rejected


@pytest.mark.rule("guard.depth")
def test_depth_three_exists_and_depth_four_never_does():
    one = admitted("task-executor").lineage
    two = admitted("implementer", one).lineage
    three = admitted("git-workflow-manager", two).lineage
    assert three.depth == 3
    rejected = refused(request("helper", three))
    assert rejected.code == "MAX_DEPTH_EXCEEDED"
    assert rejected.remedy == "Do this work yourself instead of delegating it."


@pytest.mark.rule("guard.depth")
@pytest.mark.parametrize("most", [0, 1, 2, 5])
def test_the_maximum_depth_is_settable(most):
    caller = ROOT
    for level in range(most):
        caller = caller.child(f"s{level}", Hop(f"a{level}", "agent"), str(level), now=0.0, seconds=None)
    assert caller.depth == most
    assert refused(request("next", caller), Policy(max_depth=most)).code == "MAX_DEPTH_EXCEEDED"


@pytest.mark.rule("lineage.env")
def test_the_stricter_limit_of_the_tree_above_holds_in_a_nested_tree():
    above = admitted("walker", ROOT.limited(2, 5)).lineage
    top = Lineage.root("sess_1_cccccc", above=above).limited(9, 9)
    assert (top.depth, top.max_depth, top.max_spawns) == (1, 2, 9)
    two = admitted("helper", top).lineage
    assert (
        refused(request("next", two), Policy(max_depth=9)).errors[0].message == "'helper' is at depth 2 of at most 2."
    )


@pytest.mark.rule("guard.cycle")
def test_an_agent_already_on_the_path_is_refused_before_the_child_exists():
    caller = admitted("implementer", admitted("task-executor").lineage).lineage
    rejected = refused(request("task-executor", caller))
    assert rejected.code == "CYCLE_DETECTED"
    assert "orchestrator → implement → task-executor → implementer → task-executor" in rejected.summary
    assert rejected.usage == NO_USAGE


@pytest.mark.rule("guard.cycle")
def test_a_command_of_the_same_name_is_not_a_cycle():
    assert admitted("implement").lineage.names == ("orchestrator", "implement", "implement")


@pytest.mark.rule("guard.cycle")
def test_an_agent_that_may_recurse_is_still_held_by_depth_and_signature():
    caller = admitted("walker").lineage
    deeper = admitted("walker", caller, is_recursive=True, prompt="the left half").lineage
    assert refused(request("walker", deeper, is_recursive=True, prompt="the left  half")).code == "CYCLE_DETECTED"
    deepest = admitted("walker", deeper, is_recursive=True, prompt="the left quarter").lineage
    assert refused(request("walker", deepest, is_recursive=True, prompt="x")).code == "MAX_DEPTH_EXCEEDED"


@pytest.mark.rule("guard.signature")
def test_the_same_work_on_the_chain_of_ancestors_is_a_cycle_whatever_the_agents_are_called():
    work = {"description": "verify", "inputs": {"code": "x = 1", "level": 2}}
    first = admitted(task_hop("verify"), **work)
    second = admitted("other", first.lineage)
    again = {"description": "verify ", "inputs": {"level": 2, "code": "x  = 1"}}
    assert refused(request(task_hop("verify"), second.lineage, **again)).code == "CYCLE_DETECTED"


@pytest.mark.rule("guard.signature")
def test_siblings_may_repeat_each_other():
    assert admitted(task_hop("a"), description="same").lineage == admitted(task_hop("a"), description="same").lineage


@pytest.mark.rule("guard.quota")
@pytest.mark.parametrize(
    ("census", "code"),
    [
        (SpawnCounts(spawned=64), "SPAWN_QUOTA"),
        (SpawnCounts(live=256), "LIVE_QUOTA"),
        (SpawnCounts(live_by_provider={"acme": 64}), "PROVIDER_QUOTA"),
        (SpawnCounts(spawns_left=0), "SPAWN_BUDGET"),
    ],
)
def test_a_full_quota_refuses_and_one_less_does_not(census, code):
    asked = request("scout", provider="acme")
    rejected = refused(asked, spawn_counts=census)
    assert rejected.code == code
    assert rejected.remedy
    one_less = SpawnCounts(
        spawned=max(0, census.spawned - 1),
        live=max(0, census.live - 1),
        live_by_provider={name: count - 1 for name, count in census.live_by_provider.items()},
        spawns_left=None if census.spawns_left is None else census.spawns_left + 1,
    )
    assert isinstance(admit(asked, Policy(), one_less, 0.0), Ticket)


@pytest.mark.rule("guard.quota")
def test_a_request_that_is_not_counted_is_admitted_beside_a_full_tree():
    full = SpawnCounts(spawned=64)
    assert isinstance(admit(request("scout", is_counted=False), Policy(), full, 0.0), Ticket)


@pytest.mark.rule("guard.quota")
def test_a_ticket_carries_the_census_with_itself_in_it():
    spawn_counts = admitted("scout", provider="acme").spawn_counts
    assert spawn_counts == SpawnCounts(spawned=1, live=1, live_by_provider={"acme": 1})


@pytest.mark.rule("guard.subset")
def test_a_tool_that_the_caller_lacks_is_refused_by_name():
    rejected = refused(request("scout", wanted=GrantRequest(tools=frozenset({"Read", "Deploy"}))))
    assert rejected.code == "GRANT_EXCEEDED"
    assert "the tool 'Deploy'" in rejected.errors[0].message


@pytest.mark.rule("guard.subset")
def test_note_and_ask_touch_nothing_and_need_no_grant():
    assert admitted("scout", wanted=GrantRequest(tools=ALWAYS_GRANTED)).grant.tools == ALWAYS_GRANTED


@pytest.mark.rule("guard.subset")
def test_a_child_is_read_only_when_nothing_is_said():
    assert admitted("scout").grant.tools == {"Read", "Grep"}


@pytest.mark.rule("time.inherit")
def test_no_time_left_for_a_child_is_a_refusal():
    caller = Lineage.root("sess_1_aaaaaa", deadline=104.0)
    assert refused(request("scout", caller), now=100.0).code == "NO_TIME_LEFT"


@pytest.mark.rule("time.inherit")
def test_a_child_whose_deadline_is_now_is_not_started():
    caller = Lineage.root("sess_1_aaaaaa", deadline=105.0)
    assert refused(request("scout", caller), now=100.0).code == "NO_TIME_LEFT"
    assert isinstance(admit(request("scout", caller), POLICY, EMPTY, 99.9), Ticket)


def chain(
    length: int, policy: Policy = POLICY, limits: dict[int, int] | None = None, caller: Lineage = ROOT
) -> Lineage:
    for number in range(1, length + 1):
        asked = request(subtask_hop("step"), caller, prompt=f"step {number}", subtask_limit=(limits or {}).get(number))
        ticket = admit(asked, policy, EMPTY, 0.0)
        assert isinstance(ticket, Ticket)
        caller = ticket.lineage
    return caller


@pytest.mark.rule("subtask.depth")
def test_subtasks_nest_ten_deep_and_do_not_deepen_delegation():
    tenth = chain(10)
    assert (tenth.subtask_depth, tenth.depth) == (10, 0)
    error = refused(request(subtask_hop("step"), tenth, prompt="one more")).errors[0]
    assert (error.type, error.code) == ("depth", "MAX_DEPTH_EXCEEDED")


@pytest.mark.rule("subtask.depth")
def test_a_request_lowers_the_depth_of_all_below_it_or_raises_it_to_the_ceiling():
    lowered = chain(3, limits={1: 3})
    assert isinstance(
        admit(request(subtask_hop("s"), lowered, prompt="x", subtask_limit=9), POLICY, EMPTY, 0.0), Rejected
    )
    ceiling = Policy(subtask_depth_ceiling=12)
    raised = chain(12, ceiling, limits={1: 99})
    assert isinstance(admit(request(subtask_hop("s"), raised, prompt="x"), ceiling, EMPTY, 0.0), Rejected)


@pytest.mark.rule("subtask.depth")
def test_a_delegation_from_a_subtask_begins_a_chain_of_its_own():
    inside = admitted("helper", chain(4)).lineage
    assert (inside.depth, inside.subtask_depth) == (1, 0)


@pytest.mark.rule("subtask.depth")
def test_a_subtask_that_asks_for_itself_is_a_cycle():
    asked = request(subtask_hop("check"), ROOT, prompt="p", description="Check it.", inputs={"a": 1, "b": "x  y"})
    below = admit(asked, POLICY, EMPTY, 0.0)
    assert isinstance(below, Ticket)
    again = structs.replace(asked, caller=below.lineage, inputs={"b": "x y", "a": 1})
    assert refused(again).errors[0].code == "CYCLE_DETECTED"


def test_only_the_guard_makes_tickets_and_only_child_goes_down():
    package = Path(deputy.__file__).parent
    makers: dict[str, set[str]] = {"Ticket": set(), "Lineage": set()}
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in makers:
                makers[node.func.id].add(str(file.relative_to(package)))
    assert makers == {"Ticket": {"core/guard.py"}, "Lineage": {"core/request.py"}}


# --- random trees -----------------------------------------------------------------------------------------------------

TOOLS = ["Read", "Grep", "Write", "Run", "Note", "Deploy"]
PATHS = [".", "src", "src/a", "src/b", "docs", "..", "/etc"]
CAPS = st.none() | st.integers(0, 5)

ASKED = st.fixed_dictionaries(
    {
        "caller": st.integers(0, 10_000),
        "name": st.sampled_from(["a", "b", "c", "d", "implement"]),
        "role": st.sampled_from(["agent", "task"]),
        "description": st.sampled_from(["x", "y", " x ", "z"]),
        "inputs": st.sampled_from([{}, {"p": 1, "q": 2}, {"q": 2, "p": 1}]),
        "is_recursive": st.booleans(),
        "provider": st.sampled_from(["acme", "other"]),
        "wanted": st.builds(
            GrantRequest,
            tools=st.none() | st.frozensets(st.sampled_from(TOOLS), max_size=3),
            paths=st.none() | st.lists(st.sampled_from(PATHS), max_size=2).map(tuple),
            budget=st.builds(Budget, tokens=CAPS, cost=CAPS, requests=CAPS, spawns=CAPS),
        ),
        "seconds": st.none() | st.floats(1, 500),
        "ends": st.booleans(),
    }
)
POLICIES = st.builds(
    Policy,
    max_depth=st.integers(0, 4),
    max_spawns=st.integers(0, 20),
    max_live=st.integers(0, 8),
    max_live_per_provider=st.integers(0, 6),
)


@pytest.mark.rule("guard.depth")
@pytest.mark.rule("guard.cycle")
@pytest.mark.rule("guard.signature")
@pytest.mark.rule("guard.quota")
@pytest.mark.rule("guard.subset")
@given(POLICIES, st.lists(ASKED, max_size=40), st.none() | st.floats(0, 1000))
def test_no_tree_of_delegations_breaks_a_rule(policy, asked, root_deadline):
    root = Lineage.root("root", command="implement", deadline=root_deadline)
    placed: list[tuple[Lineage, Grant]] = [(root, Grant(tools=frozenset(TOOLS[:4]), budget=Budget(tokens=4)))]
    spawn_counts = SpawnCounts()
    for number, wish in enumerate(asked):
        caller, caller_grant = placed[wish["caller"] % len(placed)]
        ticket = admit(
            Request(
                session_id=f"s{number}",
                target=Hop(wish["name"], wish["role"]),
                prompt="p",
                caller=caller,
                caller_grant=caller_grant,
                **{
                    name: wish[name]
                    for name in ("description", "inputs", "is_recursive", "provider", "wanted", "seconds")
                },
            ),
            policy,
            spawn_counts,
            now=0.0,
        )
        if isinstance(ticket, Rejected):
            assert ticket.code
            assert ticket.remedy
            continue
        check_ticket(ticket, caller, caller_grant, policy, may_recurse=wish["is_recursive"])
        placed.append((ticket.lineage, ticket.grant))
        spawn_counts = without_one(ticket.spawn_counts, wish["provider"]) if wish["ends"] else ticket.spawn_counts
        assert spawn_counts.spawned == len(placed) - 1


def without_one(spawn_counts: SpawnCounts, provider: str) -> SpawnCounts:
    by_provider = {**spawn_counts.live_by_provider, provider: spawn_counts.live_by_provider[provider] - 1}
    return structs.replace(spawn_counts, live=spawn_counts.live - 1, live_by_provider=by_provider)


def check_ticket(ticket: Ticket, caller: Lineage, caller_grant: Grant, policy: Policy, *, may_recurse: bool) -> None:
    lineage, grant, spawn_counts = ticket.lineage, ticket.grant, ticket.spawn_counts
    assert lineage.depth == caller.depth + 1 <= policy.max_depth
    assert lineage.path[:-1] == caller.path
    own = lineage.path[-1]
    if own.role == "agent" and not may_recurse:
        assert own not in caller.path
    assert len(set(lineage.signatures)) == len(lineage.signatures) == lineage.depth
    assert spawn_counts.spawned <= policy.max_spawns
    assert spawn_counts.live <= policy.max_live
    assert all(count <= policy.max_live_per_provider for count in spawn_counts.live_by_provider.values())
    assert grant.tools <= caller_grant.tools | ALWAYS_GRANTED
    assert all(caller_grant.covers(path) for path in grant.paths)
    for cap in ("tokens", "cost", "requests", "spawns"):
        ceiling, own_cap = getattr(caller_grant.budget, cap), getattr(grant.budget, cap)
        assert ceiling is None or (own_cap is not None and own_cap <= ceiling)
    if caller.deadline is not None:
        assert lineage.deadline is not None
        assert 0.0 < lineage.deadline < caller.deadline
