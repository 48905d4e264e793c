"""Approvals: what is asked, what a recorded decision means on replay, and what an outcome says of refusals."""

import asyncio
from typing import Any

import pytest
from msgspec import structs

from deputy.core.approval import ApprovalRequest
from deputy.core.events import QuestionAsked
from deputy.core.progress import Progress
from deputy.core.request import Lineage
from deputy.core.state import State
from deputy.engine.approvals import ask_person, is_refused_unasked, policy_for, warn_not_granted, warn_refused
from deputy.engine.history import History
from deputy.engine.ports.durable import ApprovalVerdict

WANTED = ApprovalRequest(tool="Run", title="Use Run", parts=(), risk="high", call="abc")


class RecordedRun:
    """A run with records, and a person who answers with these choices in turn."""

    run = "sess_1_aaaaaa"
    lineage = Lineage.root(run)

    def __init__(self, *choices: Any, records: tuple[str, ...] = (), label: str = "", round: int = 0) -> None:
        self.state = State(label=label, command="run", round=round)
        self.records = set(records)
        self.questions: dict[str, QuestionAsked] = {}
        self.choices = list(choices)
        self.asked: list[str] = []

    def has_record(self, key: str) -> bool:
        return key in self.records

    def recorded_question(self, key: str) -> QuestionAsked | None:
        return self.questions.get(key)

    async def ask(
        self, key: str, question: ApprovalRequest, *, approval_timeout_seconds: float | None = None
    ) -> ApprovalVerdict:
        self.asked.append(key)
        self.questions[key] = QuestionAsked(topic="approval", request=question, digest=question.digest)
        return ApprovalVerdict(self.choices.pop(0), question)


def asked(run: Any, wanted: Any = WANTED, approval: Any = "ask") -> tuple[ApprovalVerdict, list[Progress]]:
    emitted: list[Progress] = []
    verdict = asyncio.run(ask_person(run, "call", wanted, begun="call.begun", emit=emitted.append, approval=approval))
    assert not run.choices
    return verdict, emitted


@pytest.mark.rule("approve.exact")
def test_a_replay_decides_as_was_decided_before_and_a_new_call_as_the_policy_says():
    def policy(run: Any) -> str:
        return policy_for(run, "call", "ask", begun="call.begun", ended=("call", "call.refused"))

    question = RecordedRun(records=("call.begun", "call"))
    question.questions["call"] = QuestionAsked(topic="approval")
    assert policy(question) == "ask"
    assert policy(RecordedRun(records=("call.begun", "call"))) == "granted"
    assert policy(RecordedRun(records=("call.refused",))) == "refuse"
    assert policy(RecordedRun(records=("other",))) == "ask"


@pytest.mark.rule("approve.exact")
def test_a_person_reads_who_asks_and_under_which_key():
    verdict, (progress,) = asked(RecordedRun("yes"))
    assert verdict.request == structs.replace(
        WANTED, key="call", session_id="sess_1_aaaaaa", path=("orchestrator",), label="run"
    )
    assert (progress.event, progress.label) == ("waiting", "run")
    verdict, (progress,) = asked(RecordedRun("no", label="scout", round=2))
    assert (verdict.request.key, verdict.request.label, progress.label) == ("round:2/call", "scout", "scout")
    assert not verdict.is_yes


@pytest.mark.rule("approve.exact")
def test_a_call_that_changed_while_a_person_decided_is_asked_again():
    def changing(*calls: str) -> Any:
        left = list(calls)

        async def wanted() -> ApprovalRequest:
            return structs.replace(WANTED, call=left.pop(0), cost=f"{len(left)}")

        return wanted

    run = RecordedRun("yes", "yes")
    verdict, _ = asked(run, changing("a", "b", "c", "c"))
    assert (run.asked, verdict.request.call) == (["call", "call.2"], "c")
    run = RecordedRun("yes", "no")
    assert not asked(run, changing("a", "b", "b"))[0].is_yes
    assert run.asked == ["call", "call.2"]
    # A policy that approves all calls, and a call that has begun, stand.
    assert asked(RecordedRun("yes"), changing("a", "b"), approval="granted")[0].request.call == "a"
    assert asked(RecordedRun("yes", records=("call.begun",)), changing("a"))[0].request.call == "a"


@pytest.mark.rule("approve.exact")
def test_a_replay_asks_the_recorded_requests_again_in_their_order():
    run = RecordedRun("yes", "yes")
    first, second = structs.replace(WANTED, call="old"), structs.replace(WANTED, call="new", key="call.2")
    second = structs.replace(second, session_id=run.run, path=("orchestrator",), label="run")
    run.questions = {
        "call": QuestionAsked(topic="approval", request=first, digest=first.digest),
        "call.2": QuestionAsked(topic="approval", request=second, digest=second.digest),
    }
    verdict, _ = asked(run, structs.replace(WANTED, call="new"))
    assert (run.asked, verdict.request) == (["call", "call.2"], second)


def test_a_tool_that_is_not_granted_is_named_once_with_what_grants_it():
    history = History("")
    warn_not_granted(history, "Run", is_command=False)
    warn_not_granted(history, "Run", is_command=False)
    warn_not_granted(history, "plan", is_command=True)
    warn_not_granted(None, "Run", is_command=False)
    assert history.warnings == (
        "Run was refused: it is not among the tools of the task; --allow Run, or the `tools` of the task, grants it.",
        "plan was refused: it is not among the tools of the task.",
    )


def test_other_warnings_do_not_crowd_out_refusals_and_refusals_are_bounded():
    history = History("")
    history.warnings = tuple(f"warning {number}" for number in range(30))
    warn_refused(None, "Run")
    for number in range(30):
        warn_refused(history, f"Run {number}")
        warn_refused(history, f"Run {number}")
    refused = [warning for warning in history.warnings if is_refused_unasked(warning)]
    assert len(refused) == len(set(refused)) == 20
    assert refused[0].startswith("Run 0 was refused")
