"""What a person approves: the whole call, its risk, its cost and its digest."""

from hashlib import sha256

import pytest
from msgspec import Raw, json, structs
from tests.support.every_case import every_case

from deputy.core.approval import (
    ApprovalRequest,
    FileDigest,
    PriceBounds,
    backend_parts,
    call_digest,
    call_parts,
    cost_ceiling,
    cost_not_bounded,
    most_cost,
    read_decision,
    resume_request,
    spawn_request,
)
from deputy.core.limits import Budget, exact
from deputy.core.request import Grant
from deputy.core.task import Role, Task

PRICED = PriceBounds(lambda given, taken: exact(0.000003 * given + 0.000015 * taken), 200_000)
UNPRICED = PriceBounds(lambda given, taken: None, 200_000)
FREE = PriceBounds(lambda given, taken: 0)


def task(label: str = "one", prompt: str = "Look around.", **more) -> Task:
    return Task(label=label, prompt=prompt, **more)


def request(*tasks: Task, **more) -> ApprovalRequest:
    fields = {"tool": "Delegate", "model": "acme:m", "cost": "at most $1.00", "concurrency": 2, **more}
    return spawn_request(tasks, **fields)


@pytest.mark.rule("approve.exact")
@pytest.mark.parametrize(
    "changed",
    [
        {"prompt": "Look there."},
        {"tools": ("Read", "Run")},
        {"max_output_tokens": 100},
        {"timeout": 5.0},
        {"return_format": "json"},
        {"without_asking": ("Run",)},
    ],
)
def test_the_digest_of_the_arguments_covers_every_field_of_a_task(changed):
    assert request(task("one", "Look.")).call != request(task("one", **{"prompt": "Look.", **changed})).call


@pytest.mark.rule("approve.exact")
def test_a_call_of_tasks_holds_all_that_each_subagent_gets_and_may_do():
    two = task(
        "two",
        "Write it\ndown.",
        context=("notes.md", "gone.md"),
        model="acme:big",
        tools=("Read", "Run"),
        agent="scribe",
        role=Role(name="scribe", prompt="You write."),
        timeout=90.0,
        budget=Budget(tokens=1000, cost=1.0, requests=3),
        without_asking=("Run",),
        isolation="none",
        return_format="json",
        schema={"type": "object"},
    )
    definition = sha256(json.encode(two.role, order="sorted")).hexdigest()
    asked = request(
        task(), two, files=(FileDigest(path="notes.md", sha256="ab" * 32, bytes=1234),), more=backend_parts("by acme")
    )
    assert [(part.name, part.text) for part in asked.parts] == [
        ("tasks", "one, two"),
        ("task 1 label", "one"),
        ("task 1 prompt", "Look around."),
        ("task 1 model", "acme:m"),
        ("task 1 tools", "read-only"),
        ("task 1 limits", "no time limit, 4,096 tokens of output"),
        ("task 2 label", "two"),
        ("task 2 prompt", "Write it\ndown."),
        (
            "task 2 context",
            f"notes.md (1,234 bytes, SHA-256 {'ab' * 32})\ngone.md: not included: the file cannot be read",
        ),
        ("task 2 model", "acme:big"),
        ("task 2 agent", f"scribe (definition: SHA-256 {definition})"),
        ("task 2 tools", "Read, Run"),
        ("task 2 without asking", "may run commands without asking"),
        ("task 2 works", "in place: changes your files"),
        ("task 2 limits", "at most 90 s, 4,096 tokens of output, 1,000 tokens, 3 requests, at most $1.00"),
        ("task 2 returns", "json"),
        ("task 2 schema", '{"type": "object"}'),
        ("at once", "2 of 2"),
        ("backends", "by acme"),
    ]
    assert (asked.risk, asked.cost, asked.title) == ("high", "at most $1.00", "Start 2 subagents")


@pytest.mark.rule("approve.exact")
def test_an_agent_without_a_definition_is_named() -> None:
    assert ("task 1 agent", "scribe") in [(part.name, part.text) for part in request(task(agent="scribe")).parts]


@pytest.mark.rule("approve.exact")
def test_what_all_tasks_have_in_common_is_shown_once_and_each_prompt_whole() -> None:
    asked = request(task(), task(label="two", timeout=9.0), task(label="three"))
    assert [(part.name, part.text) for part in asked.parts] == [
        ("tasks", "one, two, three"),
        ("all tasks model", "acme:m"),
        ("all tasks tools", "read-only"),
        ("task 1 label", "one"),
        ("task 1 prompt", "Look around."),
        ("task 1 limits", "no time limit, 4,096 tokens of output"),
        ("task 2 label", "two"),
        ("task 2 prompt", "Look around."),
        ("task 2 limits", "at most 9 s, 4,096 tokens of output"),
        ("task 3 label", "three"),
        ("task 3 prompt", "Look around."),
        ("task 3 limits", "no time limit, 4,096 tokens of output"),
        ("at once", "2 of 3"),
    ]


@pytest.mark.rule("approve.exact")
@every_case(
    ("tools", "isolation", "grant", "works"),
    [
        (("Read",), "none", Grant(writable=("docs",)), None),
        (("Write",), "none", Grant(), "in place: changes your files"),
        (("Write",), "none", Grant(writable=("docs",)), "in place: writes only in docs"),
        (("Write",), "none", Grant(writable=()), "in place: writes no file"),
        (("Write", "Run"), "none", Grant(writable=("docs",)), "in place: changes your files"),
        (("Write",), None, Grant(writable=("docs",)), "in a git worktree of its own: writes only in docs"),
        (("Write",), None, Grant(work_folder="docs"), "in a git worktree of its own; documents in docs"),
        (("Write",), None, Grant(), "in a git worktree of its own"),
    ],
)
def test_an_approval_says_where_a_task_writes(tools, isolation, grant, works):
    asked = request(task(tools=tools, isolation=isolation), grant=grant)
    assert {part.name: part.text for part in asked.parts}.get("task 1 works") == works


@pytest.mark.rule("approve.exact")
@every_case(
    ("tools", "risk"),
    [
        (None, "medium"),
        (("Read", "Grep", "Note"), "medium"),
        (("Read", "Delegate"), "medium"),
        (("Write",), "high"),
        (("Run",), "high"),
        (("mcp__x__y",), "high"),
    ],
)
def test_the_risk_follows_from_what_the_subagents_can_do(tools, risk):
    assert request(task(tools=tools)).risk == risk


@pytest.mark.rule("approve.exact")
@every_case(
    "other",
    [
        {"prompt": "Look around. "},
        {"label": "onе"},
        {"tools": ("Read", "Run")},
        {"without_asking": ("Run",), "tools": ("Run",)},
        {"model": "acme:other"},
        {"timeout": 90.0},
        {"role": Role(name="x", prompt="other")},
        {"degradation": "Do it yourself."},
        {"schema": {"type": "array"}},
        {"budget": Budget(tokens=1)},
    ],
)
def test_whatever_differs_in_a_call_differs_in_its_digest(other):
    assert request(task()).digest != request(task(**other)).digest


@pytest.mark.rule("approve.exact")
def test_a_context_file_cannot_pass_for_two():
    sly = "notes.md (9 bytes, SHA-256 00)\nother.md"
    [parts] = [part.text for part in request(task(context=(sly,))).parts if part.name == "task 1 context"]
    assert "\n" not in parts


@pytest.mark.rule("approve.exact")
def test_the_digest_covers_who_asks_and_under_which_key():
    asked = request(task())
    for field in ("key", "session_id", "label", "cost"):
        assert structs.replace(asked, **{field: "other"}).digest != asked.digest
    assert structs.replace(asked, path=("other",)).digest != asked.digest
    assert structs.replace(asked, files=(FileDigest(path="a", sha256="b"),)).digest != asked.digest
    assert json.decode(json.encode(asked), type=ApprovalRequest).digest == asked.digest


@pytest.mark.rule("approve.exact")
def test_arguments_stand_in_the_order_of_the_schema_and_none_is_left_out():
    schema = {"properties": {"command": {}, "path": {}, "seconds": {}}}
    given = {"path": ".", "x\ud800": {"b": [1, "two"], "a": None}, "command": "touch X", "path2": "", "seconds": True}
    assert [(part.name, part.text) for part in call_parts(schema, given)] == [
        ("command", "touch X"),
        ("path", "."),
        ("seconds", "true"),
        ("x\\ud800 (not in the schema)", '{"b": [1, "two"], "a": null}'),
        ("path2 (not in the schema)", ""),
    ]
    assert call_digest(given) == call_digest(dict(reversed(given.items())))
    assert call_digest(given) != call_digest({**given, "path": ". "})


@pytest.mark.rule("approve.exact")
@every_case(
    ("body", "choice"),
    [
        (b'{"choice":"yes","digest":"d"}', "yes"),
        (b'{"choice":"always","digest":"d"}', "always"),
        (b'{"choice":"no","digest":"d"}', "no"),
        (b'{"choice":"yes","digest":"other"}', "no"),
        (b'{"choice":"yes"}', "no"),
        (b'{"choice":"of course","digest":"d"}', "no"),
        (b"true", "no"),
        (b"false", "no"),
        (b'"yes"', "no"),
        (b"not JSON", "no"),
    ],
)
def test_only_a_clear_yes_to_this_digest_approves(body, choice):
    assert read_decision(Raw(body), "d") == choice


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize(
    ("budget", "most"),
    [
        (Budget(cost=2.0), 2.0),
        (Budget(tokens=1000), 0.015),
        (Budget(requests=2), 2 * (0.6 + 0.06144)),
        (Budget(cost=2.0, tokens=1000), 0.015),
        (Budget(), None),
    ],
)
def test_the_most_that_a_task_can_cost_is_what_its_tightest_bound_says(budget, most):
    assert most_cost(task(budget=budget), PRICED) == most


@pytest.mark.rule("delegate.approve")
@every_case(
    ("tasks", "left", "text"),
    [
        ([(Budget(cost=1.0), PRICED)] * 2, None, "at most $2.00"),
        ([(Budget(), PRICED)], None, "unlimited (set a budget to limit it)"),
        ([(Budget(), UNPRICED)], None, "unknown (no price for the model)"),
        ([(Budget(tokens=1000), UNPRICED)], None, "unknown (no price for the model)"),
        (
            [(Budget(cost=1.0), PRICED), (Budget(), PRICED)],
            None,
            "at most $1.00 for some, no limit for 1 (set a budget to limit it)",
        ),
        ([(Budget(), FREE)], None, "free"),
        ([(Budget(cost=0.0142), PRICED)], None, "at most $0.02"),
        ([(Budget(cost=0.00012), PRICED)], None, "at most $0.0002"),
        ([(Budget(cost=0.07), PRICED)], None, "at most $0.07"),
        ([(Budget(), PRICED)], 3.0, "at most $3.00"),
        ([(Budget(cost=1.0), PRICED)], 3.0, "at most $1.00"),
    ],
)
def test_what_is_not_known_is_never_shown_as_nothing(tasks, left, text):
    made = [task(str(number), budget=budget) for number, (budget, _) in enumerate(tasks)]
    assert cost_ceiling(made, lambda one: tasks[int(one.label)][1], left).text == text


@pytest.mark.rule("approve.exact")
def test_a_request_to_resume_holds_all_that_the_run_may_then_do():
    capped = Budget(cost=0.5, requests=3)

    def resumed(message="Go on.", model="acme:m", budget=capped, tools=("Run", "Read")):
        return resume_request("scout", message, model=model, budget=budget, tools=tools)

    assert [(part.name, part.text) for part in resumed().parts] == [
        ("run", "scout"),
        ("message", "Go on."),
        ("model", "acme:m"),
        ("budget", "$0.50, 3 requests"),
        ("tools", "Read, Run"),
    ]
    others = (
        resumed(message=None, tools=()),
        resumed(message="Stop."),
        resumed(model="b"),
        resumed(budget=Budget()),
        resumed(tools=("Read",)),
    )
    assert [part.text for part in others[0].parts if part.name in ("message", "tools")] == [
        "(none: the run continues where it stopped)",
        "none",
    ]
    assert [part.name for part in others[3].parts] == ["run", "message", "model", "tools"]
    assert len({one.call for one in (resumed(), *others)}) == 6
    assert "cap `tokens` or `requests` instead" in cost_not_bounded("acme:m")


def test_a_request_knows_the_digest_of_each_file():
    asked = request(task(context=("a.md",)))
    files = (FileDigest(path="a.md", sha256="1"), FileDigest(path="b.md", sha256="2"))
    assert structs.replace(asked, files=files).digests == {"a.md": "1", "b.md": "2"}
