"""Commands with scripted agents: every way that a return can be, and what becomes of the task."""

import asyncio
import json
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitResult
from tests.project_tasks.conftest import AT, ERROR, Project, form_of, returned, write
from tests.support.scripts import call, talk, turn

from deputy.core.approval import Decision, Question
from deputy.core.errors import UsageError
from deputy.core.events import Record, Requested
from deputy.core.fallback import Routing
from deputy.core.outcome import Completed, Rejected
from deputy.core.project_task import abandoned, reopened
from deputy.core.request import READ_ONLY_TOOLS
from deputy.engine.history import remembered
from deputy.interfaces.mcp.server import make_server
from deputy.interfaces.mcp.server_state import Options, ServerState
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.transcript import transcribe
from deputy.project_tasks.orchestrator import CommandRequest, CommandResult, orchestrate

FOLDER = ".deputy/work/001_cache_the_index"
REPORT = f"{FOLDER}/report.md"
FILE = {"type": "file", "path": REPORT}


def expected(status: str, summary: str, **more: Any) -> dict[str, Any]:
    """The JSON of an outcome, whole."""
    return {
        "session_id": "SESSION",
        "status": status,
        "summary": summary,
        "report": "",
        "notes": [],
        "artifacts": [],
        "branch": None,
        "errors": [],
        "warnings": [],
        "next_steps": "",
        "usage": used(2),
        "backend": "native",
        "fallbacks": [],
        "isolated": True,
        "delegation_depth": 1,
        "delegation_path": ["orchestrator", "research", "researcher"],
        **more,
    }


def used(requests: int) -> dict[str, Any]:
    return {
        "input": 100 * requests,
        "output": 20 * requests,
        "cached": 0,
        "requests": requests,
        "cost": None,
        "estimated": False,
    }


def invalid(*problems: str, repairs: str = "one repair", agent: str = "researcher") -> tuple[str, dict[str, Any]]:
    message = f"The return of the agent {agent!r} breaks the contract after {repairs}: {'; '.join(problems)}."
    return message, {
        "type": "validation",
        "code": "INVALID_RETURN",
        "message": message,
        "recoverable": True,
        "recommendation": (
            f"Read the original text, correct the agent {agent!r}, and run it again; nothing was marked as done."
        ),
    }


@pytest.mark.rule("commands")
@pytest.mark.rule("commands.state")
def test_a_completed_research_with_its_report_moves_the_task_and_is_linked_from_it(project: Project):
    project.add(text="It is slow.", language="python")
    ended = project.order("research", 1, turn("", write(REPORT)), turn(returned("completed", REPORT)))
    report = returned("completed", REPORT).replace("{session_id}", "SESSION")
    artifacts = [{"type": "research", "path": REPORT}]
    assert form_of(ended) == expected("completed", "It is done.", report=report, artifacts=artifacts)
    task = project.task()
    assert (task.status, task.artifacts, task.work) == ("researched", (REPORT,), None)
    assert [(entry.what, entry.outcome) for entry in task.history] == [
        ("added", ""),
        ("research began", ""),
        ("research ended", "completed"),
    ]
    assert (project.folder / REPORT).read_text() == "found\n"


@pytest.mark.rule("commands")
def test_the_prompt_is_the_task_and_the_form_of_the_return(project: Project):
    project.add(text="It is slow.", language="python", complexity="high")
    project.order("research", 1, turn("", write(REPORT)), turn(returned("completed", REPORT)))
    transcript = next((project.home / "subagent").glob("*.transcript.json"))
    output = json.loads(transcript.read_text())["messages"][0]["content"]
    assert output.startswith(f"Task: 1\n\nCache the index\n\nIt is slow.\n\nComplexity: high\n\nWork folder: {FOLDER} ")
    assert "## The form of your answer" in output
    assert "metadata" not in output


@pytest.mark.rule("contract.evidence")
@pytest.mark.parametrize(
    ("calls", "path", "problem", "more"),
    [
        ([], "missing.md", "Artifact does not exist: missing.md", {"notes": ["seen"]}),
        ([write(REPORT, "")], REPORT, f"Artifact is empty: {REPORT}", {"artifacts": [FILE]}),
        ([], "old.md", "Artifact has not changed since before the delegation began: old.md", {"notes": ["seen"]}),
    ],
)
def test_a_completed_research_without_its_evidence_is_a_phantom_and_fails(
    project: Project, calls: list[dict[str, Any]], path: str, problem: str, more: dict[str, Any]
):
    import os

    project.add()
    (project.folder / "old.md").write_text("old\n")
    os.utime(project.folder / "old.md", (1, 1))
    said = returned("completed", path)
    first = turn("", *(calls or [call("Note", content="seen")]))
    ended = project.order("research", 1, first, turn(said), turn(said))
    message, error = invalid(problem)
    report, usage = said.replace("{session_id}", "SESSION"), used(3)
    assert form_of(ended) == expected("failed", message, report=report, errors=[error], usage=usage, **more)
    assert (project.task().status, project.task().work) == ("not started", None)


@pytest.mark.rule("contract.evidence")
def test_a_completed_research_without_any_artifact_is_a_phantom(project: Project):
    project.add()
    ended = project.order("research", 1, turn(returned()), turn(returned()))
    message, error = invalid("phantom research: completed without any artifact")
    report = returned().replace("{session_id}", "SESSION")
    assert form_of(ended) == expected("failed", message, report=report, errors=[error])
    assert project.task().status == "not started"


def test_an_artifact_outside_of_the_workspace_fails(project: Project):
    project.add()
    (project.root / "outside.md").write_text("x")
    said = returned("completed", "../outside.md")
    ended = project.order("research", 1, turn(said), turn(said))
    message, error = invalid("Artifact path outside the workspace: ../outside.md (it leads out of it)")
    report = said.replace("{session_id}", "SESSION")
    assert form_of(ended) == expected("failed", message, report=report, errors=[error])
    assert project.task().status == "not started"


@pytest.mark.rule("honest.calls")
def test_a_continuation_in_a_command_without_subtask_fails_after_it_was_sent_back(project: Project):
    project.add()
    asks = '{"content": "", "status": "CONTINUATION", "notes": {"subtask_request": {"type": "a", "description": "b"}}}'
    ended = project.order("research", 1, turn(asks), turn(asks))
    assert (ended.outcome.status, ended.outcome.errors[0].code) == ("failed", "INVALID_REQUEST")
    assert project.task().status == "not started"


@pytest.mark.rule("contract.repair")
def test_plain_text_is_sent_back_once_and_what_comes_then_counts(project: Project):
    project.add()
    said = returned("completed", REPORT)
    ended = project.order("research", 1, turn("", write(REPORT)), turn("I am done."), turn(said))
    report = said.replace("{session_id}", "SESSION")
    artifacts = [{"type": "research", "path": REPORT}]
    assert form_of(ended) == expected("completed", "It is done.", report=report, artifacts=artifacts, usage=used(3))
    assert project.task().status == "researched"


@pytest.mark.rule("contract.repair")
@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("Still done.", "Return is not valid JSON"),
        (returned("completed", metadata={"session_id": "x", "agent_type": "a"}), "Session ID mismatch: x != SESSION"),
        (returned("completed", summary="s" * 501), "Summary too long (max 500 chars)"),
        (returned("finished"), "Invalid status: finished"),
    ],
)
def test_a_return_that_breaks_the_contract_twice_fails_with_the_original_kept(
    project: Project, said: str, problem: str
):
    project.add()
    ended = project.order("research", 1, turn(said), turn(said))
    message, error = invalid(problem)
    report = said.replace("{session_id}", "SESSION")
    assert form_of(ended) == expected("failed", message, report=report, errors=[error])
    task = project.task()
    assert (task.status, task.work, task.history[-1].outcome) == ("not started", None, "failed")


@pytest.mark.rule("commands.state")
def test_a_partial_return_leaves_the_task_in_progress(project: Project):
    project.add()
    ended = project.order("plan", 1, turn("", write(REPORT)), turn(returned("partial", REPORT)))
    assert form_of(ended) == expected(
        "partial",
        "It is done.",
        report=returned("partial", REPORT).replace("{session_id}", "SESSION"),
        artifacts=[{"type": "research", "path": REPORT}],
        errors=[ERROR],
        delegation_path=["orchestrator", "plan", "planner"],
    )
    assert (project.task().status, project.task().artifacts) == ("in progress", (REPORT,))


@pytest.mark.rule("commands.state")
def test_a_question_blocks_the_task_and_the_answer_goes_on_with_the_same_session(project: Project):
    project.add()
    asks = turn("", call("Ask", question="Red or blue?"))
    ended = project.order("research", 1, turn("", write(REPORT)), asks, turn(returned("completed", REPORT)))
    assert form_of(ended) == expected(
        "blocked",
        "It asks: Red or blue?",
        report="Red or blue?",
        question="Red or blue?",
        artifacts=[FILE],
        errors=[
            {
                "type": "question",
                "code": "AWAITING_HUMAN_INPUT",
                "message": "Red or blue?",
                "recoverable": True,
                "recommendation": 'Answer it: deputy resume SESSION --answer "…"',
            }
        ],
        next_steps='deputy resume SESSION --answer "…"',
    )
    assert (project.task().status, project.task().question) == ("blocked", "Red or blue?")
    outcome = project.resume(ended.outcome.session_id, "Red.")
    assert isinstance(outcome, Completed)
    assert outcome.session_id == ended.outcome.session_id
    assert (project.task().status, project.task().question) == ("researched", "")


@pytest.mark.rule("commands.state")
def test_an_answer_that_the_state_of_the_task_refused_is_not_given_under_a_later_one(project: Project):
    project.add()
    asks = turn("", call("Ask", question="Red or blue?"))
    ended = project.order("research", 1, turn("", write(REPORT)), asks, turn(returned("completed", REPORT)))
    session_id = ended.outcome.session_id
    project.tasks.change(1, lambda task: abandoned(task, AT))
    assert project.resume(session_id, "Blue.").status == "blocked"
    project.tasks.change(1, lambda task: reopened(task, AT))
    assert project.resume(session_id, "Red.").status == "completed"
    reader = SqliteQueries.open(project.home)
    assert reader is not None
    with reader:
        transcript = transcribe(reader.records(session_id))
        heard = remembered("", [one for one in reader.records(session_id) if isinstance(one, Record)])
    assert transcript is not None
    assert "Red." in [one.content for one in transcript.messages]
    assert "Blue." not in [one.content for one in transcript.messages]
    results = [one for message in heard.conversation.messages for one in getattr(message, "results", ())]
    assert "Red." in [result.content for result in results]
    assert "Blue." not in str(heard.conversation.messages)


@pytest.mark.rule("time.partial")
@pytest.mark.rule("commands.state")
def test_at_a_timeout_the_files_are_found_and_resume_goes_on_with_them(project: Project):
    project.add()
    hangs = turn("", write(f"{FOLDER}/more.md"), delay_seconds=600.0)
    ended = project.order("research", 1, turn("", write(REPORT)), hangs, turn("Out of time."), seconds=1.0)
    form, session_id = form_of(ended), ended.outcome.session_id
    error = {
        "type": "timeout",
        "code": "TIMEOUT",
        "message": "The time limit of 1 s was nearly reached.",
        "recoverable": True,
        "recommendation": "Use what was found, or continue with: deputy resume SESSION",
    }
    assert form == expected(
        "partial",
        "Partial: The time limit of 1 s was nearly reached.",
        artifacts=[FILE],
        errors=[error],
        next_steps="deputy resume SESSION",
        usage=used(1),
    )
    assert (project.task().status, project.task().artifacts) == ("in progress", (REPORT,))

    project.script(talk(*[turn(returned("completed", REPORT))] * 4))
    outcome = project.resume(session_id)
    assert (outcome.status, outcome.session_id) == ("completed", session_id)
    assert project.task().status == "researched"


@pytest.mark.rule("time.wall")
def test_asking_for_more_time_than_the_maximum_is_an_error_that_names_it(project: Project):
    project.add()
    with pytest.raises(UsageError, match="research takes more than 0 and at most 7200 seconds"):
        project.order("research", 1, seconds=7201.0)
    assert project.task().history[-1].what == "added"


@pytest.mark.rule("commands.state")
def test_what_the_table_of_moves_forbids_is_rejected_and_nothing_is_spent(project: Project):
    project.add()
    ended = project.order("revise", 1)
    assert isinstance(ended.outcome, Rejected)
    assert ended.outcome.errors[0].code == "TASK_STATE"
    assert ended.outcome.usage.requests == 0
    assert project.task().history[-1].what == "added"


@pytest.mark.rule("commands")
def test_a_direct_command_may_have_no_words_at_all(project: Project):
    ended = project.order("meta", None, turn(returned()))
    form = form_of(ended)
    assert (form["status"], form["delegation_path"]) == ("completed", ["orchestrator", "meta", "task-executor"])
    assert ended.task is None


@pytest.mark.rule("commands")
def test_the_agent_is_chosen_by_the_language_of_the_task_and_a_project_has_its_own(project: Project):
    project.add(language="Lean")
    (project.folder / "deputy.toml").write_text('[commands.research]\nagents = {lean = "prover"}\n')
    agents = project.root / "person/.deputy/agents"
    agents.mkdir(parents=True)
    (agents / "prover.md").write_text("---\nname: prover\ntools: Read, Write\nisolation: none\n---\nYou prove.\n")
    ended = project.order("research", 1, turn("", write(REPORT)), turn(returned("completed", REPORT)))
    assert ended.outcome.lineage.names == ("orchestrator", "research", "prover")
    assert project.task().status == "researched"


def test_research_writes_into_its_work_folder_and_nowhere_else(project: Project):
    project.add()
    project.order("research", 1, turn("", write("code.py"), write(REPORT)), turn(returned("completed", REPORT)))
    assert not (project.folder / "code.py").exists()
    transcript = next((project.home / "subagent").glob("*.transcript.json"))
    assert f"code.py must not be changed; write only beneath: {FOLDER}." in transcript.read_text()


def test_an_agent_in_a_worktree_has_the_work_folder_of_the_main_tree(project: Project):
    project.add()
    notes = f"{FOLDER}/notes.md"
    ended = project.order(
        "implement",
        1,
        turn("", write("code.py"), write(notes)),
        turn("", call("Read", path=notes)),
        turn(returned("completed", "code.py", notes)),
    )
    form = form_of(ended)
    assert form["status"] == "completed"
    assert {artifact["path"] for artifact in form["artifacts"]} == {"code.py", notes}
    assert form["branch"]
    assert not (project.folder / "code.py").exists()
    assert (project.folder / notes).read_text() == "found\n"
    assert (project.task().status, project.task().artifacts) == ("completed", ("code.py", notes))


def test_a_file_of_tasks_that_broke_meanwhile_does_not_lose_what_was_done(project: Project):
    project.add()
    broken = call("Run", command=f"echo '<<<<<<<' > {project.tasks.path}")
    ended = project.order("implement", 1, turn("", write("code.py"), broken), turn(returned("completed", "code.py")))
    assert ended.outcome.status == "completed"
    assert "merge conflict on line 1" in ended.outcome.warnings[-1]


def test_the_model_that_is_named_goes_before_that_of_the_definition(project: Project):
    project.add()
    agents = project.root / "person/.deputy/agents"
    agents.mkdir(parents=True)
    (agents / "researcher.md").write_text("---\nname: researcher\nmodel: haiku\ntools: Read, Write\n---\nYou look.\n")
    ended = project.order("research", 1, turn("", write(REPORT)), turn(returned("completed", REPORT)))
    assert (ended.outcome.status, ended.outcome.model.partition(":")[0]) == ("completed", "script")


@pytest.mark.rule("fallback")
def test_a_command_falls_back_only_as_the_settings_allow(project: Project):
    project.add()
    (project.folder / "deputy.toml").write_text("[routing]\nfallback = false\ninline = false\n")
    ended = project.order("research", 1, turn("", write(REPORT)), turn(returned("completed", REPORT)))
    with SqliteQueries.open(project.home) as reader:
        requested = next(one.event for one in reader.records(ended.outcome.session_id) if isinstance(one, Record))
    assert isinstance(requested, Requested)
    assert requested.options.routing == Routing(falls_back=False, inline="never")


@pytest.mark.rule("commands.state")
@pytest.mark.parametrize("is_reused", [False, True], ids=["gone", "its number given to another"])
def test_a_session_whose_task_is_gone_settles_no_other(project: Project, is_reused: bool):
    project.add()
    ended = project.order("research", 1, turn("", write(REPORT)), turn(returned("partial", REPORT)))
    project.tasks.remove(1)
    other = project.add("Something else")
    assert other.number == 2
    if is_reused:
        file = project.tasks.path
        file.write_text(file.read_text().replace('"number": 2', '"number": 1'))
    project.script(talk(*[turn(returned("completed", REPORT))] * 4))
    outcome = project.resume(ended.outcome.session_id)
    assert (outcome.status, outcome.usage) == ("partial", ended.outcome.usage)
    reason = f"session {outcome.session_id} was about another task" if is_reused else "has no task of this number"
    assert outcome.warnings[-1].startswith("Not started: ")
    assert reason in outcome.warnings[-1]
    (task,) = project.tasks.tasks()
    assert (task.title, task.status, task.artifacts, len(task.history)) == ("Something else", "not started", (), 1)


@pytest.mark.rule("commands.state")
def test_resuming_an_old_session_takes_its_task_no_step_back(project: Project):
    project.add()
    old = project.order("research", 1, turn("", write(REPORT)), turn(returned("partial", REPORT)))
    project.order("research", 1, turn("", write(REPORT)), turn(returned("completed", REPORT)))
    assert project.task().status == "researched"
    project.script(talk(*[turn(returned("partial", REPORT))] * 4))
    assert project.resume(old.outcome.session_id).status == "partial"
    assert (project.task().status, project.task().work) == ("researched", None)


UNCHANGED = "Artifact has not changed since before the delegation began"
NO_WORK = "Artifact belongs to git or Deputy"


@pytest.mark.rule("contract.evidence")
@pytest.mark.parametrize(
    ("calls", "path", "problem"),
    [
        ([], "src/a.py", UNCHANGED),
        ([write("src/a.py", "old\n")], "src/a.py", UNCHANGED),
        ([write("other.py")], "src/a.py", UNCHANGED),
        ([call("Run", command="git rm -q --cached src/a.py")], "src/a.py", UNCHANGED),
        ([], "src", UNCHANGED),
        ([write("src/empty.py", "")], "src", UNCHANGED),
        ([], ".", NO_WORK),
        ([write("src/b.py")], ".", NO_WORK),
        ([], ".git", NO_WORK),
        ([], ".deputy/tasks.json", NO_WORK),
    ],
)
def test_what_a_worktree_had_from_the_beginning_is_no_evidence(
    project: Project, calls: list[dict[str, Any]], path: str, problem: str
):
    project.add()
    project.commit("src/a.py", "old\n")
    said = returned("completed", path)
    first = [turn("", *calls)] if calls else []
    ended = project.order("implement", 1, *first, turn(said), turn(said))
    message, _ = invalid(f"{problem}: {path}", agent="task-executor")
    assert (ended.outcome.status, ended.outcome.errors[0].message) == ("failed", message)
    assert project.task().status == "not started"


@pytest.mark.rule("contract.evidence")
@pytest.mark.parametrize(
    ("calls", "path"),
    [
        ([write("src/a.py", "new\n")], "src/a.py"),
        ([write("src/new [1].py")], "src/new [1].py"),
        ([write("src/deep/new.py")], "src"),
        ([call("Run", command="git mv src/a.py src/b.py")], "src/b.py"),
        ([call("Run", command="echo x >> src/a.py; git -c user.name=x -c user.email=x@x commit -qam x")], "src/a.py"),
    ],
)
def test_what_differs_from_the_beginning_of_a_worktree_is_evidence(
    project: Project, calls: list[dict[str, Any]], path: str
):
    project.add()
    project.commit("src/a.py", "old\n")
    said = returned("completed", path)
    ended = project.order("implement", 1, turn("", *calls), turn(said), turn(said))
    assert (ended.outcome.status, ended.outcome.errors) == ("completed", ())
    assert project.task().status == "completed"


@pytest.mark.rule("contract.evidence")
@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (".deputy/tasks.json", NO_WORK),
        (".deputy/tasks.lock", NO_WORK),
        (".deputy", NO_WORK),
        (".deputy/work", "Artifact is empty"),
        (FOLDER, "Artifact is empty"),
        (".", NO_WORK),
        ("to_tasks", NO_WORK),
    ],
)
def test_what_deputy_keeps_for_itself_is_no_evidence(project: Project, path: str, problem: str):
    project.add()
    (project.folder / "to_tasks").symlink_to(".deputy/tasks.json")
    said = returned("completed", path)
    ended = project.order("research", 1, turn(said), turn(said))
    message, _ = invalid(f"{problem}: {path}")
    assert (ended.outcome.status, ended.outcome.errors[0].message) == ("failed", message)
    assert project.task().status == "not started"


@pytest.mark.rule("contract.evidence")
@pytest.mark.parametrize("path", [FOLDER, ".deputy/work"])
def test_a_directory_is_evidence_where_a_file_in_it_is(project: Project, path: str):
    project.add()
    said = returned("completed", path)
    ended = project.order("research", 1, turn("", write(REPORT)), turn(said), turn(said))
    assert ended.outcome.status == "completed"


IGNORED = "build/only.py"


@pytest.mark.rule("contract.evidence")
def test_work_in_ignored_files_is_on_the_branch(project: Project):
    project.add()
    project.commit(".gitignore", "build/\n")
    said = returned("completed", IGNORED)
    ended = project.order("implement", 1, turn("", write(IGNORED)), turn(said), turn(said))
    assert (ended.outcome.status, ended.outcome.warnings) == ("completed", ())
    assert project.on_branch(ended.outcome.branch, IGNORED) == "found\n"
    assert project.task().status == "completed"


@pytest.mark.rule("time.partial")
def test_work_in_ignored_files_outlives_the_time_limit_and_resume_finds_it(project: Project):
    project.add()
    project.commit(".gitignore", "build/\n")
    hangs = turn("", write("more.py"), delay_seconds=600.0)
    ended = project.order("implement", 1, turn("", write(IGNORED)), hangs, turn("Out of time."), seconds=1.0)
    assert [artifact.path for artifact in ended.outcome.artifacts] == [IGNORED]
    assert project.on_branch(ended.outcome.branch, IGNORED) == "found\n"
    project.script(talk(*[turn(returned("completed", IGNORED))] * 4))
    assert project.resume(ended.outcome.session_id).status == "completed"


def test_ignored_files_that_are_not_named_stay_where_they_are_and_the_outcome_says_where(project: Project):
    project.add()
    project.commit(".gitignore", "build/\n")
    said = returned("completed", "build")
    ended = project.order("implement", 1, turn("", write(IGNORED)), turn(said), turn(said))
    assert ended.outcome.status == "completed"
    (place,) = (project.home / "worktrees").glob("*/")
    warning = f"The new files are ignored by git and in no commit; they are in {place}."
    assert ended.outcome.warnings == (warning,)
    assert (place / IGNORED).read_text() == "found\n"


# --- approval ---------------------------------------------------------------------------------------------------------


@pytest.mark.rule("approve.exact")
@pytest.mark.rule("approve.who")
@pytest.mark.parametrize("choice", ["yes", "no"])
def test_the_answerer_of_the_library_decides_about_a_task_command(project: Project, choice: str) -> None:
    project.add(text="It is slow.")
    asked: list[Question] = []

    async def answer(question: Question) -> Decision:
        asked.append(question)
        assert project.task().work is None
        return Decision(choice=choice, digest=question.digest)

    async def go() -> CommandResult:
        model = project.script(talk(turn("", write(REPORT)), turn(returned("completed", REPORT))))
        async with project.deputy(model, answer=answer) as deputy:
            session_id = await deputy.new_session_id()
            request = CommandRequest(session_id=session_id, command="research", number=1)
            return await orchestrate(request, deputy.command_context())

    ended = asyncio.run(go())
    [question] = asked
    assert question.request is not None
    shown = {part.name: part.text for part in question.request.parts}
    assert shown["task 1 prompt"].startswith("Task: 1\n\nCache the index\n\nIt is slow.\n\nWork folder: ")
    assert (ended.outcome.status, project.task().status) == (
        ("completed", "researched") if choice == "yes" else ("rejected", "not started")
    )
    assert (project.folder / REPORT).exists() == (choice == "yes")


@pytest.mark.rule("approve.exact")
@pytest.mark.rule("approve.who")
@pytest.mark.parametrize("choice", ["yes", "no"])
def test_the_user_of_an_mcp_client_decides_whether_a_task_command_goes_on(project: Project, choice: str) -> None:
    project.add()
    turns = (turn("No return."), turn("Again none."), turn("", write(REPORT)), turn(returned("completed", REPORT)))
    failed = project.order("research", 1, *turns)
    assert (failed.outcome.status, project.task().status) == ("failed", "not started")
    seen: list[str] = []

    async def answer(_: Any, params: Any) -> ElicitResult:
        seen.append(params.message)
        return ElicitResult(action="accept", content={"choice": choice})

    async def go() -> dict[str, Any]:
        options = Options(workspace=project.folder, home=project.home, allow=READ_ONLY_TOOLS | {"Write", "Delegate"})
        run = {"session_id": failed.outcome.session_id}
        async with ServerState(options) as server, Client(make_server(server), elicitation_callback=answer) as client:
            await client.call_tool("DelegateResume", {**run, "answer": "Return it this time."})
            return (await client.call_tool("DelegateResult", {**run, "wait": 60})).structured_content

    ended = asyncio.run(go())
    assert len(seen) == 1
    assert {"  run: research-1", "  message: Return it this time."} <= set(seen[0].splitlines())
    assert project.task().status == ("researched" if choice == "yes" else "not started"), ended
    assert (project.folder / REPORT).exists() == (choice == "yes")
