import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.command_house import entries

GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost")

REPORT = ".deputy/work/{folder}/report.md"


def writing(folder: str) -> dict:
    return {"name": "Write", "arguments": {"path": REPORT.format(folder=folder), "content": "found"}}


def returned(*paths: str, status: str = "completed", **more: object) -> dict:
    form = {
        "status": status,
        "summary": "It is done.",
        "artifacts": [{"type": "research", "path": path} for path in paths],
        "metadata": {"session_id": "{session_id}", "agent_type": "researcher"},
        **more,
    }
    return {"text": json.dumps(form)}


def researching(number: int, folder: str) -> dict:
    path = REPORT.format(folder=folder)
    return {"when": f"Task: {number}\n", "turns": [{"calls": [writing(folder)]}, returned(path)]}


@pytest.fixture
def tasks(house, tmp_path):
    house.env["HOME"] = str(tmp_path / "person")
    for title in ("One", "Two", "Three"):
        assert house.run("task", "add", title).returncode == 0
    return house


def statuses(house) -> list[str]:
    listed = json.loads(house.run("task", "list", "--all", "--json").stdout)["tasks"]
    return [task.get("status", "not started") for task in listed]


@pytest.mark.rule("commands")
def test_a_range_is_worked_on_one_after_the_other(tasks):
    model = tasks.script("range", researching(1, "001_one"), researching(2, "002_two"))
    run = tasks.run("research", "1-2", "--yes", "--json", "--model", model)
    outcomes = json.loads(run.stdout)["outcomes"]
    assert run.returncode == 0, run.stderr
    assert [(one["status"], one["task"]["status"]) for one in outcomes] == [("completed", "researched")] * 2
    assert statuses(tasks) == ["researched", "researched", "not started"]
    assert outcomes[0]["task"] == {
        "number": 1,
        "title": "One",
        "status": "researched",
        "question": "",
        "artifacts": [".deputy/work/001_one/report.md"],
    }


@pytest.mark.rule("delegate.view")
def test_what_happens_in_a_range_is_shown_once(tasks):
    model = tasks.script("shown", researching(1, "001_one"), researching(2, "002_two"), researching(3, "003_three"))
    run = tasks.run("research", "1-3", "--yes", "--model", model)
    lines = [line for line in run.stderr.splitlines() if "Write" in line]
    assert run.returncode == 0, run.stderr
    assert len(lines) == 3, run.stderr


@pytest.mark.rule("commands")
def test_a_text_is_added_as_a_task_first(tasks):
    model = tasks.script("text", researching(4, "004_cache_the_index"))
    run = tasks.run("research", "Cache the index\nIt is slow.", "--yes", "--model", model)
    assert (run.returncode, run.stdout) == (0, "It is done.\n  .deputy/work/004_cache_the_index/report.md\n")
    assert "Added: 4  Cache the index" in run.stderr
    assert "Task 4 is researched." in run.stderr
    shown = json.loads(tasks.run("task", "show", "4", "--json").stdout)
    assert (shown["title"], shown["text"]) == ("Cache the index", "It is slow.")


@pytest.mark.rule("commands.state")
@pytest.mark.parametrize("number", ["0", "012", "1-", "-1", "3-2", "9", "!!"])
def test_what_is_no_number_of_a_task_is_refused_before_anything_is_done(tasks, number):
    run = tasks.run("research", "--yes", "--", number)
    assert run.returncode == 2
    assert len(statuses(tasks)) == 3


def test_without_a_yes_and_a_person_to_ask_nothing_begins(tasks):
    run = tasks.run("implement", "1", "--json", "--model", tasks.script("never", {"turns": []}))
    outcome = json.loads(run.stdout)
    assert (run.returncode, outcome["status"]) == (6, "rejected")
    assert outcome["errors"][0]["code"] == "NOT_APPROVED"
    assert statuses(tasks) == ["not started"] * 3


def test_a_refusal_without_a_person_to_ask_says_what_the_person_can_do(tasks):
    run = tasks.run("implement", "1", "--model", tasks.script("never", {"turns": []}))
    assert (run.returncode, run.stdout) == (6, "Not started: the call was not approved.\n")
    assert run.stderr.endswith("no terminal to ask at; pass --yes to approve\nTask 1 is not started.\n")


@pytest.mark.rule("commands.state")
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_task_that_is_over_is_refused_once_and_before_a_person_is_asked(tasks, is_terminal):
    assert tasks.run("task", "abandon", "1").returncode == 0
    command = ("research", "1", "--model", tasks.script("never", {"turns": []}))
    if is_terminal:
        terminal = tasks.terminal(*command, columns=200)
        code, shown = terminal.end(), terminal.text
    else:
        run = tasks.run(*command)
        code, shown = run.returncode, run.stdout + run.stderr
    assert (code, "Go ahead?" in shown) == (6, False)
    assert shown.count("research needs a task that is not started, in progress, researched, blocked") == 1
    assert shown.replace("\r", "").endswith("Task 1 is abandoned.\ndeputy: To work on it again: deputy task reopen 1\n")


def test_a_text_that_is_not_approved_is_not_added(tasks):
    run = tasks.run("research", "Something new", "--json", "--model", tasks.script("never", {"turns": []}))
    outcome = json.loads(run.stdout)
    assert (run.returncode, outcome["status"], outcome["task"]) == (6, "rejected", None)
    assert outcome["errors"][0]["code"] == "NOT_APPROVED"
    assert "no task was added" in run.stderr
    assert statuses(tasks) == ["not started"] * 3
    assert tasks.run("research", "!!").returncode == 2


def stored(house) -> dict:
    return json.loads((house.workspace / ".deputy" / "tasks.json").read_text())


@pytest.mark.rule("delegate.approve")
@pytest.mark.parametrize(("typed", "code"), [("n\n", 6), ("\x03", 130)])
def test_a_denied_text_leaves_no_task_and_its_number_is_not_used_again(tasks, typed, code):
    before = stored(tasks)
    terminal = tasks.terminal("implement", "Something new", "--model", tasks.script("never", {"turns": []}))
    terminal.until("Go ahead? [y/N/d]")
    assert "implement-4" in terminal.text
    assert [task["title"] for task in stored(tasks)["tasks"]] == ["One", "Two", "Three", "Something new"]
    terminal.type(typed)
    assert terminal.end() == code
    assert "deputy: not approved, so no task was added" in terminal.text
    assert ("[implement-4] ✗ rejected: not approved" in terminal.text) == (code == 6)
    assert stored(tasks) == {**before, "next": 5}
    assert not (tasks.workspace / ".deputy" / "work").exists()
    assert tasks.run("task", "add", "Five").stdout.startswith("Added: 5")


@pytest.mark.rule("delegate.approve")
def test_a_denied_text_stays_when_another_command_has_changed_its_task(tasks):
    terminal = tasks.terminal("implement", "Something new", "--model", tasks.script("never", {"turns": []}))
    terminal.until("Go ahead? [y/N/d]")
    assert tasks.run("task", "abandon", "4").returncode == 0
    terminal.type("n\n")
    assert terminal.end() == 6
    assert "no task was added" not in terminal.text
    assert statuses(tasks) == [*["not started"] * 3, "abandoned"]


@pytest.mark.rule("delegate.approve")
def test_the_number_of_a_text_is_taken_before_the_question(tasks):
    model = tasks.script("text", researching(4, "004_something_new"))
    terminal = tasks.terminal("research", "Something new", "--model", model)
    terminal.until("Go ahead? [y/N/d]")
    assert "task 1 works: in place: writes only in .deputy/work/004_something_new" in terminal.text
    assert tasks.run("task", "add", "Five").stdout.startswith("Added: 5")
    terminal.type("y\n")
    assert terminal.end() == 0, terminal.text
    assert terminal.text.count("Go ahead?") == 1
    assert "Added: 4  Something new" in terminal.text
    assert "Task 4 is researched." in terminal.text
    assert statuses(tasks) == [*["not started"] * 3, "researched", "not started"]


@pytest.mark.rule("approve.exact")
@pytest.mark.rule("recover")
@pytest.mark.parametrize("is_approved", [True, False])
def test_the_question_of_a_command_survives_its_process_and_is_answered_from_elsewhere(tasks, is_approved):
    model = tasks.script("text", researching(4, "004_something_new"))
    terminal = tasks.terminal("research", "Something new", "--model", model)
    terminal.until("Go ahead? [y/N/d]")
    terminal.process.kill()
    terminal.end()
    [entry] = entries(tasks)
    run = entry["session_id"]
    assert (entry["status"], stored(tasks)["tasks"][3].get("work")) == ("waiting", None)
    unanswered = tasks.run("resume", run)
    assert (unanswered.returncode, f"deputy approve {run}" in unanswered.stderr) == (2, True)
    answered = tasks.approve(run) if is_approved else tasks.run("approve", run, "--deny")
    assert answered.returncode == 0, answered.stderr
    resumed = tasks.run("resume", run)
    if is_approved:
        assert (resumed.returncode, statuses(tasks)[3:]) == (0, ["researched"]), resumed.stderr
        assert [entry["what"] for entry in stored(tasks)["tasks"][3]["history"]] == [
            "added",
            "research began",
            "research ended",
        ]
    else:
        assert (resumed.returncode, statuses(tasks)[3:]) == (6, []), resumed.stderr
        assert not (tasks.workspace / ".deputy" / "work").exists()


def test_a_task_names_the_branch_and_the_worktree_of_its_last_changes(tasks):
    for arguments in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "begin"]):
        subprocess.run([*GIT, *arguments], cwd=tasks.workspace, check=True)
    change = {"name": "Write", "arguments": {"path": "new.py", "content": "found"}}
    model = tasks.script("change", {"turns": [{"calls": [change]}, returned("new.py")]})
    branch = json.loads(tasks.run("implement", "1", "--yes", "--json", "--model", model).stdout)["branch"]
    shown = json.loads(tasks.run("task", "show", "1", "--json").stdout)
    assert shown["branch"] == branch
    assert Path(shown["worktree"], "new.py").read_text() == "found"
    page = tasks.run("task", "show", "1").stdout
    assert f"branch      {branch}\nworktree    {shown['worktree']}\n" in page
    other = json.loads(tasks.run("task", "show", "2", "--json").stdout)
    assert (other["branch"], other["worktree"]) == (None, None)

    shutil.rmtree(shown["worktree"])
    gone = json.loads(tasks.run("task", "show", "1", "--json").stdout)
    assert (gone["branch"], gone["worktree"]) == (branch, None)


@pytest.mark.rule("time.wall")
def test_more_time_than_the_maximum_is_refused_with_the_maximum(tasks):
    run = tasks.run("plan", "Something new", "--timeout", "3601", "--yes")
    assert run.returncode == 2
    assert "plan takes more than 0 and at most 3600 seconds" in run.stderr
    assert len(statuses(tasks)) == 3


@pytest.mark.rule("budget")
def test_a_command_takes_a_budget_and_tools_among_its_own(tasks):
    model = tasks.script("capped", {"turns": [{"calls": [writing("001_one")]}, {"text": "Enough."}]})
    run = tasks.run("research", "1", "--yes", "--budget", "requests=1", "--model", model, "--json")
    outcome = json.loads(run.stdout)
    assert (run.returncode, outcome["errors"][0]["type"]) == (4, "budget")
    shown = tasks.run("research", "2", "--tools", "Read,Write", "--budget", "0.5", "--model", "offline:scout")
    assert "  task 1 tools: Read, Write" in shown.stderr
    beyond = tasks.run("research", "2", "--yes", "--tools", "Read,Run", "--model", model)
    assert (beyond.returncode, beyond.stdout) == (2, "")
    assert "--tools: found 'Run'; research has only Read, Grep," in beyond.stderr
    priced = tasks.run("research", "2", "--yes", "--budget", "0.5", "--model", model)
    assert priced.returncode == 2
    assert "budget.cost: found $0.50; no price is known for script:" in priced.stderr


@pytest.mark.rule("time.partial")
def test_at_a_timeout_the_way_on_is_printed_and_leads_on(tasks):
    folder, path = "001_one", REPORT.format(folder="001_one")
    hang = {"text": "…", "delay_seconds": 600.0}
    turns = [{"calls": [writing(folder)]}, hang]
    run = tasks.run("research", "1", "--yes", "--timeout", "1", "--model", tasks.script("late", {"turns": turns}))
    assert (run.returncode, statuses(tasks)[0]) == (4, "in progress")
    assert f"  {path}\n" in run.stdout
    [session_id] = re.findall(r"deputy resume (\w+)", run.stderr)
    # What was approved as a whole may go on writing.
    tasks.script("late", {"turns": [{}, {"calls": [writing(folder)]}, returned(path)]})
    again = tasks.run("resume", session_id, "--json")
    outcome = json.loads(again.stdout)
    assert (again.returncode, outcome["session_id"], outcome["task"]["status"]) == (0, session_id, "researched")
    assert statuses(tasks)[0] == "researched"


@pytest.mark.rule("commands")
@pytest.mark.rule("resume")
def test_a_command_that_is_gone_on_with_says_what_it_says_itself(tasks):
    folder, path = "001_one", REPORT.format(folder="001_one")
    asks = [{"type": "input", "message": "Which?", "recoverable": True, "recommendation": "Say which."}]
    first = tasks.script("ask", {"turns": [returned(status="blocked", errors=asks)]})
    run = tasks.run("research", "1", "--yes", "--json", "--model", first)
    session_id = json.loads(run.stdout)["session_id"]
    assert (run.returncode, statuses(tasks)[0]) == (5, "blocked")

    tasks.script("ask", {"turns": [{}, returned(status="blocked", errors=asks)]})
    again = tasks.run("resume", session_id, "--answer", "The first.")
    assert (again.returncode, again.stdout) == (5, "It is done.\n")
    assert "Task 1 is blocked." in again.stderr
    assert f'Answer it: deputy resume {session_id} --answer "…"' in again.stderr

    tasks.script("ask", {"turns": [{}, {}, {"calls": [writing(folder)]}, returned(path)]})
    last = tasks.run("resume", session_id, "--answer", "The second.")
    assert (last.returncode, last.stdout) == (0, f"It is done.\n  {path}\n")
    assert "Task 1 is researched." in last.stderr


@pytest.mark.rule("commands.state")
@pytest.mark.parametrize("look", [("task", "show", "1"), ("ps",)])
def test_a_blocked_command_that_is_cancelled_frees_its_task_and_can_be_gone_on_with(tasks, look):
    folder, path = "001_one", REPORT.format(folder="001_one")
    asks = [{"type": "input", "message": "Which?", "recoverable": True, "recommendation": "Say which."}]
    model = tasks.script("ask", {"turns": [returned(status="blocked", errors=asks)]})
    run = tasks.run("research", "1", "--yes", "--json", "--model", model)
    session_id = json.loads(run.stdout)["session_id"]
    assert tasks.run("cancel", session_id).returncode == 0
    assert tasks.run(*look).returncode == 0
    [task, *_] = json.loads((tasks.workspace / ".deputy/tasks.json").read_text())["tasks"]
    assert (task.get("status", "not started"), task.get("question", "")) == ("not started", "")
    assert [entry.get("outcome") for entry in task["history"]] == [None, None, "blocked", "cancelled"]

    tasks.script("ask", {"turns": [{}, {"calls": [writing(folder)]}, returned(path)]})
    last = tasks.run("resume", session_id, "--answer", "The second.")
    assert (last.returncode, statuses(tasks)[0]) == (0, "researched"), last.stderr


@pytest.mark.rule("commands.state")
@pytest.mark.rule("resume")
def test_a_command_whose_task_is_over_says_why_it_does_not_go_on_and_what_would_help(tasks):
    folder, path = "001_one", REPORT.format(folder="001_one")
    asks = [{"type": "input", "message": "Which?", "recoverable": True, "recommendation": "Say which."}]
    first = tasks.script("ask", {"turns": [returned(status="blocked", errors=asks)]})
    run = tasks.run("research", "1", "--yes", "--json", "--model", first)
    session_id = json.loads(run.stdout)["session_id"]
    assert tasks.run("task", "abandon", "1").returncode == 0
    for _ in range(2):
        refused = tasks.run("resume", session_id, "--answer", "The first.")
        assert (refused.returncode, refused.stdout) == (6, "")
        assert "research needs a task that is" in refused.stderr
        assert "deputy task reopen 1" in refused.stderr
        assert "deputy resume" not in refused.stderr
    output = tasks.run("resume", session_id, "--answer", "The first.", "--json")
    outcome = json.loads(output.stdout)
    assert (output.returncode, outcome["status"], len(outcome["warnings"])) == (6, "blocked", 1)

    assert tasks.run("task", "reopen", "1").returncode == 0
    tasks.script("ask", {"turns": [{}, {"calls": [writing(folder)]}, returned(path)]})
    last = tasks.run("resume", session_id, "--answer", "The second.")
    assert (last.returncode, last.stdout) == (0, f"It is done.\n  {path}\n")


@pytest.mark.rule("registry.entry")
def test_a_command_stands_in_the_registry_with_its_task(tasks):
    model = tasks.script("entry", researching(2, "002_two"))
    assert tasks.run("research", "2", "--yes", "--model", model).returncode == 0
    (entry,) = json.loads(tasks.run("ps", "--all", "--json").stdout)["delegations"]
    assert (entry["command"], entry["subagent"], entry["task_number"]) == ("research", "researcher", 2)
    assert (entry["timeout"], entry["delegation_depth"], entry["parent"]) == (3600.0, 1, None)
    assert entry["delegation_path"] == ["orchestrator", "research", "researcher"]
    (stats,) = json.loads(tasks.run("stats", "--json").stdout)["stats"]
    assert (stats["name"], stats["count"], stats["max_seconds"]) == ("research", 1, 7200.0)


@pytest.mark.rule("commands")
def test_a_direct_prompt_is_returned_in_the_form_of_the_contract(house, tmp_path):
    house.env["HOME"] = str(tmp_path / "person")
    model = house.script("meta", {"turns": [returned(next_steps="Nothing.")]})
    run = house.run("meta", "What", "is", "this?", "--yes", "--json", "--model", model)
    outcome = json.loads(run.stdout)
    assert (run.returncode, outcome["status"], outcome["next_steps"]) == (0, "completed", "Nothing.")
    assert (outcome["task"], outcome["delegation_path"]) == (None, ["orchestrator", "meta", "task-executor"])


@pytest.mark.rule("errors.log")
@pytest.mark.rule("commands")
def test_errors_stand_together_by_recurrence_and_are_handed_to_diagnostics(tasks):
    for number in ("1", "2"):
        model = tasks.script("bad", {"turns": [{"text": "Done."}] * 2})
        assert tasks.run("research", number, "--yes", "--model", model).returncode == 1
    logged = json.loads(tasks.run("errors", "--json").stdout)
    (group,) = logged["groups"]
    assert (group["type"], group["code"], group["count"]) == ("validation", "INVALID_RETURN", 2)
    (error,) = logged["errors"]
    assert group["ids"] == [error["id"]]
    shown = tasks.run("errors").stdout
    assert shown.startswith(f"2×  validation/INVALID_RETURN\n  {error['id']}  ")

    model = tasks.script("fix", {"when": error["id"], "turns": [returned(summary="It answers in prose.")]})
    run = tasks.run("errors", "fix", error["id"], "--yes", "--json", "--model", model)
    outcome = json.loads(run.stdout)
    assert (run.returncode, outcome["summary"]) == (0, "It answers in prose.")
    assert outcome["delegation_path"] == ["orchestrator", "errors", "error-diagnostics"]
    assert tasks.run("errors", "fix", "err_nothing", "--yes").returncode == 3


@pytest.mark.rule("delegate.cancel")
def test_stopping_a_range_says_which_tasks_never_began(tasks):
    hang = {"when": "Task: 1\n", "turns": [{"text": "…", "delay_seconds": 600.0}]}
    terminal = tasks.terminal("research", "1-3", "--yes", "--model", tasks.script("hang", hang))
    terminal.until("thinking")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "deputy: not started: tasks 2, 3" in terminal.text
    assert statuses(tasks)[1:] == ["not started"] * 2


def test_programs_are_always_told_where_a_task_stands(tasks):
    for command in (("task", "show", "1"), ("task", "list"), ("todo",)):
        output = json.loads(tasks.run(*command, "--json").stdout)
        assert (output["tasks"][0] if "tasks" in output else output)["status"] == "not started"


def test_items_of_one_title_are_imported_as_one_task_with_all_their_text(tasks):
    (tasks.workspace / "TODO.md").write_text("- [ ] Same\n  - nested\n- [ ] Other\n- [ ] Same\n  more\n- [ ] Same\n")
    added = json.loads(tasks.run("task", "import", "TODO.md", "--json").stdout)["added"]
    assert [(task["title"], task.get("text", "")) for task in added] == [("Same", "- nested\n\nmore"), ("Other", "")]


def test_what_is_more_than_can_be_imported_at_once_is_reported_and_comes_with_the_next_import(tasks):
    items = [f"- [ ] item {number}\n" for number in range(10_002)]
    (tasks.workspace / "TODO.md").write_text("".join(items[:3] + items))
    first = tasks.run("task", "import", "TODO.md")
    assert first.returncode == 4
    assert first.stdout.splitlines()[-1].endswith("item 9999")
    assert "2 items were not added" in first.stderr
    again = tasks.run("task", "import", "TODO.md", "--json")
    output = json.loads(again.stdout)
    assert (again.returncode, output["left"]) == (0, 0)
    assert [task["title"] for task in output["added"]] == ["item 10000", "item 10001"]


@pytest.mark.rule("context.object")
def test_a_tasks_complexity_reaches_its_agent(tasks):
    assert tasks.run("task", "add", "Four", "--complexity", "high").returncode == 0
    assert tasks.run("task", "edit", "3", "--complexity", "low").returncode == 0
    assert "\ncomplexity  high\n" in tasks.run("task", "show", "4").stdout
    assert "\ncomplexity  low\n" in tasks.run("task", "show", "3").stdout
    model = tasks.script("hard", {"when": '"complexity":"high"', "turns": researching(4, "004_four")["turns"]})
    run = tasks.run("research", "4", "--yes", "--model", model)
    assert run.returncode == 0, run.stderr


@pytest.mark.rule("commands.state")
def test_what_blocks_a_task_and_its_artifacts_are_listed_and_the_way_on_is_shown(tasks):
    asks = [{"type": "input", "message": "Which cache?", "recoverable": True, "recommendation": "Say which."}]
    turns = [{"calls": [writing("001_one")]}, returned(REPORT.format(folder="001_one"), status="blocked", errors=asks)]
    run = tasks.run("research", "1", "--yes", "--json", "--model", tasks.script("ask", {"turns": turns}))
    outcome = json.loads(run.stdout)
    assert outcome["status"] == "blocked", run.stdout
    for listed in (tasks.run("todo").stdout, tasks.run("task", "list").stdout):
        assert listed.splitlines()[:3] == [
            "1  blocked      One",
            f"                asks: {outcome['question']}",
            "                1 artifact: .deputy/work/001_one/report.md",
        ]
    page = tasks.run("task", "show", "1").stdout
    assert f'blocked     by research. Answer it: deputy resume {outcome["session_id"]} --answer "…"\n' in page
    assert f"question    {outcome['question']}\n" in page


@pytest.mark.rule("redact.simple")
@pytest.mark.parametrize("add", [("task", "add", "Call it", "--text"), ("task", "edit", "1", "--text"), ("research",)])
def test_a_secret_in_a_task_is_warned_of_and_stays_off_the_screen(tasks, add):
    secret = "sk-ant-api03-" + "Qx7" * 31 + "AA"
    run = tasks.run(*add, f"Use the key {secret}")
    assert "has a secret, which .deputy/tasks.json stores readable. Remove it: deputy task edit" in run.stderr
    assert secret not in run.stdout + run.stderr
    assert "warning" not in tasks.run("task", "add", "Call it", "--text", "Use the key in the vault").stderr


def test_a_failed_command_says_its_error_once(tasks):
    model = tasks.script("bad", {"when": "Task: 1\n", "turns": [{"faults": ["bad_request"]}]})
    run = tasks.run("research", "1", "--yes", "--model", model)
    assert run.returncode == 1, run.stderr
    said = json.loads(tasks.run("show", "last", "--json").stdout)["outcome"]["summary"]
    assert said in run.stderr
    assert said not in run.stdout
