"""`deputy check-return`, as a person and as a program see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.every_case import every_case

CORPUS = Path(__file__).parents[3] / "corpus" / "returns"
CASES = sorted(CORPUS.rglob("*.json"))
GOOD = {
    "status": "completed",
    "summary": "Compared three candidates. The second is recommended.",
    "artifacts": [{"type": "report", "path": "docs/report.md"}],
    "metadata": {"session_id": "sess_1767225600_k3x9q2", "agent_type": "researcher"},
}
RULES = {"contract.parse", "contract.check", "contract.evidence"}


@pytest.fixture
def run(tmp_path, capsys):
    """Run the command in this process, as `main` does it; gives its exit code and what it printed."""
    from deputy.interfaces.cli import main

    def run(text, *options):
        file = tmp_path / "answer.txt"
        file.write_text(text if isinstance(text, str) else json.dumps(text))
        return run_file(file, *options)

    def run_file(file, *options):
        before, sys.argv = sys.argv, ["deputy", "check-return", str(file), *map(str, options)]
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:
            sys.argv = before
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return ended.value.code, printed.out, printed.err

    run.file = run_file
    return run


@pytest.mark.rule("contract.parse")
@pytest.mark.rule("contract.check")
@pytest.mark.rule("contract.lenient")
@every_case("mode", ["strict", "lenient"])
@every_case("case", CASES, ids=lambda case: str(case.relative_to(CORPUS).with_suffix("")))
def test_every_return_of_the_corpus_is_judged_as_expected(case, mode, run):
    output = json.loads(case.read_text())
    expected = output.get(mode, output["strict"])
    flags = ["--lenient"] if mode == "lenient" else []
    code, out, _ = run.file(case.with_suffix(".txt"), *output["options"], *flags, "--json")
    assert json.loads(out) == expected
    assert code == (0 if expected["valid"] else 1)


def test_the_corpus_is_whole_and_says_different_things():
    assert len(CASES) >= 90
    assert {case.with_suffix(".txt") for case in CASES} == set(CORPUS.rglob("*.txt"))
    output = [json.loads(case.read_text()) for case in CASES]
    assert len({case["about"] for case in output}) == len(CASES)
    assert sum(case["strict"]["valid"] for case in output) >= 25
    assert sum("lenient" in case for case in output) >= 40
    for case in output:
        assert case.get("lenient") != case["strict"]
        assert {problem["rule"] for problem in case["strict"]["problems"]} <= RULES
        assert case["strict"]["corrections"] == []


def test_a_valid_return_is_shown_with_its_summary_and_files(run):
    code, out, err = run(GOOD)
    assert code == 0
    assert out.splitlines() == [
        "valid: completed, 1 artifact",
        "  Compared three candidates. The second is recommended.",
        "  - docs/report.md (report)",
    ]
    assert err == ""


def test_each_problem_is_shown_with_its_rule_and_what_to_do(run):
    code, out, _ = run({**GOOD, "status": "great", "extra": 1}, "--session", "other")
    assert code == 1
    assert out.splitlines() == [
        "invalid: 2 problems",
        "",
        "  Invalid status: great  [contract.check]",
        "    Use one of completed, partial, failed, blocked.",
        "",
        "  Session ID mismatch: sess_1767225600_k3x9q2 != other  [contract.check]",
        "    Return other, as given in the prompt.",
        "",
        "1 warning:",
        "  Unknown field ignored: extra",
    ]


def test_leniency_is_offered_exactly_where_it_would_help(run):
    hint = "With --lenient it is valid."
    assert hint in run({**GOOD, "status": "done"})[1]
    assert hint not in run({**GOOD, "status": "great"})[1]
    assert hint not in run(GOOD)[1]
    code, out, _ = run({**GOOD, "status": "done"}, "--lenient")
    assert code == 0
    assert "1 correction:\n  status: done read as completed\n" in out
    assert hint not in out


def test_nothing_shown_is_wider_than_a_terminal_or_controls_it(run):
    hostile = {**GOOD, "summary": "word " * 90 + "\x1b[2J\u202e", "artifacts": [{"type": "t\x07", "path": "p" * 300}]}
    for value in (hostile, {**hostile, "status": "s" * 500}, {"k" * 400: 1}):
        _, out, _ = run(value)
        assert max(map(len, out.splitlines())) <= 80
        assert not set("\x1b\x07\u202e") & set(out)


@pytest.mark.rule("contract.evidence")
def test_artifacts_are_looked_for_where_a_workspace_is_given(run, tmp_path):
    root = tmp_path / "project"
    (root / "docs").mkdir(parents=True)
    report = root / "docs" / "report.md"

    def problems(*options):
        code, out, _ = run(GOOD, "--workspace", root, "--json", *options)
        output = json.loads(out)
        assert output["valid"] == (code == 0) == (output["return"] is not None)
        assert {problem["rule"] for problem in output["problems"]} <= {"contract.evidence"}
        return [problem["message"] for problem in output["problems"]]

    assert problems() == ["Artifact does not exist: docs/report.md"]
    report.touch()
    assert problems() == ["Artifact is empty: docs/report.md"]
    report.write_text("findings")
    assert problems() == []
    os.utime(report, (1_000_000, 1_000_000))
    assert problems("--since", "999999.5") == []
    assert problems("--since", "1970-01-12T13:46:40Z") == []
    stale = ["Artifact has not changed since before the delegation began: docs/report.md"]
    assert problems("--since", "1000001") == problems("--since", "2026-01-01") == stale
    report.unlink()
    report.symlink_to(tmp_path / "answer.txt")
    assert problems() == ["Artifact leads out of the workspace: docs/report.md"]
    report.unlink()
    report.symlink_to(report)
    assert problems() == ["Artifact does not exist: docs/report.md"]
    report.unlink()
    report.mkdir()
    assert problems() == ["Artifact is empty: docs/report.md"]
    (report / "part.md").touch()
    assert problems() == ["Artifact is empty: docs/report.md"]
    (report / "part.md").write_text("findings")
    assert problems() == []


@pytest.mark.rule("contract.evidence")
def test_a_phantom_is_found_without_looking_anywhere(run):
    _, out, _ = run({**GOOD, "artifacts": []}, "--kind", "research", "--json")
    assert json.loads(out)["problems"] == [
        {"rule": "contract.evidence", "message": "phantom research: completed without any artifact"}
    ]
    assert run(GOOD, "--kind", "research")[0] == 0
    assert run({**GOOD, "artifacts": []}, "--kind", "review")[0] == 0


def test_a_file_may_be_named_absolutely_beneath_the_workspace(run, tmp_path):
    value = {**GOOD, "artifacts": [{"type": "file", "path": str(tmp_path / "answer.txt")}]}
    assert run(value, "--workspace", tmp_path)[0] == 0
    assert run(value)[0] == 1


def test_a_schema_takes_the_place_of_the_form(run, tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object", "required": ["findings"]}')
    code, out, _ = run('It is {"findings": []}.', "--schema", schema, "--json")
    assert code == 0
    assert json.loads(out)["return"] == {"findings": []}
    code, out, _ = run("{}", "--schema", schema, "--json")
    assert code == 1
    assert json.loads(out)["problems"] == [{"rule": "contract.check", "message": "Missing required field: findings"}]
    assert run('{"findings": 1}', "--schema", schema)[1] == "valid: it matches the schema\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--since", "5"], "--since: found '5'; also give --workspace"),
        (["--since", "soon", "--workspace", "."], "--since: found 'soon'; give a time such as"),
        (["--path", "a,,b"], "--path: found 'a,,b'; give names separated by commas"),
        (["--depth", "-1"], "Invalid value for '--depth'"),
        (["--workspace", "nowhere"], "Invalid value for '--workspace'"),
        (["--schema", "nowhere.json"], "--schema: found 'nowhere.json'; cannot read it"),
        (["--schema", "bad.json"], "--schema: found 'bad.json'; it is not JSON"),
        (["--schema", "wrong.json"], "--schema wrong.json: schema.properties.a.type: found 'strin'"),
        (["--schema", "fine.json", "--session", "x"], "--session: found 'x'; leave it out: a schema of your own"),
        (["--what"], "No such option"),
    ],
)
def test_misuse_is_named_and_ends_with_2(run, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{")
    Path("wrong.json").write_text('{"properties": {"a": {"type": "strin"}}}')
    Path("fine.json").write_text("true")
    code, out, err = run(GOOD, *options)
    assert (code, out) == (2, "")
    assert said in err


def test_a_file_that_cannot_be_read_is_named(run):
    code, _, err = run.file("no/such/file")
    assert code == 2
    assert "FILE: found 'no/such/file'; cannot read it: No such file or directory" in err


def test_bytes_that_are_not_text_are_read_as_far_as_they_go(run, tmp_path):
    file = tmp_path / "bytes"
    file.write_bytes(b"\xff\xfe\x00" + json.dumps(GOOD).encode() + b"\x80")
    assert run.file(file)[0] == 0


def test_help_teaches_by_example(run):
    code, out, _ = run(GOOD, "--help")
    assert code == 0
    assert "deputy check-return answer.txt --workspace . --kind research" in out
    assert "0 valid   1 invalid   2 usage" in out
    assert max(map(len, out.splitlines())) <= 80


def deputy(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, which says last what it has loaded."""
    code = """
import atexit, sys
from deputy.interfaces.cli import main
watched = {"aiohttp", "rich", "sqlite3", "asyncio", "jsonschema_rs"}
atexit.register(lambda: print("loaded:", *sorted(watched & set(sys.modules)), file=sys.stderr))
main()
"""
    return subprocess.run(
        [sys.executable, "-c", code, "check-return", *arguments], input=given, capture_output=True, check=False
    )


def test_only_what_is_needed_is_loaded(tmp_path):
    schema = tmp_path / "schema.json"
    schema.write_text("true")
    given = json.dumps(GOOD).encode()
    plain = deputy("-", given=given)
    assert (plain.returncode, plain.stderr) == (0, b"loaded:\n")
    own = deputy("-", "--schema", str(schema), given=given)
    assert (own.returncode, own.stderr) == (0, b"loaded: jsonschema_rs\n")


@pytest.mark.parametrize(
    "given", [b'{"a": "' + b"x" * 50_000_000 + b'"}', b"[" * 100_000, b"{" * 1_000_000, b"\x00" * 1000, b""]
)
def test_what_is_monstrous_ends_with_one_clear_line(given):
    done = deputy("-", given=given)
    assert done.returncode == 1
    assert done.stdout.startswith(b"invalid: 1 problem\n")
    assert done.stderr == b"loaded:\n"


@pytest.mark.rule("redact.where")
def test_a_line_break_between_a_name_and_its_secret_does_not_show_the_secret(run):
    for length in range(40, 80):
        _, out, _ = run({**GOOD, "summary": f"{'x' * length} --password hid-77x"})
        assert "hid-77x" not in out, out
