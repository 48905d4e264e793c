"""`deputy detect`, run as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "Intro.\n\nPlease delegate this to opus: check src/auth.py with the list in docs/list.md. Return a table.\n"
REQUEST = "Use a subagent to paint the fence.\n\n"
RUN = "from deputy.interfaces.cli import main; main()"


@pytest.fixture
def deputy(tmp_path: Path):
    def run(*arguments: str, stdin: str | bytes = "") -> subprocess.CompletedProcess[str]:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-c", RUN, "detect", *arguments],
            input=content,
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "HOME": str(tmp_path)},
        )
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


def test_requests_are_described_for_people(deputy, tmp_path: Path) -> None:
    (tmp_path / "text.md").write_text(TEXT)
    done = deputy("text.md")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == [
        "1 request found; none was run",
        "",
        "1. user, line 3",
        "   model     opus → opus-4.6-thinking (named in the text)",
        "   prompt    check src/auth.py with the list in docs/list.md. Return a table.",
        "   context   src/auth.py",
        "             docs/list.md",
        "             the list in docs/list.md",
        "   output    a table",
        "",
    ]


def test_several_requests_fit_eighty_columns(deputy) -> None:
    parts = f"<prompt>{'long ' * 50}</prompt>\n<system-instructions>{'x' * 200}</system-instructions>"
    done = deputy("-", stdin=f"<delegate>\n{parts}</delegate>\n" * 2)
    assert done.returncode == 0
    assert max(map(len, done.stdout.split("\n"))) <= 80
    assert "1. xml, lines 1-3" in done.stdout
    assert "2. xml, lines 4-6" in done.stdout
    assert "composer-1 (the default)" in done.stdout


def test_json_has_the_documented_form(deputy) -> None:
    done = deputy("--json", "-", stdin=TEXT)
    (request,) = msgspec.json.decode(done.stdout)["requests"]
    assert done.returncode == 0
    assert request.pop("normalized").startswith("## Escalation Protocol\n")
    assert request == {
        "pattern": "user",
        "model": "opus",
        "model_source": "explicit",
        "resolved_model": "opus-4.6-thinking",
        "prompt": "check src/auth.py with the list in docs/list.md. Return a table.",
        "system": None,
        "context": ["src/auth.py", "docs/list.md", "the list in docs/list.md"],
        "output": "a table",
        "degradation": None,
        "span": [8, len(TEXT) - 1],
    }


def test_normalized_prints_the_prompts_alone(deputy) -> None:
    done = deputy("--normalized", "-", stdin=REQUEST * 2)
    first, second = done.stdout.split("\n\n---\n\n")
    assert first.startswith("## Escalation Protocol")
    assert first.endswith("## Task\n\npaint the fence.")
    assert second == first + "\n"


@pytest.mark.parametrize("arguments", [(), ("--normalized",)])
def test_no_request_is_exit_code_three_and_said_on_stderr(deputy, arguments: tuple[str, ...]) -> None:
    done = deputy(*arguments, "-", stdin="Nothing here.")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "deputy: no delegation request in standard input\n"


def test_no_request_is_an_empty_list_in_json(deputy) -> None:
    done = deputy("--json", "-", stdin="How do I use a subagent?")
    assert done.returncode == 3
    assert msgspec.json.decode(done.stdout) == {"requests": []}


def test_an_unclear_request_says_so(deputy) -> None:
    assert "the text does not say what to do, so all of it is the prompt" in deputy("-", stdin="Delegate this.").stdout


def test_more_requests_than_the_limit_are_cut_and_that_is_said(deputy) -> None:
    done = deputy("--json", "-", stdin=REQUEST * 300)
    assert len(msgspec.json.decode(done.stdout)["requests"]) == 256
    assert done.stderr == "deputy: only the first 256 requests are shown\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere.md",), "nowhere.md"),
        (("/",), "not a regular file"),
        ((), "Missing argument"),
        (("--what", "-"), "--what"),
    ],
)
def test_misuse_is_exit_code_two_and_one_clear_message(deputy, arguments: tuple[str, ...], said: str) -> None:
    done = deputy(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_settings_are_exit_code_two_and_name_the_key(deputy, tmp_path: Path) -> None:
    (tmp_path / "deputy.toml").write_text("[models]\nurl = 'x'\n")
    done = deputy("-", stdin=REQUEST)
    assert done.returncode == 2
    assert "deputy.toml: models.url: found a string; unknown key" in done.stderr


def test_settings_of_the_project_hold(deputy, tmp_path: Path) -> None:
    (tmp_path / "deputy.toml").write_text("[models]\ndefault = 'mine-1'\n")
    assert "mine-1 (the default)" in deputy("-", stdin=REQUEST).stdout


def test_bytes_that_are_no_text_and_escapes_do_no_harm(deputy) -> None:
    done = deputy("-", stdin=b"\xff\xfe Please use a subagent to paint \x1b[31mred\x1b[0m fences.\x00\n")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


def test_help_has_examples(deputy) -> None:
    done = deputy("--help")
    assert done.returncode == 0
    assert "deputy detect workflow.md" in done.stdout
    assert max(map(len, done.stdout.split("\n"))) <= 80


def test_a_small_text_loads_nothing_heavy(tmp_path: Path) -> None:
    heavy = {
        "aiohttp",
        "rich",
        "sqlite3",
        "asyncio",
        "json",
        "tomllib",
        "html",
        "xml",
        "yaml",
        "difflib",
        "jsonschema_rs",
    }
    program = f"""
import sys
sys.argv = ["deputy", "detect", "-"]
from deputy.interfaces.cli import main
try:
    main()
finally:
    print(sorted({heavy!r} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=TEXT,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    assert done.stderr == "[]\n"
