"""Settings: found where they belong, the nearer over the farther, and wrong ones named exactly."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.every_case import every_case

from deputy.config import (
    load_catalog,
    load_command_agents,
    load_effective_settings,
    load_tables,
    load_user,
    mcp_servers,
)
from deputy.config.settings import JournalSettings, McpSettings, UserSettings
from deputy.config.settings_file import LIMIT_BYTES, read_settings
from deputy.core.detect import SHIPPED, detect
from deputy.core.effective_settings import EffectiveSettings
from deputy.core.errors import UsageError
from deputy.core.limits import WallLimit
from deputy.models.catalog import read_catalog

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home/.config/deputy").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project/.git").mkdir(parents=True)
    return tmp_path / "project"


def of_user(home: Path, text: str) -> None:
    (home / ".config/deputy/config.toml").write_text(text)


def test_without_any_file_the_shipped_tables_hold(project: Path, home: Path) -> None:
    assert load_tables(str(project), str(home)) is SHIPPED


@pytest.mark.rule("text.model")
def test_the_nearer_file_overrides_the_farther_one_and_both_what_is_shipped(project: Path, home: Path) -> None:
    of_user(home, '[models]\ndefault = "user-1"\n[models.aliases]\nfast = "user-2"\nCheap = "user-3"\n')
    (project / "deputy.toml").write_text('[models]\ndefault = "project-1"\n[models.aliases]\nmine = "cheap"\n')
    tables = load_tables(str(project), str(home))
    assert tables.default_model == "project-1"
    assert [tables.aliases[name] for name in ("fast", "cheap", "mine")] == ["user-2", "user-3", "cheap"]
    assert tables.aliases["review"] == SHIPPED.aliases["review"]


@pytest.mark.rule("text.model")
def test_routes_of_the_nearer_file_are_looked_through_first(project: Path, home: Path) -> None:
    of_user(home, '[[models.routes]]\nwords = ["fence", "security"]\nmodel = "user-1"\n')
    (project / "deputy.toml").write_text('[[models.routes]]\nwords = ["fence"]\nmodel = "project-1"\n')
    tables = load_tables(str(project), str(home))
    assert [route.model for route in tables.routes[:2]] == ["project-1", "user-1"]
    (request,) = detect("Please use a subagent to paint the fence.", tables)
    assert (request.resolved_model, request.model_source) == ("project-1", "heuristic")


@pytest.mark.rule("text.prose")
def test_phrases_are_added_to_the_shipped_ones(project: Path, home: Path) -> None:
    of_user(home, '[text]\ndelegations = ["send [out] the scouts"]\n')
    tables = load_tables(str(project), str(home))
    assert tables.delegations == (*SHIPPED.delegations, "send [out] the scouts")
    assert len(detect("Please send the scouts to look around the corner.", tables)) == 1


def test_the_project_file_is_looked_for_up_to_the_root_of_the_repository(project: Path, home: Path) -> None:
    below = project / "a/b"
    below.mkdir(parents=True)
    (project.parent / "deputy.toml").write_text('[models]\ndefault = "outside"\n')
    assert load_tables(str(below), str(home)) is SHIPPED
    (project / "deputy.toml").write_text('[models]\ndefault = "root"\n')
    assert load_tables(str(below), str(home)).default_model == "root"
    (below / "deputy.toml").write_text('[models]\ndefault = "here"\n')
    assert load_tables(str(below), str(home)).default_model == "here"


def test_outside_of_a_repository_only_the_own_directory_counts(tmp_path: Path, home: Path) -> None:
    below = tmp_path / "plain/below"
    below.mkdir(parents=True)
    (tmp_path / "plain/deputy.toml").write_text('[models]\ndefault = "planted"\n')
    assert load_tables(str(below), str(home)) is SHIPPED


@every_case(
    ("text", "key", "found", "expected"),
    [
        (
            "[modles]\n",
            "modles",
            "a table",
            "unknown key; did you mean 'models'? the keys are: models, text, limits, approval",
        ),
        ("[journal]\nfsync = 'off'\n", "journal", "a table", "[journal] is allowed only in your own config file, ~/.c"),
        ("max_depth = 2\n", "max_depth", "a whole number", "unknown key here; did you mean 'max_depth' of [limits]?"),
        ("model = 'x'\n", "model", "a string", "unknown key here; did you mean 'default' of [models]?"),
        ("default = 'x'\n", "default", "a string", "unknown key here; did you mean 'default' of [models]?"),
        (
            "[models]\nmodel = 'x'\n",
            "models.model",
            "a string",
            "unknown key here; did you mean 'default' of [models]?",
        ),
        (
            '[models]\nurl = "http://x"\n',
            "models.url",
            "a string",
            "unknown key; the keys are: default, aliases, routes",
        ),
        ("[models]\n'we`ird' = 1\n", "models.we`ird", "a whole number", "unknown key"),
        ("models = 3\n", "models", "3", "must be a table"),
        ("[models]\ndefault = 3\n", "models.default", "3", "must be a string"),
        ('[models.aliases]\nok = "x"\nbad = 3\n', "models.aliases.bad", "3", "must be a string"),
        ("[models]\naliases = []\n", "models.aliases", "[]", "must be a table"),
        ('[[models.routes]]\nwords = ["a"]\n', "models.routes.0", "{'words': ['a']}", "the key 'model' is missing"),
        ('[[models.routes]]\nwords = "a"\nmodel = "b"\n', "models.routes.0.words", "'a'", "must be a list"),
        ('[[models.routes]]\nwords = ["a", 2]\nmodel = "b"\n', "models.routes.0.words.1", "2", "must be a string"),
        (
            '[[models.routes]]\nwords = ["a"]\nmodel = "b"\nkey = "c"\n',
            "models.routes.0.key",
            "a string",
            "unknown key",
        ),
        ("[text]\ntriggers = [1]\n", "text.triggers.0", "1", "must be a string"),
        ('[text]\ntriggers = [""]\n', "text.triggers", "''", "give words"),
        ('[text]\ndelegations = ["[a] b"]\n', "text.delegations", "'[a] b'", "the first one not in brackets"),
        ('[models.aliases]\nx = " "\n', "models, 'x'", "' '", "the name of a model"),
        (
            '[models]\ndefault = "script:/x"\n',
            "models, 'default'",
            "'script:/x'",
            "only the person who runs Deputy may name a script",
        ),
        ('[models.aliases]\nfast = "script:/x"\n', "models, 'fast'", "'script:/x'", "not a caller"),
        ('[models.aliases]\n"" = "x"\n', "models, ''", "''", "the name of a model"),
        ('[[models.routes]]\nwords = [" "]\nmodel = "b"\n', "models.routes", "' '", "give words"),
        ('[approval]\npolicy = "yes"\n', "approval.policy", "'yes'", 'one of "ask", "allow" and "refuse"'),
        ("[approval]\npolicy = 1\n", "approval.policy", "1", 'one of "ask", "allow" and "refuse"'),
        ("[limits]\nrepairs = 3\n", "limits.repairs", "3", "a whole number from 0 to 2"),
        ("[limits]\nrepairs = 1.5\n", "limits.repairs", "1.5", "a whole number from 0 to 2"),
        ("[limits]\nmax_depth = -1\n", "limits.max_depth", "-1", "a whole number from 0 to 10"),
        ("[limits]\nconcurrency = 101\n", "limits.concurrency", "101", "a whole number from 1 to 100"),
        ("[limits]\ntasks = 0\n", "limits.tasks", "0", "a whole number from 1 to 1000"),
        ('[limits]\nidle_seconds = "x"\n', "limits.idle_seconds", "'x'", "a number from 1 to 86400"),
        (
            "[limits]\ndepth = 1\n",
            "limits.depth",
            "a whole number",
            "unknown key; did you mean 'max_depth'? the keys are: tasks, concurrency, max_depth, max_spawns",
        ),
        ("[limits.tools]\nRead = 5\nRun = 0\n", "limits.tools.Run", "0", "a number of seconds from 1 to 86400"),
        ("[limits.commands.plan]\nmax = 0\n", "limits.commands.plan.max", "0", "seconds from 1 to 2592000"),
        (
            "[limits.commands.plan]\nmin = 9\n",
            "limits.commands.plan.min",
            "a whole number",
            "unknown key; the keys are: default, max",
        ),
        ("[limits.commands]\nplan = 9\n", "limits.commands.plan", "9", "a table with default and max in seconds"),
        (
            "[limits.commands.paln]\nmax = 9\n",
            "limits.commands.paln",
            "'paln'",
            "unknown command; did you mean 'plan'? the commands are: research",
        ),
        (
            "[limits.commands.plan]\ndefault = 9\nmax = 8\n",
            "limits.commands.plan.default",
            "9.0",
            "must be at most the max of 8",
        ),
    ],
)
def test_what_is_wrong_is_named_with_file_key_value_and_what_would_be_right(
    tmp_path: Path, text: str, key: str, found: str, expected: str
) -> None:
    path = tmp_path / "deputy.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_settings(str(path))
    message = str(error.value)
    assert message.startswith(f"{path}: {key}: found {found};")
    assert expected in message


@pytest.mark.parametrize(
    "text",
    [
        'password = "hunter2secretX9"\n',
        '[models]\napi_key = "hunter2secretX9"\n',
        '[token]\nvalue = ["hunter2secretX9"]\n',
        "not_named_token_x = hunter2secretX9\n",
        'password = "hunter2secretX9\n',
    ],
)
def test_the_value_of_an_unknown_key_is_not_shown(tmp_path: Path, text: str) -> None:
    (tmp_path / "deputy.toml").write_text(text)
    with pytest.raises(UsageError, match=r"password|api_key|token") as error:
        read_settings(str(tmp_path / "deputy.toml"))
    assert "hunter2" not in str(error.value)


def test_a_server_that_is_not_right_is_named_without_its_keys() -> None:
    said = {"env": {"KEY": "hunter2secretX9"}}
    for wrong in (said, {**said, "comand": "x"}):
        with pytest.raises(UsageError, match=r"mcp\.servers\.notes(\.comand)?: found a (table|string);") as error:
            mcp_servers(McpSettings(servers={"notes": wrong}), "c.toml")
        assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"[models]\ndefault = \n", "default ="),
        (b"\xff\xfe\x00", "TOML in UTF-8"),
        (b"a = " + b"[" * 60_000, "TOML in UTF-8"),
        (b"a = 1\n" * 2, "TOML in UTF-8"),
        (b"[limits]\ntasks = " + b"1" * 5000, "TOML in UTF-8"),
        (b"#" * (LIMIT_BYTES + 1), "more than"),
    ],
)
def test_a_file_that_is_no_toml_is_an_error_and_no_traceback(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "deputy.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=found) as error:
        read_settings(str(path))
    assert str(path) in str(error.value)


def test_a_folder_or_a_pipe_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "deputy.toml").mkdir()
    os.mkfifo(tmp_path / "pipe.toml")
    for name in ("deputy.toml", "pipe.toml"):
        with pytest.raises(UsageError, match="not a file"):
            read_settings(str(tmp_path / name))


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    path = tmp_path / "deputy.toml"
    path.write_bytes(b'\xef\xbb\xbf[models]\ndefault = "x"\n')
    settings = read_settings(str(path))
    assert settings is not None
    assert settings.models.default == "x"


def test_no_settings_file_means_that_no_toml_reader_is_loaded(project: Path, home: Path) -> None:
    program = "import sys; from deputy.config import load_tables; load_tables(); sys.exit('tomllib' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=project, env={**os.environ, "HOME": str(home)}, check=True)


def test_a_working_directory_that_is_gone_is_no_problem(tmp_path: Path, home: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    program = f"import os; os.rmdir({str(gone)!r}); from deputy.config import load_tables; load_tables()"
    subprocess.run([sys.executable, "-P", "-c", program], cwd=gone, env={**os.environ, "HOME": str(home)}, check=True)


def user_file(home, text):
    folder = home / ".config" / "deputy"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def test_the_user_sets_how_long_runs_are_kept_and_when_they_are_synced(tmp_path):
    assert load_user(str(tmp_path)).journal == JournalSettings(retention_days=7.0, fsync="group")
    user_file(tmp_path, '[journal]\nretention_days = 0.5\nfsync = "each"\n')
    assert load_user(str(tmp_path)).journal == JournalSettings(retention_days=0.5, fsync="each")


def test_a_wrong_setting_of_the_journal_is_named(tmp_path):
    user_file(tmp_path, "[journal]\nretention = 3\n")
    with pytest.raises(UsageError, match=r"journal.retention: found a whole number; unknown key; .*: retention"):
        load_user(str(tmp_path))


def test_aliases_and_the_users_tables_reach_the_catalog(tmp_path):
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    address = '[providers.openai]\nbase_url = "http://127.0.0.1:1"\n'
    user_file(home, f'[models.aliases]\nCheap = "openai:gpt-5.2"\n{address}')
    (project / "deputy.toml").write_text('[models.aliases]\nmine = "cheap"\n')
    catalog = read_catalog(load_catalog(str(project), str(home)))
    assert str(catalog.resolve("mine")) == "openai:gpt-5.2"
    assert catalog.providers["openai"].base_url == "http://127.0.0.1:1"


@pytest.mark.rule("project.alias")
@pytest.mark.parametrize(
    ("alias", "model", "meaning"),
    [
        ("sonnet", "openai:evil", "'sonnet' means"),
        ("Sonnet", "openai:evil", "'Sonnet' means"),
        (" SONNET ", "openai:evil", "means"),
        ("ｓonnet", "openai:evil", "means"),
        ("opus-4.6-thinking", "openai:evil", "already a known name"),
        ("composer-1", "openai:evil", "means 'cursor:composer-1'"),
        ("claude-sonnet-4-5", "openai:evil", "already a known name"),
        ("anthropic", "openai:evil", "already a known name"),
        ("openai:gpt-5.2", "openai:evil", "a provider's model"),
        ("cheap", "openai:evil", "means 'middle'"),
        ("middle", "openai:evil", "means 'far'"),
        ("far", "openai:evil", "already a known name"),
        ("mine-own", "openai:evil", "already a known name"),
        ("routed", "openai:evil", "already a known name"),
        ("chained", "openai:evil", "already a known name"),
        ("preferred", "openai:evil", "already a known name"),
        ("custom-1", "openai:evil", "already a known name"),
    ],
)
def test_a_project_cannot_change_what_a_name_means(project: Path, home: Path, alias: str, model: str, meaning: str):
    of_user(
        home,
        '[models]\ndefault = "preferred"\n[models.aliases]\nCheap = "middle"\nmiddle = "far"\n'
        '[[models.routes]]\nwords = ["x"]\nmodel = "routed"\n[fallback.chains]\n"mine-own" = ["chained"]\n'
        "[providers.openai.models.custom-1]\nwindow = 1000\n",
    )
    (project / "deputy.toml").write_text(f'[models.aliases]\n"{alias}" = "{model}"\n')
    for load in (load_tables, load_catalog):
        with pytest.raises(UsageError) as refused:
            load(str(project), str(home))
        assert "deputy.toml: models.aliases." in str(refused.value)
        assert meaning in str(refused.value)
        assert "choose another name" in str(refused.value)


@pytest.mark.rule("project.alias")
def test_a_project_may_add_names_and_repeat_what_is_so_already(project: Path, home: Path):
    of_user(home, '[models.aliases]\nCheap = "openai:gpt-5.2"\n')
    text = '[models.aliases]\nmine = "cheap"\nours = "mine"\ncheap = "openai:gpt-5.2"\n'
    (project / "deputy.toml").write_text(text)
    catalog = read_catalog(load_catalog(str(project), str(home)))
    plain = read_catalog(load_catalog(str(home), str(home)))
    assert str(catalog.resolve("ours")) == "openai:gpt-5.2"
    for name in (*plain.names, *SHIPPED.aliases):
        assert catalog.resolve(name) == plain.resolve(name)
    assert load_tables(str(project), str(home)).aliases["ours"] == "mine"


def test_a_project_cannot_name_an_address_or_touch_the_journal(tmp_path):
    for text in ('[providers.openai]\nbase_url = "http://x"\n', "[journal]\nretention_days = 0\n"):
        (tmp_path / "deputy.toml").write_text(text)
        with pytest.raises(UsageError, match="only in your own config file"):
            load_catalog(str(tmp_path), str(tmp_path))


# --- rules ------------------------------------------------------------------------------------------------------------


def test_without_any_file_the_shipped_rules_hold(project: Path, home: Path) -> None:
    rules = load_effective_settings(str(project), str(home))
    assert rules == EffectiveSettings()
    assert (rules.approval, rules.tasks, rules.concurrency, rules.max_depth, rules.repairs) == ("ask", 64, 8, 3, 1)
    assert (rules.limit("research"), rules.limit("anything")) == (WallLimit(3600, 7200), WallLimit(3600, 7200))
    assert rules.limit("delegate") is None


EVERYTHING = """
[models]
default = "opus"
[approval]
policy = "allow"
[limits]
concurrency = 4
max_depth = 5
max_spawns = 500
repairs = 2
idle_seconds = 600
[limits.tools]
Run = 900
Grep = 20
[limits.commands.research]
max = 14400
[limits.commands.delegate]
default = 600
"""


@pytest.mark.rule("time.wall")
def test_the_user_sets_every_rule(project: Path, home: Path) -> None:
    of_user(home, EVERYTHING)
    rules = load_effective_settings(str(project), str(home))
    assert (rules.model, rules.approval, rules.concurrency) == ("opus", "allow", 4)
    assert (rules.max_depth, rules.max_spawns, rules.repairs, rules.idle_seconds) == (5, 500, 2, 600)
    assert rules.tool_seconds == {"Run": 900, "Grep": 20}
    assert rules.limit("research") == WallLimit(3600, 14400)
    assert (rules.seconds("delegate", None), rules.seconds("delegate", 700), rules.seconds("run", None)) == (
        600,
        700,
        None,
    )
    with pytest.raises(UsageError, match="timeout: found 14401; research takes more than 0 and at most 14400 seconds"):
        rules.seconds("research", 14401)


def test_a_project_tightens_and_never_loosens(project: Path, home: Path) -> None:
    of_user(home, EVERYTHING.replace('"allow"', '"ask"').replace("concurrency = 4", "concurrency = 1"))
    (project / "deputy.toml").write_text(
        '[models]\ndefault = "expensive"\n[approval]\npolicy = "allow"\n'
        "[limits]\nconcurrency = 4\nmax_depth = 1\nmax_spawns = 7\nrepairs = 0\nidle_seconds = 60\n"
        "[limits.tools]\nRun = 30\nGrep = 50\nGlob = 10\n"
        "[limits.commands.research]\ndefault = 100\nmax = 99999\n[limits.commands.run]\nmax = 50\n"
    )
    rules = load_effective_settings(str(project), str(home))
    assert (rules.model, rules.approval, rules.concurrency) == ("opus", "ask", 1)
    assert (rules.max_depth, rules.max_spawns, rules.repairs, rules.idle_seconds) == (1, 7, 0, 60)
    assert rules.tool_seconds == {"Run": 30, "Grep": 20, "Glob": 10}
    assert rules.limit("research") == WallLimit(100, 14400)
    assert rules.limit("run") == WallLimit(50, 50)
    (project / "deputy.toml").write_text('[approval]\npolicy = "refuse"\n')
    assert load_effective_settings(str(project), str(home)).approval == "refuse"


@pytest.mark.parametrize("content", ["secret-first-line: x\n", 'password = "hunter2"\n', "[text]\ntriggers = [1]\n"])
def test_nothing_of_a_file_behind_a_link_is_shown(tmp_path: Path, content: str) -> None:
    (tmp_path / "foreign").write_text(content)
    (tmp_path / "deputy.toml").symlink_to(tmp_path / "foreign")
    with pytest.raises(UsageError) as error:
        read_settings(str(tmp_path / "deputy.toml"))
    assert str(error.value) == (
        f"{tmp_path}/deputy.toml: found a link to a file without settings; put the settings here, or remove it"
    )


@pytest.mark.rule("commands")
def test_agents_of_commands_are_the_projects_over_the_users(project: Path, home: Path) -> None:
    of_user(home, '[commands.implement]\nagents = {lean = "mine", rust = "ferris"}\n')
    (project / "deputy.toml").write_text('[commands.implement]\nagents = {lean = "theirs"}\n')
    assert load_command_agents(str(project), str(home)) == {"implement": {"lean": "theirs", "rust": "ferris"}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[commands.todo]\nagents = {lean = "x"}\n', "this command has no agent"),
        ('[commands.plan]\nagents = {lean = " "}\n', "give the name of an agent"),
        ("[commands.plan]\nagents = {lean = 3}\n", "must be a string"),
        ('[commands.plan]\nprogram = "rm"\n', "unknown key; the keys are: agents"),
    ],
)
def test_agents_of_commands_that_cannot_be_are_refused(project: Path, home: Path, text: str, told: str) -> None:
    (project / "deputy.toml").write_text(text)
    with pytest.raises(UsageError, match=told):
        load_command_agents(str(project), str(home))


def test_the_users_own_file_may_name_a_script(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[models]\ndefault = "script:/x"\n')
    settings = read_settings(str(path), UserSettings)
    assert settings is not None
    assert settings.models.default == "script:/x"


def test_the_user_sets_which_ways_are_tried_and_a_project_does_not(tmp_path):
    from deputy.config import load_fallback_tables
    from deputy.core.fallback import SHIPPED_FALLBACK

    assert load_fallback_tables(str(tmp_path)) == SHIPPED_FALLBACK
    file = tmp_path / ".config" / "deputy" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        '[fallback]\nany_provider = []\n[fallback.chains]\nx = ["y"]\n[fallback.programs]\ngoogle = ["cli:gemini"]\n'
    )
    tables = load_fallback_tables(str(tmp_path))
    assert (tables.any_provider, tables.chains["x"], tables.programs["google"]) == ((), ("y",), ("cli:gemini",))
    assert (tables.unknown, tables.programs["openai"]) == (("composer-1",), ("acp:codex", "cli:codex"))
    file.write_text('[fallback.programs]\ngoogle = ["cli:emacs"]\n')
    with pytest.raises(UsageError, match=r"'cli:emacs'; there are: acp:claude"):
        load_fallback_tables(str(tmp_path))
    project = tmp_path / "deputy.toml"
    project.write_text("[fallback]\nany_provider = []\n")
    with pytest.raises(UsageError, match="only in your own config file"):
        read_settings(str(project))
