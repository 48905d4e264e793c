"""watch, resume and cancel: a run seen and steered from another process."""

import json
import os
import re
import signal
import sqlite3
from contextlib import closing

import pytest
from click.testing import CliRunner
from msgspec import structs
from tests.support.command_house import entries, until

from deputy import run_sync
from deputy.core.conversation import TokenUsage
from deputy.core.errors import UsageError
from deputy.interfaces.cli.commands.resume import command as resume
from deputy.testing import ModelScript, ProviderServer, ScriptedCall, ScriptedConversation, ScriptedTurn

MODEL = "anthropic:claude-sonnet-4-5"
NOTE = ScriptedCall(name="Note", arguments={"content": "The first finding."})


def provider(*turns: ScriptedTurn, times: int = 1) -> ProviderServer:
    turns = tuple(structs.replace(turn, usage=TokenUsage(input_tokens=1000, output_tokens=20)) for turn in turns)
    conversation = ScriptedConversation(turns=turns, times=times)
    return ProviderServer(ModelScript(conversations=(conversation,)), strict=False)


def noting_then(**last) -> tuple[ScriptedTurn, ...]:
    return ScriptedTurn(text="I look.", calls=(NOTE,)), ScriptedTurn(text="Report.", **last)


def begun(house, server, *labels: str):
    """A delegation at work in another process, all its subagents at their second model call; and its session id."""
    tasks = [part for label in labels for part in ("-t", f"{label}=look")]
    child = house.start("delegate", *tasks, "--model", MODEL, "--yes", "--events", "-", **server.environ)
    session_id, noted = "", 0
    for line in child.stdout:
        event = json.loads(line)
        session_id = event["session_id"] if event["event"] == "opened" else session_id
        noted += event["event"] == "note"
        if noted == len(labels):
            while len(server.asked) < 2 * len(labels):
                os.sched_yield()
            return child, session_id
    raise AssertionError("it ended before its time")


def test_watch_follows_a_run_to_its_end_from_another_terminal(house):
    with provider(*noting_then(delay_seconds=2)) as server:
        child, session_id = begun(house, server, "far")
        watching = house.terminal("watch", session_id)
        watching.until("✎ The first finding.")
        watching.until("[far] ✓ completed (in=2k out=40)")
        assert watching.end() == 0
        assert child.wait(10) == 0


def test_watch_without_an_id_takes_the_latest_and_tells_programs_too(house):
    assert house.run("watch").returncode == 3
    with provider(*noting_then(delay_seconds=2)) as server:
        child, _ = begun(house, server, "far")
        run = house.run("watch", "--json")
        child.wait(10)
    assert run.returncode == 0
    events = [json.loads(line) for line in run.stdout.splitlines()]
    assert events[0]["event"] == "started"
    assert events[-1] | {"event": "completed", "label": "far", "status": "completed"} == events[-1]
    assert any(event["event"] == "note" and event["content"] == "The first finding." for event in events)


def test_watch_follows_a_run_also_where_rows_of_the_journal_are_damaged(house):
    other = house.run("delegate", "-t", "a=look", "--yes", "--model", house.script("s", {"turns": [{"text": "Done."}]}))
    assert other.returncode == 0, other.stderr
    with provider(*noting_then(delay_seconds=2)) as server:
        child, session_id = begun(house, server, "far")
        with closing(sqlite3.connect(house.home / "journal.db", timeout=30)) as connection, connection:
            connection.execute("UPDATE runs SET state = replace(state, '\"status\":', '\"statut\":') WHERE NOT is_live")
            connection.execute("UPDATE runs SET sum = x'00' WHERE run = ?", (session_id,))
        watching = house.run("watch", session_id, "--json")
        assert child.wait(10) == 0
    assert "its checksum does not fit" in watching.stderr
    assert watching.returncode == 0, watching.stderr
    assert json.loads(watching.stdout.splitlines()[-1])["status"] == "completed"


def test_cancel_stops_a_run_of_another_process(house):
    with provider(*noting_then(faults=("silent",)), times=2) as server:
        child, session_id = begun(house, server, "a", "b")
        run = house.run("cancel", session_id, "--json")
        assert (run.returncode, json.loads(run.stdout)["status"]) == (0, "cancelled")
        assert child.wait(10) == 130
        again = house.run("cancel", session_id)
    said = f"deputy: {session_id} had already ended: cancelled. Its page: deputy show {session_id}\n"
    assert (again.returncode, again.stdout, again.stderr) == (3, "", said)
    assert house.run("cancel", "sess_1_nobody").returncode == 3


def test_cancel_of_a_process_that_stands_still_is_recorded_and_told_as_that(house):
    model = house.script("slow", {"turns": [{"text": "Late.", "delay_seconds": 3}]})
    child = house.start("delegate", "-t", "a=look", "--model", model, "--yes")
    until(lambda: [entry for entry in entries(house) if entry["parent"] and entry["under_way"]])
    child.send_signal(signal.SIGSTOP)
    call = next(entry for entry in entries(house) if entry["parent"] is None)["session_id"]
    run = house.run("cancel", call)
    assert (run.returncode, run.stdout) == (1, "")
    assert "the request to stop is recorded" in run.stderr
    assert f"deputy cancel {call}" in run.stderr
    assert "deputy resume" not in run.stderr
    child.send_signal(signal.SIGCONT)
    assert child.wait(20) == 130, "whatever its task came to, the call is cancelled"
    assert next(entry for entry in entries(house) if entry["parent"] is None)["status"] == "cancelled"


@pytest.mark.rule("recover")
def test_what_a_killed_process_left_is_shown_and_resumed_and_paid_once(house):
    with provider(*noting_then(faults=("silent",)), times=2) as server:
        child, session_id = begun(house, server, "a", "b")
        child.send_signal(signal.SIGKILL)
        child.wait()
        left = house.run("watch", session_id)
        assert left.returncode == 4
        assert f"deputy resume {session_id}" in left.stderr
        assert left.stderr.startswith("Delegate [2 subagents]\n")
        assert "total  2 interrupted · " in left.stderr, "no run is shown as running"
        run = house.run("resume", session_id, **server.environ)
        assert run.returncode == 0, run.stderr
        assert run.stdout.startswith("## Subagents: 2 completed of 2")
        answered = sorted(asked.answered for asked in server.asked)
    assert answered[:2] == [0, 0], "no finished model call was made again"
    assert set(answered[2:]) == {1}


@pytest.mark.rule("delegate.cancel")
def test_cancel_ends_all_of_a_tree_whose_process_was_killed(house):
    folder = house.home / ".deputy" / "agents"
    folder.mkdir(parents=True)
    (folder / "boss.md").write_text("---\nname: boss\ndescription: leads\ntools: Read, Delegate\n---\nYou lead.\n")
    house.env["HOME"] = str(house.home)
    leaves = [{"label": f"leaf{number}", "prompt": "deep"} for number in (1, 2)]
    led = {"calls": [{"name": "Delegate", "arguments": {"tasks": leaves}}]}
    deep = {"when": "deep", "times": 6, "turns": [{"text": "Deep.", "delay_seconds": 60}]}
    bosses = [{"label": label, "prompt": "lead", "agent": "boss"} for label in "abc"]
    top = {"calls": [{"name": "Delegate", "arguments": {"tasks": bosses, "concurrency": 3}}]}
    model = house.script(
        "tree",
        deep,
        {"when": "lead", "times": 3, "turns": [led, {"text": "Led."}]},
        {"when": "begin", "turns": [top, {"text": "Done."}]},
    )
    child = house.start("run", "begin", "--yes", "--model", model)
    until(lambda: sum(entry["label"].startswith("leaf") for entry in entries(house)) == 6)
    child.send_signal(signal.SIGKILL)
    child.wait()
    call = next(entry["session_id"] for entry in entries(house) if entry["parent"] is None)
    assert house.run("cancel", call).returncode == 0
    assert {entry["status"] for entry in entries(house)} == {"cancelled"}


@pytest.mark.rule("resume")
def test_resume_asks_the_person_what_the_subagent_asked(house):
    ask = ScriptedCall(name="Ask", arguments={"question": "Which one?"})
    turns = (ScriptedTurn(calls=(ask,)), ScriptedTurn(text="The second, then."))
    with provider(*turns) as server:
        run = house.run("delegate", "-t", "a=choose", "--model", MODEL, "--yes", "--json", **server.environ)
        assert run.returncode == 5
        [result] = json.loads(run.stdout)["results"]
        assert result["question"] == "Which one?"
        terminal = house.terminal("resume", result["session_id"], **server.environ)
        terminal.until("asks: Which one?\r\n> ")
        terminal.type("the second\n")
        assert terminal.end() == 0
        assert "The second, then." in terminal.text
        assert any("the second" in str(asked) for asked in server.asked[1:])


def test_resume_says_why_it_cannot(house):
    model = house.script("ask", {"turns": [{"calls": [{"name": "Ask", "arguments": {"question": "Which one?"}}]}]})
    [blocked] = run_sync("choose", model=model, workspace=house.workspace, home=house.home)
    environ = {"DEPUTY_HOME": str(house.home)}
    refused = CliRunner(env=environ).invoke(resume, [blocked.session_id]).exception
    assert isinstance(refused, UsageError)
    assert "--answer" in str(refused)
    assert "Which one?" in str(refused)
    assert CliRunner(env=environ).invoke(resume, ["sess_1_nobody"]).exit_code == 3
    model = house.script("done", {"turns": [{"text": "Done."}]})
    [done] = run_sync("do", model=model, workspace=house.workspace, home=house.home)
    refused = CliRunner(env=environ).invoke(resume, [done.session_id]).exception
    assert "this run is completed" in str(refused)


@pytest.mark.rule("resume")
def test_show_no_longer_tells_to_answer_what_has_been_answered(house):
    ask = {"name": "Ask", "arguments": {"question": "Which one?"}}
    model = house.script("both", {"times": 2, "turns": [{"calls": [ask]}, {"text": "Chosen."}]})
    assert house.run("delegate", "-t", "a=x", "-t", "b=y", "--model", model, "--yes").returncode == 5
    call, one, other = [entry["session_id"] for entry in entries(house)]
    assert house.run("resume", one, "--answer", "this").returncode == 0
    page = house.run("show", call).stdout
    assert f"deputy resume {one}" not in page
    assert "It has been answered." in page
    assert f'Answer it: deputy resume {other} --answer "…"' in page


@pytest.mark.rule("resume")
def test_cancel_of_what_was_left_of_a_call_shows_it_as_it_stands_now_and_the_way_on(house):
    ask = {"name": "Ask", "arguments": {"question": "Which one?"}}
    asking = {"when": "choose", "turns": [{"calls": [ask]}, {"text": "Chosen."}]}
    model = house.script("mixed", asking, {"when": "work", "turns": [{"text": "Worked."}]})
    run = house.run("delegate", "-t", "a=choose", "-t", "b=work", "--model", model, "--yes", "--json")
    call, remedy = json.loads(run.stdout)["session_id"], "Continue the incomplete tasks: deputy resume {}"
    first = house.run("cancel", call, "--json")
    outcome = json.loads(first.stdout)
    assert (first.returncode, outcome["status"]) == (0, "partial")
    assert [result["status"] for result in outcome["results"]] == ["cancelled", "ok"]
    assert [error["type"] for error in outcome["errors"]] == ["cancelled"]
    assert outcome["next_steps"] == remedy.format(call)
    again = house.run("cancel", call)
    said = f"deputy: {call} had already ended: partial. Its page: deputy show {call}\n"
    assert (again.returncode, again.stdout, again.stderr) == (3, "", said)
    page = house.run("show", call).stdout
    told = " ".join(page.partition("\nNEXT\n")[2].split())
    assert told.startswith(f"It has been cancelled. {remedy.format(call)}")
    assert "Answer it" not in first.stdout + again.stdout + again.stderr + page
    assert house.run("resume", call).stdout.startswith("## Subagents: 2 completed of 2")


@pytest.mark.rule("resume")
def test_a_call_that_is_resumed_has_one_view_of_its_resumed_tasks(house):
    ask = {"name": "Ask", "arguments": {"question": "Which one?"}}
    asking = {"when": "choose", "times": 2, "turns": [{"calls": [ask]}, {"text": "Chosen."}]}
    model = house.script("mixed", asking, {"when": "work", "turns": [{"text": "Worked."}]})
    tasks = ("-t", "a=choose", "-t", "b=work", "-t", "c=choose")
    run = house.run("delegate", *tasks, "--model", model, "--yes", "--json")
    assert run.returncode == 4
    call = json.loads(house.run("ps", "--json").stdout)["delegations"][0]
    assert call["command"] == "delegate"
    terminal = house.terminal("resume", call["session_id"])
    for _ in range(2):
        terminal.until("asks: Which one?\r\n> ")
        terminal.shown = ""
        terminal.type("this\n")
    assert terminal.end() == 0
    assert "Delegate [2 subagents]" in terminal.text
    assert "total  2 completed" in terminal.text
    assert "3 subagents" not in terminal.text
    assert "Subagents: 3 completed of 3" in terminal.text


@pytest.mark.rule("resume")
def test_a_parent_that_is_resumed_is_no_subagent_and_ends_with_what_it_used(house):
    model = house.script("one", {"turns": [{"faults": ["bad_request"]}]})
    run = house.run("run", "do it", "--model", model, "--json")
    assert run.returncode == 1
    house.script("one", {"turns": [{"text": "Done.", "usage": {"input_tokens": 700, "output_tokens": 9}}]})
    session_id = json.loads(run.stdout)["session_id"]
    again = house.run("resume", session_id)
    assert (again.returncode, again.stdout) == (0, "Done.\n")
    assert re.fullmatch(
        rf"{session_id} completed · in=700 out=9 · cost unknown · \d\.\ds · {re.escape(model)}\n", again.stderr
    ), again.stderr


@pytest.mark.rule("resume")
def test_a_task_that_ran_out_of_time_unseen_goes_on_with_its_call_and_is_shown_with_all_that_it_used(house):
    (house.workspace / "deputy.toml").write_text("[limits.commands.delegate]\ndefault = 4\nmax = 4\n")
    with provider(*noting_then(faults=("silent",))) as server:
        child, session_id = begun(house, server, "a")
        child.send_signal(signal.SIGKILL)
        child.wait()
        until(lambda: " partial " in house.run("ps", "--all").stdout, seconds=20)
        run = house.run("resume", session_id, **server.environ)
    lines = run.stderr.splitlines()
    assert "[a] ✓ completed (in=2k out=40) " in lines[-2], run.stderr
    assert lines[-1].startswith("total  1 completed · in=2k out=40 · ")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_where_standard_output_has_the_events_the_outcome_is_the_last_of_them(house, form):
    model = house.script("one", {"turns": [{"faults": ["bad_request"]}]})
    run = house.run("run", "do it", "--model", model, "--events", "-", *form)
    first, *_, last = [json.loads(line) for line in run.stdout.splitlines()]
    assert (run.returncode, first["event"], last["event"], last["status"]) == (1, "opened", "result", "failed")
    house.script("one", {"turns": [{"text": "Done."}]})
    again = house.run("resume", first["session_id"], "--events", "-", *form)
    last = json.loads(again.stdout.splitlines()[-1])
    assert (again.returncode, last["event"], last["status"], last["report"]) == (0, "result", "completed", "Done.")


def test_watching_ends_when_its_output_is_closed(house):
    with provider(*noting_then(faults=("silent",))) as server:
        child, session_id = begun(house, server, "far")
        watching = house.start("watch", session_id, "--json")
        assert json.loads(watching.stdout.readline())["event"] == "started"
        watching.stdout.close()
        assert watching.wait(10) == 130
        child.send_signal(signal.SIGTERM)
        child.stdout.read()
        assert child.wait(10) == 130


def test_a_task_that_was_refused_is_not_advised_to_go_on(house):
    (house.workspace / "deputy.toml").write_text("[limits]\nmax_depth = 0\n")
    run = house.run("delegate", "-t", "a=x", "--model", "offline:scout", "--yes", "--json")
    assert run.returncode == 6
    assert "resume" not in run.stderr
    refused = json.loads(run.stdout)["results"][0]["session_id"]
    again = house.run("resume", refused)
    assert again.returncode == 2
    assert "this run was rejected and never started" in again.stderr


def test_a_run_that_is_over_is_shown_with_the_time_that_it_took(house):
    with provider(*noting_then(delay_seconds=1.2)) as server:
        run = house.run("delegate", "-t", "far=look", "--model", MODEL, "--yes", "--json", **server.environ)
    shown = house.run("watch", json.loads(run.stdout)["session_id"]).stderr
    times = [float(found) for found in re.findall(r" (\d\.\d)s", shown)]
    assert len(times) == 4, shown
    assert times[0] == 0.0, "all times are those since the subagent began"
    assert times == sorted(times)
    assert 1.2 <= times[-1] < 10, shown


def test_watch_rings_the_bell_at_a_terminal_when_something_waits(house):
    model = house.script(
        "m", {"turns": [{"calls": [{"name": "Ask", "arguments": {"question": "Which?"}}]}, {"text": "Done."}]}
    )
    asking = house.terminal("delegate", "-t", "a=look", "--yes", "--model", model)
    asking.until("[a] asks: Which?")
    watching = house.terminal("watch")
    watching.until("[a] ? asks: Which?")
    watching.until("\a")
    asking.until("> ", after="asks: Which?\r\n")
    asking.type("This one.\n")
    assert watching.end() == 0
    assert watching.shown.count("\a") == 1


def test_watch_shows_what_a_parent_asks(house):
    asks = {"calls": [{"name": "Run", "arguments": {"command": "ls"}}]}
    house.start("run", "do", "--wait", "--model", house.script("m", {"turns": [asks, {"text": "Done."}]}))
    until(lambda: [entry for entry in entries(house) if entry["status"] == "waiting"])
    watching = house.terminal("watch")
    watching.until("? asks: Use Run: ls")
    watching.until("\a")
