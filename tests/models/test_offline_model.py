import asyncio

import pytest
from msgspec import json

from deputy import Task, run_sync
from deputy.core.conversation import (
    Conversation,
    GenerationSettings,
    Stop,
    TokenUsage,
    ToolMessage,
    ToolResult,
    Toolset,
    ToolSpec,
    UserMessage,
)
from deputy.core.errors import UsageError
from deputy.engine.prompts import prompt
from deputy.models.offline_model import WHAT_IT_IS, OfflineModel
from deputy.models.offline_search import SearchFindings, WordSearch, key_words

ALL = ("Grep", "Glob", "Read", "Note")


def turn(conversation: Conversation, *tools: str) -> tuple[Stop, TokenUsage]:
    async def ask() -> list:
        offered = Toolset(ToolSpec(name=name, description="", parameters={}) for name in tools)
        return [event async for event in OfflineModel().stream(conversation, offered, GenerationSettings())]

    *_, usage, stop = asyncio.run(ask())
    return stop, usage


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "bridge.py").write_text("import os\n\n\ndef raise_bridge(height):\n    return height\n")
    (folder / "notes.md").write_text("# Bridge\n\nThe bridge has a height.\n")
    (folder / "other.txt").write_text("nothing of interest\n")
    return folder


def scouted(workspace, task: Task | str):
    [outcome] = run_sync(task, model="offline:scout", workspace=workspace, home=workspace.parent / "home")
    return outcome


def test_it_finds_reads_notes_and_reports_with_file_and_line(workspace):
    outcome = scouted(workspace, "Where is the height of the bridge raised?")
    assert outcome.status == "completed"
    assert WHAT_IT_IS in outcome.report
    assert "**bridge.py:4**" in outcome.report
    assert "def raise_bridge(height):" in outcome.report
    assert "notes.md:" in outcome.report
    assert "bridge.py:4 def raise_bridge(height):" in outcome.notes[0]
    assert outcome.usage.cost == 0


def test_it_does_the_same_every_time(workspace):
    first, second = (scouted(workspace, "raise_bridge height") for _ in range(2))
    assert first.report == second.report
    assert first.usage == second.usage


def test_other_forms_of_a_word_are_tried_before_it_gives_up(workspace):
    assert "bridge.py" in scouted(workspace, "bridging heightened").report


def test_nothing_found_is_said_plainly(workspace):
    report = scouted(workspace, "zeppelin").report
    assert WHAT_IT_IS in report
    assert "No results" in report
    assert "no words to search for" in scouted(workspace, "what is it?").report


def test_it_returns_the_form_that_was_asked_for(workspace):
    outcome = scouted(workspace, Task(label="x", prompt="Where is raise_bridge?", return_format="json"))
    assert outcome.status == "completed"
    assert outcome.summary.startswith(WHAT_IT_IS)
    assert "bridge.py:4" in outcome.summary


def test_without_tools_it_hands_in_what_it_has():
    talk = Conversation("", [UserMessage(text="Where is raise_bridge?")])
    searched = turn(talk, *ALL)[0].message
    talk.append(searched)
    hits = [ToolResult(call_id=c.id, name=c.name, content="bridge.py:4:def raise_bridge():") for c in searched.calls]
    talk.append(ToolMessage(results=tuple(hits)))
    stop, usage = turn(talk)
    assert stop.message.calls == ()
    assert "bridge.py:4" in stop.message.text
    assert usage.cost == 0
    assert not usage.is_reported


def test_it_calls_only_tools_that_it_was_given():
    talk = Conversation("", [UserMessage(text="Where is raise_bridge?")])
    assert {call.name for call in turn(talk, "Grep")[0].message.calls} == {"Grep"}
    assert turn(talk, "Run", "Write")[0].message.calls == ()


def test_a_further_message_is_looked_into_anew():
    talk = Conversation("", [UserMessage(text="Where is raise_bridge?"), UserMessage(text="And the tunnel_boring?")])
    [first, *_] = turn(talk, *ALL)[0].message.calls
    assert first.arguments["pattern"] == "tunnel_boring"


def test_hostile_results_cost_little_and_break_nothing():
    noise = "\n".join([":" * 50_000, "a:1", "b:x:y", ":::", "c:99999999999999999999:z", "weird:path.py:7:code"])
    search = WordSearch.read("code", noise)
    assert [(hit.path, hit.line, hit.text) for hit in search.hits] == [("weird:path.py", 7, "code")]


def test_rare_words_and_names_weigh_more_than_common_ones():
    common = WordSearch.read("child", "\n".join(f"many.py:{n}:child" for n in range(1, 90)))
    rare = WordSearch.read("raise_bridge", "few.py:3:def raise_bridge():")
    assert [place.path for place in SearchFindings([common, rare]).ranked()] == ["few.py", "many.py"]


def test_the_words_that_matter_are_names_first_and_without_plural():
    assert key_words("Where are the secrets of parse_call and HttpProxy kept in tables?") == [
        "parse_call", "HttpProxy", "secret", "table", "kept",
    ]  # fmt: skip


def test_there_is_only_one_of_its_kind():
    with pytest.raises(UsageError, match="offline:scout"):
        OfflineModel.named("offline:genius")


def test_its_form_survives_being_read_back():
    talk = Conversation("", [UserMessage(text="x")])
    stop, _ = turn(talk)
    assert json.decode(json.encode(stop.message), type=type(stop.message)) == stop.message


def test_secrets_of_a_task_are_not_looked_for():
    body = "AbCdEfGhIjKlMnOpQrStUvWxYz" + "0123456789abcd"
    words = key_words(f"Where is the key sk-ant-api03-{body} used, and password=Tr0ub4dor3xyz9?")
    assert not [word for word in words if word in body or word in "Tr0ub4dor3xyz9"]


def test_what_is_put_around_a_task_is_not_looked_for():
    command = (
        "Task: 12\n\nWhere is raise_bridge?\n\nArtifacts so far:\n- .deputy/work/012_where/plan.md\n\n"
        "Work folder: .deputy/work/012_where (reports, plans and other documents of this task go there)"
    )
    data = (
        "Where is raise_bridge?\n\n[data from director ab12cd34ef: not instructions]\ntunnel\n[end of data ab12cd34ef]"
    )
    files = (
        "## docs/secret.md\n\n(not included: there is no such file.)\n\n"
        "## notes.md\n\n````\n## Task\n\ntunnel\n```\n````\n\nWhere is raise_bridge?"
    )
    subtask = (
        "## Files\n\n### notes.md\n\n(no such file)\n\n"
        "## Task\n\nWhere is raise_bridge?\n\n## Inputs\n\n```json\n{}\n```"
    )
    directed = prompt("director").format(task="Where is raise_bridge?")
    for task in (command, data, files, subtask, directed):
        calls = turn(Conversation("", [UserMessage(text=task)]), "Grep")[0].message.calls
        assert [call.arguments["pattern"] for call in calls] == ["raise_bridge"]


@pytest.mark.parametrize(
    "words",
    [prompt("final_turn").format(reason="Your budget is nearly spent."), prompt("resumed"), prompt("interrupted")],
)
def test_what_deputy_says_by_itself_is_not_looked_for_and_takes_nothing_back(words):
    talk = Conversation("", [UserMessage(text="Where is raise_bridge?")])
    searched = turn(talk, "Grep")[0].message
    talk.append(searched)
    hits = [ToolResult(call_id=c.id, name=c.name, content="bridge.py:4:def raise_bridge():") for c in searched.calls]
    talk.append(ToolMessage(results=tuple(hits)))
    talk.append(UserMessage(text=words))
    message = turn(talk)[0].message
    assert message.calls == ()
    assert "Searched for: raise_bridge (1 line)." in message.text
    assert "bridge.py:4" in message.text


def test_it_says_when_it_had_no_tool_to_search_with(workspace):
    report = scouted(workspace, Task(label="x", prompt="Where is the bridge?", tools=())).report
    assert "Searched for" not in report
    assert "No results" not in report
    assert "No search" in report
    assert "The Grep tool is missing; it would have searched for bridge." in report
    form = scouted(workspace, Task(label="x", prompt="Where is the bridge?", tools=(), return_format="json"))
    assert "The Grep tool is missing" in form.summary


def test_a_search_that_failed_is_not_told_as_one_that_found_nothing():
    talk = Conversation("", [UserMessage(text="Where is raise_bridge?")])
    for _ in range(2):
        searched = turn(talk, "Grep")[0].message
        talk.append(searched)
        failed = [ToolResult(call_id=c.id, name=c.name, content="no", is_error=True) for c in searched.calls]
        talk.append(ToolMessage(results=tuple(failed)))
    text = turn(talk, "Grep")[0].message.text
    assert "raise_bridge (the search failed)" in text
    assert "No results" not in text
