import json
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from click.testing import CliRunner
from tests.support.programs import install_fake_programs

from deputy.core.model_script import ScriptedCall, ScriptedTurn
from deputy.interfaces.cli.commands.doctor import command
from deputy.models.tool_call_check import CODE_WORD
from deputy.testing import ProviderServer


def doctor(house, *arguments: str, **env: str):
    unset = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "DEPUTY_MODEL"))
    return CliRunner(env={**unset, **house.env, **env}).invoke(command, arguments)


@pytest.mark.rule("honest.model")
def test_a_fresh_machine_has_no_model_and_says_how_to_get_one(house):
    run = house.run("doctor", DEPUTY_MODEL="")
    assert run.returncode == 1
    assert "✗ model     none: no model is named, no key is set, and no local" in run.stdout
    assert "ANTHROPIC_API_KEY" in run.stdout
    assert "✓ search    ripgrep" in run.stdout
    assert not house.home.exists(), "looking makes nothing"


def checks(form, name):
    return [(check["status"], check["found"]) for check in form["checks"] if check["name"] == name]


def test_it_says_which_model_and_why(house):
    env = {"OPENAI_API_KEY": "sk-secret-value", "DEPUTY_MODEL": ""}
    with ProviderServer(models=("gpt-5.2", "gpt-5"), strict=False) as server:
        form = json.loads(house.run("doctor", "--json", OPENAI_BASE_URL=f"{server.url}/v1", **env).stdout)
        assert server.asked == [], "a call would cost"
    assert (form["ok"], form["model"], form["reason"]) == (True, "openai:gpt-5.2", "OPENAI_API_KEY is set")
    assert checks(form, "keys") == [("ok", "OPENAI_API_KEY: openai has 2 models")]
    assert checks(form, "call") == [("hint", "not tested")]
    assert "sk-secret-value" not in json.dumps(form)


@pytest.mark.parametrize(("fault", "said"), [("refused", "(status 401)"), ("gone", "no answer from 127.0.0.1:9")])
def test_a_key_that_is_refused_or_a_server_that_is_gone_must_be_fixed(house, fault, said):
    listing = HTTPServer(("127.0.0.1", 0), Refusing)
    with listing:
        Thread(target=listing.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{9 if fault == 'gone' else listing.server_port}"
        run = doctor(house, "--json", OPENAI_API_KEY="sk-secret-value", DEPUTY_MODEL="gpt-5.2", OPENAI_BASE_URL=address)
        listing.shutdown()
    [(status, found)] = checks(json.loads(run.stdout), "model")
    assert (run.exit_code, status, said in found) == (1, "bad", True)


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(401)
        self.end_headers()

    def log_message(self, *_):
        pass


def test_a_free_model_is_tested_with_one_tool_call_and_others_when_asked(house):
    turns = (
        ScriptedTurn(calls=(ScriptedCall(name="Read", arguments={"path": "notes.txt"}),)),
        ScriptedTurn(text=CODE_WORD),
    )
    for arguments, model in (((), "ollama:qwen3"), (("--call",), "openai-chat:qwen3")):
        with ProviderServer(*turns, models=("qwen3",)) as server:
            run = house.run("doctor", "--json", *arguments, DEPUTY_MODEL=model, **server.environ)
        form = json.loads(run.stdout)
        [(status, found)] = checks(form, "call")
        assert (run.returncode, status) == (0, "ok")
        assert found.startswith("it called the tool and used the result (")
        assert ("ok", f"ollama at {server.url}/v1: 1 model") in checks(form, "servers")


def test_a_free_model_that_cannot_call_tools_must_be_replaced(house):
    with ProviderServer(ScriptedTurn(text="No tools."), models=("tiny", "other")) as server:
        run = house.run("doctor", DEPUTY_MODEL="ollama:tiny", OLLAMA_BASE_URL=server.url)
    assert run.returncode == 1
    assert "✗ call      it answered without calling the tool" in run.stdout
    assert "Set one of ANTHROPIC_API_KEY" not in run.stdout, "a model needs no key here"


def test_a_model_that_its_server_does_not_list_is_a_hint(house):
    with ProviderServer(models=("gpt-5",), strict=False) as server:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": server.url, "DEPUTY_MODEL": "openai:gpt-9"}
        form = json.loads(doctor(house, "--json", **env).stdout)
    assert checks(form, "model") == [("hint", "openai:gpt-9: DEPUTY_MODEL names it; its server does not list it")]


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"DEPUTY_MODEL": "anthropic:claude-sonnet-4-5"}, "It needs a key: set ANTHROPIC_API_KEY"),
        ({"DEPUTY_MODEL": "nonsense"}, "write provider:model"),
        ({"DEPUTY_MODEL": "script:/no/such/script"}, "the script cannot be read"),
        ({"DEPUTY_MODEL": "composer-1"}, "Only its own program can use it"),
        ({"DEPUTY_HOME": "/dev/null"}, "it is not a directory"),
        ({"DEPUTY_HOME": "/dev/null/below"}, "Not a directory"),
        ({"DEPUTY_HOME": "/proc/self/home"}, "DEPUTY_HOME"),
    ],
)
def test_what_must_be_done_first_is_said_and_is_exit_code_one(house, env, said):
    run = doctor(house, **env)
    assert run.exit_code == 1
    assert said in run.stdout


def test_a_home_that_takes_nothing_is_found_by_writing_to_it(house):
    house.home.mkdir(mode=0o700)
    line = f"ulimit -f 1; {sys.executable} -m deputy doctor"
    run = subprocess.run(["sh", "-c", line], env=house.env, cwd=house.workspace, capture_output=True, text=True)
    assert run.returncode == 1
    assert f"✗ home      {house.home}: File too large" in run.stdout
    assert list(house.home.iterdir()) == [], "what was tried is taken back"


def test_a_journal_whose_pages_are_gone_is_not_taken_for_an_empty_one(house):
    assert house.run("delegate", "-y", "-t", "a=Where is it?").returncode == 0
    journal = house.home / "journal.db"
    pages = journal.stat().st_size // 4096
    with journal.open("r+b") as file:
        file.seek(2 * 4096)
        file.write(b"\xa5" * 4096 * (pages - 2))
    for name in ("doctor", "ps"):
        run = house.run(name)
        assert run.returncode == 1, run.stdout
        assert f"{journal}: database disk image is malformed" in run.stdout + run.stderr


@pytest.mark.parametrize("page", [6, 9, 10])
def test_a_page_that_no_run_needs_is_found_and_repaired(house, page):
    assert house.run("delegate", "-y", "-t", "a=Where is it?").returncode == 0
    listed = json.loads(house.run("ps", "--all", "--json").stdout)["delegations"]
    journal = house.home / "journal.db"
    content = journal.read_bytes()
    journal.write_bytes(content[: (page - 1) * 4096] + bytes(4096) + content[page * 4096 :])
    run = doctor(house)
    assert run.exit_code == 1
    assert f"✗ home      {journal}: " in run.stdout
    assert "Run `deputy doctor --repair`" in " ".join(run.stdout.split())
    run = doctor(house, "--repair")
    assert run.exit_code == 0, run.output
    kept = next(path for path in house.home.iterdir() if path.name.startswith("damaged-"))
    assert run.stdout.endswith(f"The damaged files are in {kept}.\n")
    assert (kept / "journal.db").read_bytes() == content[: (page - 1) * 4096] + bytes(4096) + content[page * 4096 :]
    assert doctor(house).exit_code == 0
    ps = house.run("ps", "--all", "--json")
    assert (ps.returncode, json.loads(ps.stdout)["delegations"]) == (0, listed)


def test_settings_that_cannot_be_read_are_named(house):
    (house.workspace / "deputy.toml").write_text("[limits]\nrepairs = 9\n")
    run = house.run("doctor")
    assert run.returncode == 1
    assert "✗ settings  deputy.toml: limits.repairs: found 9; must be a whole number from 0 to 2" in run.stdout
    assert "· model     not checked: the settings, which may name a model, have a mistake" in run.stdout
    assert "no model is named" not in run.stdout
    form = json.loads(house.run("doctor", "--json").stdout)
    assert (form["model"], form["reason"]) == (None, "the settings, which may name a model, have a mistake")


def test_the_model_of_the_configuration_is_taken(house):
    person = house.workspace.parent / "person"
    (person / ".config/deputy").mkdir(parents=True)
    (person / ".config/deputy/config.toml").write_text('[models]\ndefault = "sonnet"\n')
    form = json.loads(doctor(house, "--json", HOME=str(person), ANTHROPIC_API_KEY="k", DEPUTY_MODEL="").stdout)
    assert (form["model"], form["reason"]) == ("sonnet", "your config.toml names it")


def test_on_a_narrow_terminal_its_lines_stand_below_each_other(house):
    terminal = house.terminal("doctor", columns=40)
    assert terminal.end() == 0
    lines = terminal.text.replace("\r", "").splitlines()
    assert all(line.startswith(("✓ ", "· ", " " * 12)) for line in lines)


def test_it_says_which_programs_of_other_agents_are_there(house, tmp_path):
    programs = install_fake_programs(tmp_path / "bin")
    programs.play("cursor-agent", (), version="1.0.3")
    form = json.loads(
        house.run("doctor", "--json", PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin", OPENAI_API_KEY="sk-test").stdout
    )
    found = [check for check in form["checks"] if check["name"] == "programs"]
    assert "claude 2.1.325 (Claude Code), codex codex-cli 0.166.0, gemini" in found[0]["found"]
    assert "cursor-agent has the wrong version" in found[1]["found"]
    assert "another program" in found[1]["advice"]


def test_it_repeats_which_models_programs_have_and_how_to_log_in(house, tmp_path):
    programs = install_fake_programs(tmp_path / "bin", ["opencode", "qwen"])
    programs.lists("opencode", "opencode/free\n")
    ran = house.run("doctor", "--json", HOME=str(tmp_path), PATH=f"{programs.folder}:/usr/bin:/bin")
    found = [check for check in json.loads(ran.stdout)["checks"] if check["name"] == "models"]
    assert [(check["status"], check["found"]) for check in found] == [
        ("ok", "opencode has opencode:opencode/free"),
        ("hint", "qwen has no command that lists its models; name one: qwen:MODEL"),
    ]
    assert found[0]["advice"].startswith("opencode: no login found. Run `opencode auth login`")


def test_a_model_that_only_a_program_can_call_is_well_when_the_program_is_logged_in(house, tmp_path):
    programs = install_fake_programs(tmp_path / "bin", ["claude"])
    programs.play("claude", (ScriptedTurn(text=CODE_WORD),))
    given = {"HOME": str(tmp_path), "PATH": f"{programs.folder}:/usr/bin:/bin", "DEPUTY_MODEL": "haiku"}
    form = json.loads(house.run("doctor", "--json", **given).stdout)
    assert ("hint", "claude has it, but no login was found") in [
        (check["status"], check["found"].rpartition("; ")[2]) for check in form["checks"] if check["name"] == "model"
    ]
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/.credentials.json").write_text("{}")
    ran = house.run("doctor", "--json", "--call", **given)
    form = json.loads(ran.stdout)
    said = {check["name"]: (check["status"], check["found"]) for check in form["checks"]}
    assert said["model"] == ("ok", "haiku: DEPUTY_MODEL names it; executed by the program claude")
    assert said["call"][0] == "ok"
    assert said["call"][1].startswith("claude read a file and used it")
    assert ran.returncode == 0


@pytest.mark.parametrize("make", [lambda place: place.write_text(""), lambda place: place.symlink_to("elsewhere")])
def test_what_stands_where_subagents_leave_their_files_is_found(house, make):
    house.home.mkdir(mode=0o700)
    make(house.home / "subagent")
    run = doctor(house)
    assert run.exit_code == 1
    assert "subagent is not a folder" in " ".join(run.stdout.split())


def test_a_sandbox_that_is_set_must_work(house, tmp_path):
    config = tmp_path / "person/.config/deputy/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[tools.run]\nsandbox = "bwrap"\n')
    run = doctor(house, "--json", HOME=str(tmp_path / "person"), PATH=str(tmp_path))
    [(status, found)] = checks(json.loads(run.stdout), "sandbox")
    assert (run.exit_code, status, "it is not installed" in found) == (1, "bad", True)
    config.write_text("")
    assert checks(json.loads(doctor(house, "--json", HOME=str(tmp_path / "person")).stdout), "sandbox") == []
