"""The user's program that is run when something waits: a real program, started without a shell."""

import asyncio
import sys

import pytest

from deputy.config import load_effective_settings
from deputy.core.errors import UsageError
from deputy.core.progress import Progress
from deputy.interfaces import notify
from deputy.interfaces.event_stream import Broadcaster
from deputy.interfaces.notify import Notifier

WRITE = "import os, sys; open(sys.argv[1], 'a').write(repr((sys.argv[2:], sorted(k for k in os.environ if 'KEY' in k), os.environ['DEPUTY_NOTIFY_TITLE'], os.environ['DEPUTY_NOTIFY_ID'])) + chr(10))"  # noqa: E501


def told(command: tuple[str, ...], *events: Progress) -> list[Progress]:
    """The events that a watcher sees when these are emitted."""

    async def main() -> list[Progress]:
        seen: list[Progress] = []
        broadcaster = Broadcaster(seen.append)
        async with Notifier(command, broadcaster.emit, []) as broadcaster.notifier:
            for event in events:
                broadcaster.emit(event)
        return seen

    return asyncio.run(main())


def waiting(label: str = "a") -> Progress:
    return Progress(event="waiting", label=label, session_id="sess_1_abc", content="Which $(touch x) one?")


def test_the_program_gets_title_and_id_for_each_question_and_no_key(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-verysecret")
    made = tmp_path / "made"
    blocked = Progress(event="completed", label="b", session_id="sess_1_abd", status="blocked")
    seen = told(
        (sys.executable, "-c", WRITE, str(made)), waiting("a\n[x"), blocked, *[Progress(event="text", label="b")] * 9
    )
    assert [one.event for one in seen if one.event == "warning"] == []
    first, second = [eval(line) for line in made.read_text().splitlines()]
    assert first == (["Deputy: [a (x] waits for you", "sess_1_abc"], [], first[0][0], first[0][1])
    assert second[0] == ["Deputy: [b] waits for you", "sess_1_abd"]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("/no/such/program",), "cannot be started: No such file or directory"),
        ((sys.executable, "-c", "raise SystemExit(3)"), "ended with exit code 3"),
        ((sys.executable, "-c", "import time; time.sleep(600)"), "took longer than 0.5 s and was stopped"),
    ],
)
def test_a_program_that_fails_is_a_warning(monkeypatch, command, problem):
    monkeypatch.setattr(notify, "NOTIFY_SECONDS", 0.5)
    (warning,) = [one for one in told(command, waiting()) if one.event == "warning"]
    assert warning.session_id == "sess_1_abc"
    assert warning.content is not None
    assert problem in warning.content
    assert "[notify] command" in warning.content


def test_only_the_users_own_file_may_name_a_program(tmp_path):
    own, project = tmp_path / ".config" / "deputy" / "config.toml", tmp_path / "project" / "deputy.toml"
    for file in (own, project):
        file.parent.mkdir(parents=True)
    own.write_text('[notify]\ncommand = ["notify-send", "--urgency=low"]\n')
    settings = load_effective_settings(str(project.parent), str(tmp_path))
    assert settings.notify == ("notify-send", "--urgency=low")
    project.write_text('[notify]\ncommand = ["evil"]\n')
    with pytest.raises(UsageError, match="notify"):
        load_effective_settings(str(project.parent), str(tmp_path))
    own.write_text('[notify]\ncommand = "notify-send hello"\n')
    project.unlink()
    with pytest.raises(UsageError, match="a list with a program and its arguments"):
        load_effective_settings(str(project.parent), str(tmp_path))


def test_a_question_of_a_subagent_runs_the_program_and_a_failure_is_reported_at_the_end(house, tmp_path):
    made = tmp_path / "made"
    ask = {"name": "Ask", "arguments": {"question": "Which one?"}}
    model = house.script("asks", {"times": 2, "turns": [{"calls": [ask]}]})
    config = house.home / ".config" / "deputy" / "config.toml"
    config.parent.mkdir(parents=True)
    house.env["HOME"] = str(house.home)
    config.write_text(f"[notify]\ncommand = {[sys.executable, '-c', WRITE, str(made)]!r}\n")
    run = house.run("delegate", "-t", "a=x", "--yes", "--model", model)
    assert (run.returncode, "warning" in run.stderr) == (5, False), run.stderr
    assert "Deputy: [a] waits for you" in made.read_text()
    config.write_text('[notify]\ncommand = ["/no/such/program"]\n')
    run = house.run("delegate", "-t", "a=x", "--yes", "--model", model)
    assert run.stderr.count("/no/such/program") == 1
    assert run.stderr.splitlines()[-1].startswith("deputy: warning: The notify program /no/such/program cannot be st")
    assert run.stderr.count("[a] ? blocked") == 1
