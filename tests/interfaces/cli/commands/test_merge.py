"""From `implement` over `review` to `merge`, as a person types them in a real repository."""

import json
import subprocess
from pathlib import Path

import pytest

GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@localhost")
REVIEW = ".deputy/work/001_cache_the_index/review.md"


def write(path: str, content: str) -> dict:
    return {"name": "Write", "arguments": {"path": path, "content": content}}


def returned(*paths: str) -> dict:
    form = {
        "status": "completed",
        "summary": "It is done.",
        "artifacts": [{"type": "code", "path": path} for path in paths],
        "metadata": {"session_id": "{session_id}", "agent_type": "x"},
    }
    return {"text": json.dumps(form)}


@pytest.fixture
def project(house, tmp_path):
    house.env["HOME"] = str(tmp_path / "person")
    house.git = lambda *arguments: (
        subprocess.run([*GIT, *arguments], cwd=house.workspace, check=True, capture_output=True, text=True).stdout
    )
    (house.workspace / "app.py").write_text("print(1)\n")
    assert house.run("task", "add", "Cache the index").returncode == 0
    for arguments in (["init", "-q", "-b", "main"], ["add", "--all"], ["commit", "-q", "-m", "begin"]):
        house.git(*arguments)
    house.model = house.script("work", {"turns": [{"calls": [write("app.py", "print(2)\n")]}, returned("app.py")]})
    return house


@pytest.mark.rule("commands.branch")
def test_work_ends_with_its_branch_is_reviewed_there_and_is_merged_when_a_person_says_yes(project):
    ended = project.run("implement", "1", "--yes", "--model", project.model)
    branch = project.git("branch", "--list", "deputy/*").strip("+ \n")
    assert ended.stdout == (
        f"It is done.\n  app.py\nBranch: {branch}\n app.py | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n"
        "Merge it: deputy merge 1\n"
    )

    # The reviewer gets the diff, reads the file of the branch, and writes into the project's own folder.
    reading = {"calls": [{"name": "Read", "arguments": {"path": "app.py"}}]}
    turns = [reading, {"calls": [write(REVIEW, "Fine.\n")]}, returned(REVIEW)]
    reviewed = project.run("review", "1", "--yes", "--json", "--model", project.script("look", {"turns": turns}))
    review = json.loads(reviewed.stdout)
    assert (review["status"], review["merge"]) == ("completed", None), reviewed.stderr
    transcript = json.loads(project.run("transcript", review["session_id"], "--json").stdout)["messages"]
    assert "-print(1)\n+print(2)\n" in transcript[0]["content"]
    assert "print(2)" in next(message["content"] for message in transcript if message["role"] == "tool")
    assert (project.workspace / REVIEW).read_text() == "Fine.\n"
    assert (project.workspace / "app.py").read_text() == "print(1)\n"

    commit = project.git("rev-parse", branch).strip()
    terminal = project.terminal("merge", "1")
    terminal.until("Go ahead? [y/N/d] ")
    for shown in (f"branch: {branch}", f"commit: {commit}", "app.py | 2 +-", "into: main (", "how: fast-forward"):
        assert shown in terminal.text
    assert max(map(len, terminal.text.splitlines())) <= 80
    terminal.type("n\n")
    assert terminal.end() == 6
    assert (project.workspace / "app.py").read_text() == "print(1)\n"

    terminal = project.terminal("merge", "1")
    terminal.until("Go ahead? [y/N/d] ")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert f"Merged {branch} ({commit[:12]}) into main." in terminal.text
    assert (project.git("rev-parse", "main").strip(), project.git("status", "-s", "app.py")) == (commit, "")
    assert f"{branch} merged into main" in project.run("task", "show", "1").stdout
    again = project.run("merge", "1")
    assert (again.returncode, "is already merged; nothing was changed" in again.stderr) == (3, True)


@pytest.mark.rule("commands.branch")
def test_in_a_pipe_a_merge_needs_a_yes_and_a_conflict_leaves_all_as_it_was(project):
    nothing = project.run("merge", "1")
    assert (nothing.returncode, "task 1 has no branch; `deputy implement 1` makes one" in nothing.stderr) == (3, True)
    work = json.loads(project.run("implement", "1", "--yes", "--json", "--model", project.model).stdout)
    merge = work["merge"]
    assert (merge["command"], merge["branch"]) == ("deputy merge 1", work["branch"])
    tasks = project.workspace / ".deputy/tasks.json"
    before = tasks.read_text()
    claim = {"command": "implement", "session_id": "sess_1_gone00", "since": "now", "before": "planned"}
    form = json.loads(before)
    form["tasks"][0]["work"] = claim
    tasks.write_text(json.dumps(form))
    busy = project.run("merge", "1", "--yes")
    assert (busy.returncode, "found implement at work; wait for it (deputy watch" in busy.stderr) == (2, True)
    tasks.write_text(before)

    worktree = json.loads(project.run("task", "show", "1", "--json").stdout)["worktree"]
    Path(worktree, "left.py").write_text("left\n")
    refused = project.run("merge", "1", "--json")
    assert "files in no commit, in " in refused.stderr
    assert (refused.returncode, json.loads(refused.stdout)["merged"]) == (6, False)
    assert "not approved: no terminal to ask at; pass --yes to approve" in refused.stderr

    (project.workspace / "app.py").write_text("print(3)\n")
    dirty = project.run("merge", "1", "--yes")
    assert (dirty.returncode, "uncommitted changes in app.py; commit or stash them first" in dirty.stderr) == (2, True)
    project.git("commit", "-qam", "another change")
    conflict = project.run("merge", "1", "--yes")
    assert (conflict.returncode, "conflicts in app.py; nothing was changed" in conflict.stderr) == (1, True)
    assert (project.workspace / "app.py").read_text() == "print(3)\n"

    project.git("reset", "-q", "--hard", "HEAD~1", "--")
    # The task file is as it was before; the command below reads the branch from it.
    (project.workspace / "other.py").write_text("x = 1\n")
    project.git("add", "other.py")
    project.git("commit", "-qm", "not in the way")
    form = json.loads(tasks.read_text())
    form["tasks"][0]["history"].append({"at": "now", "what": "implement ended", "branch": work["branch"]})
    tasks.write_text(json.dumps(form))
    merged = json.loads(project.run("merge", "1", "--yes", "--json").stdout)
    assert (merged["merged"], merged["commit"], merged["into"]) == (True, merge["commit"], "main")
    assert merged["result"] == project.git("rev-parse", "main").strip() != merge["commit"]
    assert (project.workspace / "app.py").read_text() == "print(2)\n"


@pytest.mark.rule("commands.branch")
@pytest.mark.parametrize(
    ("arguments", "told"), [((), "+print(4)"), (("the login code",), "the login code"), (("1",), "Task: 1\n")]
)
def test_a_review_takes_a_number_a_text_or_nothing(project, arguments, told):
    (project.workspace / "app.py").write_text("print(4)\n")
    folder = "001_cache_the_index" if arguments == ("1",) else "reviews"
    path = f".deputy/work/{folder}/review.md"
    turns = [{"calls": [write(path, "Fine.\n"), write("app.py", "hacked")]}, returned(path)]
    model = project.script("look", {"when": told, "turns": turns})
    run = project.run("review", *arguments, "--yes", "--json", "--model", model)
    assert json.loads(run.stdout)["status"] == "completed", run.stdout
    assert (project.workspace / path).read_text() == "Fine.\n"
    assert (project.workspace / "app.py").read_text() == "print(4)\n"
    assert len(json.loads(project.run("task", "list", "--json").stdout)["tasks"]) == 1
