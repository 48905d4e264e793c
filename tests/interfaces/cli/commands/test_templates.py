"""`deputy templates` in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import fork_server

VERIFY = (
    "---\ntype: verification\ndescription: Check that code is right.\ninputs:\n  code: string\n---\nRead {{code}}.\n"
)
PLANT = '<task type="gardening"><description>Plant trees and water them.</description><prompt>Plant it.</prompt></task>'
BAD = "---\ntype: x\ndescription: y\ncontext_management:\n  inherit_context: full\n  fresh_context: enabled\n---\nGo.\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project" / ".deputy" / "templates"
    folder.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    (folder / "verify.md").write_text(VERIFY)
    (folder / "plant.xml").write_text(PLANT)
    return tmp_path / "project"


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run(
        [sys.executable, "-m", "deputy", "templates", *arguments],
        cwd=project,
        env={**os.environ, "HOME": str(project.parent / "home")},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.rule("subtask.template")
def test_templates_are_listed_with_what_they_need(project: Path):
    done = run(project)
    assert done.returncode == 0
    assert done.stdout == (
        "plant (gardening)\n    Plant trees and water them.\n"
        "verify (verification: code)\n    Check that code is right.\n"
    )
    data = json.loads(run(project, "list", "--json").stdout)
    assert [one["name"] for one in data["templates"]] == ["plant", "verify"]
    assert data["templates"][1]["inputs"] == [{"name": "code", "type": "string", "required": True, "description": ""}]


@pytest.mark.rule("subtask.template")
def test_a_match_shows_scores_and_why(project: Path):
    done = run(project, "match", "check the code", "--type", "verification")
    assert done.returncode == 0
    first, second, *_ = done.stdout.splitlines()
    assert first == "verify matches best."
    assert "type 1.00" in second
    assert "shared words: check, code" in second
    data = json.loads(run(project, "match", "water the plants", "--hint", "plant", "--json").stdout)
    assert (data["match"], data["threshold"], data["scores"][0]["hints"]) == ("plant", 0.3, 1.0)
    none = run(project, "match", "bake bread", "--type", "baking")
    assert (none.returncode, none.stdout.splitlines()[0]) == (3, "No template matches; the default one is used.")


@pytest.mark.rule("subtask.template")
def test_a_check_names_file_line_and_rule(project: Path):
    assert run(project, "check").stdout == "2 usable templates.\n"
    (project / ".deputy" / "templates" / "bad.md").write_text(BAD)
    done = run(project, "check")
    assert done.returncode == 1
    assert "bad.md:4: error (subtask.context): context_management has fresh_context 'enabled'" in done.stdout
    (problem,) = json.loads(run(project, "check", "--json").stdout)["problems"]
    assert (problem["line"], problem["rule"], problem["is_fatal"]) == (4, "subtask.context", True)


def test_where_there_are_none_it_says_how_to_make_one(tmp_path: Path):
    (tmp_path / "project").mkdir()
    done = run(tmp_path / "project")
    assert done.returncode == 3
    assert "To define one, write .deputy/templates/verify.md" in done.stdout
