"""The scenarios are data that names only what the gauntlet has."""

from __future__ import annotations

import importlib

from gauntlet.provider import Trial, fault_of, filled
from gauntlet.run import SUBJECTS
from gauntlet.scenario import Limits, load
from gauntlet.verdict import Observed, count
from tests.support.every_case import every_case

SCENARIOS = load()
NOTHING = Observed(log=[], output="", started=0.0, ended=1.0)


def test_there_are_at_least_24_with_counters_that_exist():
    assert len(SCENARIOS) >= 24
    for scenario in SCENARIOS.values():
        assert scenario.most
        assert all(count(name, scenario, NOTHING) >= 0 for name in scenario.most)


@every_case("name", SCENARIOS)
def test_its_faults_exist_and_its_children_have_scripts(name):
    scenario = SCENARIOS[name]
    turns = [turn for child in scenario.child.values() for turn in child] + list(scenario.all)
    assert all(callable(fault_of(turn.fault, "anthropic", [b"x"] * 9)) for turn in turns if turn.fault)
    delegated = {child for turn in turns for child in turn.delegate}
    assert set(scenario.child) <= set(scenario.children) | delegated


@every_case("name", SUBJECTS)
def test_a_subject_lacks_only_what_scenarios_ask_for(name):
    subject = importlib.import_module(f"gauntlet.subjects.{name}")
    asked = {need for one in SCENARIOS.values() for need in (one.name, *one.needs)} | set(Limits.__struct_fields__)
    assert set(subject.LACKS) <= asked
    assert all(subject.LACKS.values())


def test_children_without_a_fault_are_expected():
    assert SCENARIOS["hang"].expected == ("a", "c")
    assert SCENARIOS["cut-in-a-tool-call"].expected == ("a", "b", "c")
    assert SCENARIOS["output-limit"].expected == ("a", "c")
    assert len(SCENARIOS["thousand"].expected) == 1000


def test_arguments_are_filled_for_one_child_or_for_a_batch():
    task = {"label": "{label}", "prompt": "Do {prompt}"}
    group = [{"label": "a", "prompt": "x"}, {"label": "b", "prompt": "y"}]
    assert filled(task, group[0]) == {"label": "a", "prompt": "Do x"}
    wanted = [{"label": "a", "prompt": "Do x"}, {"label": "b", "prompt": "Do y"}]
    assert filled({"tasks": [task], "at_once": 4}, group[0], group) == {"tasks": wanted, "at_once": 4}


def test_a_parent_delegates_in_batches_of_what_one_call_takes():
    dialect = {"delegate": {"name": "Delegate", "batch": 8, "arguments": {"tasks": [{"label": "{label}"}]}}}
    trial = Trial(SCENARIOS["too-many"], dialect)
    calls = trial.delegate(SCENARIOS["too-many"].names)
    assert [len(call.arguments["tasks"]) for call in calls] == [8, 8, 8]
