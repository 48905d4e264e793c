"""`deputy init` on a machine without keys, against a server that speaks the protocol of OpenAI."""

import json
import tomllib

import pytest
from tests.support.programs import install_fake_programs

from deputy.core.model_script import ScriptedCall, ScriptedTurn
from deputy.models.tool_call_check import CODE_WORD
from deputy.testing import ProviderServer

READ = ScriptedTurn(calls=(ScriptedCall(name="Read", arguments={"path": "notes.txt"}),))
WORD = ScriptedTurn(text=CODE_WORD)
TALKS = ScriptedTurn(text="I have no tools.")


@pytest.fixture
def person(house, tmp_path):
    """A home with no settings, and no variables that name a model."""
    home = tmp_path / "person"
    home.mkdir()
    house.env = {**house.env, "HOME": str(home), "DEPUTY_MODEL": "", "PATH": "/usr/bin:/bin"}
    del house.env["OLLAMA_BASE_URL"]
    return home / ".config/deputy/config.toml"


def serving(*turns, models=("qwen3:8b", "nomic-embed")):
    return ProviderServer(*turns, models=models)


def test_at_a_terminal_a_model_is_chosen_tested_shown_and_written(house, person):
    with serving(READ, WORD, models=("tiny", "qwen3:8b")) as server:
        terminal = house.terminal("init", OLLAMA_HOST=server.url.removeprefix("http://"))
        terminal.until("Default model, by number or name [1]: ")
        terminal.type("7\n")
        terminal.until("[1]: ", after="Give a number from 1 to 2.")
        terminal.type("2\n")
        terminal.until("Write this file? [y/N] ")
        assert not person.exists()
        terminal.type("y\n")
        assert terminal.end() == 0
    shown = terminal.text.replace("\r", "")
    assert (
        f"✓ server    ollama at {server.url}/v1: 2 models\n· server    no answer: llamacpp, lmstudio, vllm\n" in shown
    )
    assert "   1  ollama:tiny      ollama has it\n" in shown
    assert "✓ test      ollama:qwen3:8b can do the job: it called the tool and used the" in shown
    assert '+default = "ollama:qwen3:8b"\n' in shown
    assert shown.endswith(f'Wrote {person}. Try: deputy ask "What is this project about?"\n')
    assert [line for line in shown.splitlines() if len(line) > 80 and str(person) not in line] == []
    assert tomllib.loads(person.read_text()) == {"models": {"default": "ollama:qwen3:8b"}}


def test_a_model_that_cannot_do_the_job_can_be_replaced(house, person):
    with serving(TALKS, models=("tiny",)) as server:
        terminal = house.terminal("init", OLLAMA_HOST=server.url)
        terminal.until("[1]: ")
        terminal.type("\n")
        terminal.until("✗ test      ollama:tiny cannot do the job: it answered without calling the tool")
        terminal.until("[1]: ", after="cannot do the job")
        terminal.type("\x04")
        assert terminal.end() == 1
    assert not person.exists()


def test_for_programs_yes_takes_the_first_model_and_json_says_what_was_done(house, person):
    with serving(READ, WORD) as server:
        run = house.run("init", "--yes", "--json", OLLAMA_HOST=server.url)
    form = json.loads(run.stdout)
    assert (run.returncode, form["model"], form["result"]) == (0, "ollama:qwen3:8b", "written")
    assert (form["test"]["result"], form["found"]["models"]) == ("works", ["ollama:qwen3:8b"])
    assert '+default = "ollama:qwen3:8b"' in run.stderr


def test_a_second_time_nothing_changes_and_another_model_keeps_the_rest_of_the_file(house, person):
    person.parent.mkdir(parents=True)
    person.write_text('# my words\n[models]\ndefault = "ollama:old" # mine\n[limits]\nconcurrency = 1\n')
    with serving(models=("old", "new")) as server:
        same = house.run("init", "--yes", "--no-test", OLLAMA_HOST=server.url)
        assert (same.returncode, same.stdout) == (0, f"{person} already says so.\n")
        refused = house.run("init", "--model", "ollama:new", "--no-test", OLLAMA_HOST=server.url)
        assert (refused.returncode, "pass --yes" in refused.stderr) == (6, True)
        shown = house.run("init", "--model", "ollama:new", "--no-test", "--dry-run", OLLAMA_HOST=server.url)
        assert (shown.returncode, '-default = "ollama:old" # mine' in shown.stderr) == (0, True)
        assert "ollama:old" in person.read_text()
        run = house.run("init", "--model", "ollama:new", "--no-test", "--yes", OLLAMA_HOST=server.url)
    assert run.returncode == 0
    assert person.read_text() == '# my words\n[models]\ndefault = "ollama:new" # mine\n[limits]\nconcurrency = 1\n'
    [backup] = [path for path in person.parent.iterdir() if path.suffix == ".bak"]
    assert 'default = "ollama:old"' in backup.read_text()
    assert f"The file before: {backup}" in run.stdout


def test_a_failed_test_writes_nothing(house, person):
    with serving(TALKS) as server:
        run = house.run("init", "--yes", OLLAMA_HOST=server.url)
    assert (run.returncode, run.stdout) == (1, "Nothing was written. To use the model anyway, add --no-test.\n")
    assert not person.exists()


def test_any_server_with_a_key_is_added_with_the_address_that_answers(house, person):
    with serving(READ, WORD, models=("big",)) as server:
        options = ("--server", server.url, "--name", "box", "--key-variable", "BOX_KEY")
        run = house.run("init", *options, "--yes", BOX_KEY="sk-box-secret-value")
    assert run.returncode == 0, run.stderr
    said = tomllib.loads(person.read_text())
    assert said["models"] == {"default": "box:big"}
    assert said["providers"]["box"]["key_variable"] == "BOX_KEY"
    assert said["providers"]["box"]["base_url"].removesuffix("/v1") == server.url
    assert {request.headers["authorization"] for request in server.asked} == {"Bearer sk-box-secret-value"}
    assert "sk-box-secret-value" not in run.stdout + run.stderr + person.read_text()


def test_a_server_without_a_key_is_free_and_has_its_version(house, person):
    with serving(READ, WORD, models=("big",)) as server:
        assert house.run("init", "--server", server.url, "--yes").returncode == 0
        form = json.loads(house.run("models", "mine", "--json").stdout)
    table = tomllib.loads(person.read_text())["providers"]["mine"]
    assert table == {"base_url": f"{server.url}/v1", "is_free": True}
    assert form["providers"][0]["models"][0]["dollars_per_million_input"] == 0


def test_a_server_that_does_not_answer_is_a_usage_error(house, person):
    run = house.run("init", "--server", "http://127.0.0.1:9", "--yes")
    assert (run.returncode, "nothing answers there (no answer from 127.0.0.1:9" in run.stderr) == (2, True)
    assert house.run("init", "--key-variable", "X", "--yes").returncode == 2


def log_in(person, file):
    """Make the file that a program has when its user is logged in."""
    login = person.parents[2] / file
    login.parent.mkdir(parents=True)
    login.write_text("{}")


def beside(folder):
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.rule("init.programs")
def test_a_program_of_another_agent_is_a_way_to_a_model_and_tested_by_one_turn(house, person, tmp_path):
    programs = install_fake_programs(tmp_path / "bin", ["claude", "gemini"])
    programs.play("claude", (READ, WORD))
    log_in(person, ".claude/.credentials.json")
    run = house.run("init", "--yes", "--json", **beside(programs.folder))
    form = json.loads(run.stdout)
    assert (run.returncode, form["model"]) == (0, "anthropic:claude-sonnet-5-5"), run.stderr
    assert (form["test"]["result"], form["test"]["message"]) == ("works", "claude read a file and used it")
    [call] = programs.calls("claude")
    assert call.cwd != str(house.workspace)
    assert "Testing one tool call with anthropic:claude-sonnet-5-5 through claude …" in run.stderr
    said = " ".join(run.stderr.split())
    assert "claude has no command that lists its models; Deputy knows anthropic:claude-sonnet-5-5," in said
    assert "gemini: no login found. Run `gemini` and log in, or set GEMINI_API_KEY." in said


def test_a_program_whose_turn_fails_is_not_written(house, person, tmp_path):
    programs = install_fake_programs(tmp_path / "bin", ["claude"])
    log_in(person, ".claude/.credentials.json")
    run = house.run("init", "--yes", "--json", **beside(programs.folder))
    assert (run.returncode, json.loads(run.stdout)["test"]["result"]) == (1, "no_use")
    programs.play("claude", (ScriptedTurn(faults=("bad_api_key",)),))
    run = house.run("init", "--yes", "--json", **beside(programs.folder))
    test = json.loads(run.stdout)["test"]
    assert (run.returncode, test["result"]) == (1, "failed")
    assert "log in" in test["remedy"]
    assert not person.exists()


LISTS = {
    "opencode": ("opencode/free\ngroq/big\n", ["opencode:opencode/free", "opencode:groq/big"]),
    "codex": (
        json.dumps(
            {
                "models": [
                    {"slug": "second", "visibility": "list", "priority": 2, "base_instructions": "…"},
                    {"slug": "internal", "visibility": "hide", "priority": 0},
                    {"slug": "best", "visibility": "list", "priority": 1},
                ]
            }
        ),
        ["openai:best", "openai:second"],
    ),
    "cursor-agent": (
        "Available models\n\nauto - Auto (default)\nnew-1 - New 1\n--evil - Evil\n\nTip: use --model <id> to switch.\n",
        ["cursor:auto", "cursor:new-1"],
    ),
    "copilot": (
        'Settings:\n\n  `model`: AI model to use.\n    - "one"\n    - "two"\n\n  `theme`: colours\n    - "dark"\n',
        ["copilot:one", "copilot:two"],
    ),
}


@pytest.mark.rule("init.programs")
@pytest.mark.parametrize("name", LISTS)
def test_the_models_that_a_program_lists_are_offered(house, person, tmp_path, name):
    programs = install_fake_programs(tmp_path / "bin", [name])
    printed, models = LISTS[name]
    programs.lists(name, printed)
    run = house.run("init", "--dry-run", "--yes", "--json", **beside(programs.folder))
    form = json.loads(run.stdout)
    [program] = form["found"]["programs"]
    assert (program["name"], program["models"], program["is_listed"]) == (name, models, True)
    assert form["found"]["models"] == models
    assert f"{name} has {', '.join(models)}" in " ".join(run.stderr.split())


@pytest.mark.rule("init.programs")
def test_a_program_without_a_login_is_not_taken_and_how_to_log_in_is_said(house, person, tmp_path):
    programs = install_fake_programs(tmp_path / "bin")
    programs.lists("opencode", "opencode/free\n")
    cursor = tmp_path / "person/.cursor/cli-config.json"
    cursor.parent.mkdir()
    cursor.write_text("{}")  # it has settings, but no login
    run = house.run("init", "--yes", "--json", **beside(programs.folder))
    form = json.loads(run.stdout)
    assert (run.returncode, form["model"], form["result"]) == (1, None, "declined")
    said = " ".join(run.stderr.split())
    assert "No model was taken: no usable key or server was found, and no login for claude, codex," in said
    assert "cursor-agent: no login found. Run `cursor-agent login`, or set CURSOR_API_KEY." in said
    assert "qwen has no command that lists its models; name one: qwen:MODEL" in said
    assert "cursor-agent listed no models; Deputy knows cursor:composer-1" in said
    assert {"opencode:opencode/free", "cursor:composer-1"} <= set(form["found"]["models"])
    assert not person.exists()


def test_the_list_of_cursor_shows_its_login(house, person, tmp_path):
    programs = install_fake_programs(tmp_path / "bin", ["cursor-agent", "claude"])
    programs.lists("cursor-agent", "Available models\n\nauto - Auto\n")
    programs.play("cursor-agent", (READ, WORD))
    run = house.run("init", "--yes", "--json", **beside(programs.folder))
    assert (run.returncode, json.loads(run.stdout)["model"]) == (0, "cursor:auto"), run.stderr


def test_without_any_model_the_remedy_is_named(house, person):
    run = house.run("init", "--yes", OLLAMA_HOST="127.0.0.1:9")
    assert (run.returncode, "Set a key such as ANTHROPIC_API_KEY" in run.stderr) == (1, True)
    assert not person.exists()


def test_a_file_that_cannot_be_followed_stays_and_the_lines_are_named(house, person):
    person.parent.mkdir(parents=True)
    person.write_text('models.default = "ollama:old"\n')
    with serving() as server:
        run = house.run("init", "--model", "ollama:new", "--no-test", "--yes", OLLAMA_HOST=server.url)
    assert run.returncode == 2
    assert "add by hand: [models] default = 'ollama:new'" in run.stderr
    assert person.read_text() == 'models.default = "ollama:old"\n'
