import os
import pty
import select
import shlex
import shutil
import subprocess
import time

import pytest
from tests.support.fork_server import Popen, forked_deputy
from tests.support.scripts import talk, turn

BASH = r"""
source <(deputy completion bash)
complete -p deputy
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE}
    _deputy_completion deputy
    printf '%s\n' "$COMP_LINE: ${COMPREPLY[*]}"
done
"""


@pytest.fixture
def env(house):
    """An environment in which `deputy` is the one of this project, with one run in the journal."""
    program = house.workspace.parent / "bin" / "deputy"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.join(forked_deputy())} "$@"\n')
    program.chmod(0o755)
    (house.workspace / ".deputy" / "agents").mkdir(parents=True)
    for name in ("rewriter", "re$(touch x)"):
        text = f"---\nname: {name}\ndescription: Rewrites.\n---\nRewrite it.\n"
        (house.workspace / ".deputy" / "agents" / f"{len(name)}.md").write_text(text)
    config = house.workspace / ".config" / "deputy"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[models]\ndefault = "ollama:qwen3"\n')
    model = house.script("s", talk(turn("Here.")))
    assert house.run("ask", "Where is light?", "--model", model).returncode == 0
    return {**house.env, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(house.workspace)}


def shell(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def test_bash_completes_commands_options_runs_agents_and_models(house, env):
    lines = {
        "deputy comp": "completion",
        "deputy ask --works": "--workspace",
        "deputy show las": "last",
        "deputy cancel where": "where-light",
        "deputy ask --agent re": "rewriter researcher reviewer reviser",
        "deputy ask --model anthropic:claude-opus-4-": "claude-opus-4-6 claude-opus-4-5 claude-opus-4-1",
        "deputy ask --model=anthropic:claude-opus-4-1": "claude-opus-4-1",
        "deputy ask --model=ollama:q": "qwen3",
        "deputy models openai-": "openai-chat",
        "deputy show --json no-such-run": "",
    }
    typed = "\n".join(lines) + "\n"
    run = subprocess.run(
        [shell("bash"), "--norc", "-c", BASH],
        input=typed,
        env=env,
        cwd=house.workspace,
        capture_output=True,
        text=True,
        check=True,
    )
    first, *shown = run.stdout.splitlines()
    assert first == "complete -o nosort -F _deputy_completion deputy"
    assert [line.rstrip() for line in shown] == [f"{line}: {value}".rstrip() for line, value in lines.items()]
    assert run.stderr == ""


def test_fish_completes_with_descriptions(house, env):
    script = 'deputy completion fish | source; complete -C "deputy show whe"; complete -C "deputy ask --model opus-4.1"'
    script += '; complete -C "deputy connec"'
    run = subprocess.run(
        [shell("fish"), "--no-config", "-c", script], env=env, cwd=house.workspace, capture_output=True, text=True
    )
    label, *models = run.stdout.splitlines()
    assert label.startswith("where-light\tcompleted ")
    assert models[0].split("\t")[0] == "opus-4.1"
    assert models[-1] == "connect\tAdd Deputy's tools to Claude Code, Codex, opencode or Gemini."


def test_zsh_completes_a_label_at_a_terminal(house, env):
    zsh, (terminal, theirs) = shell("zsh"), pty.openpty()
    process = Popen(
        [zsh, "-f", "-i"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=house.workspace,
        env={**env, "TERM": "dumb", "PS1": "> "},
        terminal=True,
    )
    os.close(theirs)
    try:
        os.write(terminal, b"autoload -U compinit; compinit -u -D; source <(deputy completion zsh); echo is-$((1+1))\n")
        until(terminal, "is-2")
        os.write(terminal, b"deputy show whe\t")
        until(terminal, "where-light")
    finally:
        os.close(terminal)
        process.wait()


def until(terminal: int, text: str, seconds: float = 60) -> None:
    shown, deadline = "", time.monotonic() + seconds
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{text!r} was not shown; this was:\n{shown}"
        shown += os.read(terminal, 65536).decode(errors="replace")


def test_the_screen_says_where_to_put_the_script_within_80_columns(house):
    shown = house.run("completion", "--help").stdout
    assert "~/.local/share/bash-completion/completions/deputy" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_without_a_journal_no_run_is_offered_and_nothing_is_made(house):
    run = house.run(_DEPUTY_COMPLETE="bash_complete", COMP_LINE="deputy show ")
    assert (run.stdout.strip(), run.stderr) == ("", "")
    assert not house.home.exists()
