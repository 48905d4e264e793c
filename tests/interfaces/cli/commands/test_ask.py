import json

import pytest
from tests.support.command_house import entries
from tests.support.scripts import call, talk, turn


def test_the_answer_is_plain_in_a_pipe_and_the_next_question_goes_on_with_it(house):
    (house.workspace / "lamp.py").write_text("def light(): ...\n")
    reads = turn("", call("Read", path="lamp.py"))
    model = house.script("s", talk(reads, turn("# Found\n\nIn `lamp.py`."), turn("In *no* test.")))
    first = house.run("ask", "Where", "is", "light?", "--model", model)
    assert (first.returncode, first.stdout) == (0, "# Found\n\nIn `lamp.py`.\n"), first.stderr
    assert "[where-light] ✓ completed" in first.stderr
    further = house.run("ask", "-c", "And where is it tested?", "--model", model)
    assert (further.returncode, further.stdout) == (0, "In *no* test.\n"), further.stderr
    [entry] = entries(house)
    assert (entry["command"], entry["label"], entry["status"]) == ("ask", "where-light", "completed")


def test_json_is_the_outcome(house):
    model = house.script("s", talk(turn("Here.")))
    run = house.run("ask", "--json", "--model", model, stdin="Where is light?\n")
    form = json.loads(run.stdout)
    assert (form["status"], form["report"], form["model"]) == ("completed", "Here.", model)


@pytest.mark.rule("honest.model")
def test_without_a_model_nothing_is_asked_also_at_a_terminal(house):
    run = house.run("ask", "Where is light?", DEPUTY_MODEL="")
    assert (run.returncode, run.stdout) == (2, "")
    assert "no model is configured" in run.stderr
    terminal = house.terminal("ask", "Where is light?", DEPUTY_MODEL="")
    assert terminal.end() == 2
    assert "no model is configured" in " ".join(terminal.text.split())
    assert entries(house) == []


def test_at_a_terminal_the_answer_is_rendered_and_the_screen_says_how_to_go_on(house):
    model = house.script("s", talk(turn(f"# Found\n\nIn **lamp.py**, {'and so on, ' * 12}the end.")))
    terminal = house.terminal("ask", "Where is light?", "--model", model, columns=80)
    assert terminal.end() == 0
    assert "In lamp.py, and so on" in terminal.text, "Markdown is rendered"
    assert 'To continue: deputy ask -c "…"' in terminal.text
    assert "Go ahead?" not in terminal.text, "reading needs no approval"
    shown = terminal.text.replace("\r", "\n").replace(model, "m").split("\n")
    assert max(map(len, shown)) <= 80, shown


def test_it_only_reads_whatever_its_agent_may_do(house):
    agents = house.workspace / ".deputy" / "agents"
    agents.mkdir(parents=True)
    agents.joinpath("doer.md").write_text("---\nname: doer\ndescription: Does.\ntools: Read, Write\n---\nDo it.\n")
    writes = turn("", call("Write", path="new.txt", content="x"))
    model = house.script("s", talk(writes, turn("I may not write.")))
    run = house.run("ask", "--agent", "doer", "Write new.txt", "--model", model)
    assert run.stdout == "I may not write.\n", run.stderr
    assert not (house.workspace / "new.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-c", "And then?"), "-c: found no question in "),
        (("-c", "And then?", "--agent", "reviewer"), "--agent: found with -c; "),
        ((" ",), "QUESTION: found ' '; give the question as an argument"),
        (("Where?", "--agent", "nobody"), "nobody"),
    ],
)
def test_a_question_that_cannot_be_asked_says_why(house, arguments, said):
    run = house.run("ask", *arguments)
    assert run.returncode == 2
    assert said in run.stderr


def test_a_question_of_another_folder_is_not_continued(house):
    model = house.script("s", talk(turn("Here."), turn("There.")))
    assert house.run("ask", "Where is light?", "--model", model).returncode == 0
    other = house.workspace / "other"
    other.mkdir()
    run = house.run("ask", "-c", "And then?", "--model", model, "--workspace", str(other))
    assert run.returncode == 2
    assert f"-c: found no question in {other}" in run.stderr
