import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from opentelemetry import context, trace
from opentelemetry.trace import SpanContext, TraceFlags
from tests.backends.conftest import KEYS, MODELS

from deputy.backends.cli import NAMES, cli_backend
from deputy.backends.program_backend import CliBackend
from deputy.core.conversation import RetryNotice, TokenUsage
from deputy.core.model_script import ScriptedTurn
from deputy.core.request import READ_ONLY_TOOLS, Grant
from deputy.engine.ports.backend import BackendRequest, BackendSession, NotReady, Ready
from deputy.testing.backend_suite import WRITING


def session():
    """The run of this process: other processes run other tests of this file."""
    return f"sess_1_{os.getpid()}"


SAYS = (ScriptedTurn(text="Well."),)
SEVEN = {
    "not installed": "PROGRAM_NOT_INSTALLED",
    "is logged out": "PROGRAM_NOT_LOGGED_IN",
    "another version": "PROGRAM_WRONG_VERSION",
    "model not there": "MODEL_NOT_FOUND",
    "crashes": "PROGRAM_CRASHED",
    "says nothing": "EMPTY_REPLY",
    "prints garbage": "BAD_REPLY",
}


@pytest.fixture
def run(programs, environ, workspace):
    """Run a program as it is told to play."""

    def run(name, *, emit=lambda _: None, backend=None, **fields):
        backend = backend or cli_backend(name, environ)
        quick = CliBackend(structs.replace(backend.program, grace_seconds=0.3), environ)
        given = {"model": MODELS[name], "session_id": session(), "prompt": "PROMPT", "seconds": 60, **fields}
        return asyncio.run(quick.run(BackendRequest(workspace=str(workspace), **given), emit))

    return run


@pytest.mark.rule("cli")
@pytest.mark.parametrize("name", NAMES)
def test_seven_things_that_are_wrong_are_distinguished_each_with_what_to_do(name, run, programs, environ):
    ends = {}
    for what in SEVEN:
        turns = (ScriptedTurn(faults=("model_not_found",)),) if what == "model not there" else SAYS
        programs.play(name, turns, misbehaviour=what, version="0.0.1" if what == "another version" else "")
        if what == "not installed":
            nowhere = cli_backend(name, {**environ, "PATH": "/nowhere"})
            ends[what] = asyncio.run(
                nowhere.run(BackendRequest(session_id="s", prompt="p", workspace="/"), lambda _: None)
            )
        else:
            ends[what] = run(name)
    assert {what: end.error.code for what, end in ends.items()} == SEVEN
    assert {end.kind for end in ends.values()} == {"failed"}
    assert len({end.error.recommendation for end in ends.values()}) == 7
    assert all(end.error.message.startswith((name, f"The output of {name}")) for end in ends.values())
    assert "panicked" in ends["crashes"].error.message
    assert "exit code 3" in ends["crashes"].error.message
    assert "Welcome!" in ends["prints garbage"].error.message


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("does not know a flag", "PROGRAM_WRONG_VERSION", "unknown option"),
        ("is killed", "PROGRAM_CRASHED", "SIGKILL"),
        ("stops in the middle of a line", "PROGRAM_CRASHED", "before it was done"),
    ],
)
def test_other_bad_ends_are_distinguished_too(name, how, code, words, run, programs):
    programs.play(name, SAYS, misbehaviour=how)
    end = run(name)
    assert (end.kind, end.error.code) == ("failed", code)
    assert words in end.error.message


@pytest.mark.parametrize("name", NAMES)
def test_a_session_that_is_gone_is_not_to_be_resumed(name, run, programs):
    end = run(name, resume=BackendSession(id="ses_gone"), message="And?")
    assert (end.kind, end.error.code, end.is_resumable) == ("failed", "SESSION_GONE", False)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        (name, how)
        for column, name in enumerate(NAMES)
        for row, how in enumerate(["hangs", "hangs and is deaf", "closes its pipes"])
        # Each program, and each way, at least once: how a program is ended is the same for all.
        if (row + column) % 3 == 0 or os.environ.get("DEPUTY_SUITE") == "all"
    ],
)
def test_a_program_that_takes_too_long_is_ended(name, how, run, programs):
    programs.play(name, SAYS, misbehaviour=how)
    end = run(name, seconds=0.5)
    assert (end.kind, end.error.code) == ("limited", "TIMEOUT")
    assert tagged() == []


def test_what_it_said_until_then_is_kept_and_it_can_go_on(run, programs):
    programs.play("claude", (ScriptedTurn(text="So far."),), misbehaviour="hangs")
    end = run("claude", seconds=8)
    assert (end.kind, end.text, end.is_resumable) == ("limited", "So far.", True)


def test_silence_is_a_hang_and_words_on_stderr_are_no_progress(run, programs):
    programs.play("codex", SAYS, misbehaviour="hangs")
    end = run("codex", idle_seconds=0.5)
    assert (end.kind, end.error.code, end.error.recoverable) == ("limited", "SILENT", True)


def test_a_question_at_a_terminal_that_is_not_there_ends_as_silence(run, programs):
    programs.play("claude", SAYS, misbehaviour="asks at the terminal")
    end = run("claude", idle_seconds=0.5)
    assert end.error.code == "SILENT"


def test_a_program_that_will_not_go_after_its_answer_has_answered(run, programs):
    programs.play("gemini", SAYS, misbehaviour="lingers")
    end = run("gemini")
    assert (end.kind, end.text, end.error) == ("answered", "Well.", None)
    assert tagged() == []


@pytest.mark.parametrize("name", NAMES)
def test_what_a_program_leaves_running_ends_with_it(name, run, programs):
    programs.play(name, SAYS, misbehaviour="leaves children")
    assert run(name).kind == "answered"
    assert tagged() == []


@pytest.mark.rule("cli")
@pytest.mark.rule("redact.where")
@pytest.mark.parametrize("name", NAMES)
def test_the_prompt_goes_over_stdin_and_other_keys_stay_here(name, run, programs):
    run(name, system="SYSTEM", prompt="PROMPT\nwith \"quotes\" and 'more' " + "x" * 300_000)
    (call,) = programs.calls(name)
    assert call.stdin == "SYSTEM\n\nPROMPT\nwith \"quotes\" and 'more' " + "x" * 300_000
    assert not any("PROMPT" in word or "SYSTEM" in word or "canary" in word for word in call.argv)
    kept = {key for key, value in KEYS.items() if value and value in call.environ.values()}
    own = {
        "claude": {"ANTHROPIC_API_KEY"},
        "codex": {"OPENAI_API_KEY"},
        "gemini": {"GEMINI_API_KEY"},
        "opencode": {"ANTHROPIC_API_KEY"},
        "cursor-agent": {"CURSOR_API_KEY"},
    }
    assert kept == own[name]
    assert call.environ["TERM"] == "dumb"
    assert "LD_PRELOAD" not in call.environ


def test_a_program_gets_the_span_of_its_turn_and_the_collector_without_its_key(run, programs, environ):
    span = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(span)))
    try:
        environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_HEADERS": "key=canary"}
        run("claude")
    finally:
        context.detach(token)
    run("claude")
    traced, plain = programs.calls("claude")
    assert traced.environ["TRACEPARENT"] == f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert traced.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:9"
    assert "OTEL_EXPORTER_OTLP_HEADERS" not in traced.environ
    assert "TRACEPARENT" not in plain.environ


@pytest.mark.parametrize("name", NAMES)
def test_a_resumed_session_gets_only_what_is_new(name, run, programs):
    programs.play(name, (ScriptedTurn(text="One."), ScriptedTurn(text="Two.")))
    first = run(name, system="SYSTEM")
    second = run(name, system="SYSTEM", resume=first.own_session, message="And?")
    assert [call.stdin for call in programs.calls(name)] == ["SYSTEM\n\nPROMPT", "And?"]
    assert second.text == "Two."
    assert second.own_session.id == first.own_session.id
    assert second.usage.input == 100


LEAST = {
    "claude": "--tools Read,Grep,Glob,WebFetch,WebSearch --permission-mode dontAsk --allowedTools WebFetch,WebSearch",
    "codex": '-c sandbox_mode="read-only" -c approval_policy="never"',
    "gemini": "--approval-mode default",
    "opencode": "",
    "cursor-agent": "--trust --mode ask",
}
MORE = {
    "claude": "--tools Read,Grep,Glob,WebFetch,WebSearch,Edit,Write,Bash --permission-mode acceptEdits "
    "--allowedTools WebFetch,WebSearch,Bash",
    "codex": '-c sandbox_mode="workspace-write"',
    "gemini": "--approval-mode yolo",
    "opencode": "",
    "cursor-agent": "--trust --force",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_program_may_do_no_more_than_is_granted(name, run, programs):
    for tools, flags in ((READ_ONLY_TOOLS, LEAST), (WRITING, MORE)):
        programs.play(name, SAYS)
        run(name, grant=Grant(tools=tools))
        (call,) = programs.calls(name)
        assert flags[name] in " ".join(call.argv)
        assert not {"--dangerously-skip-permissions", "--yolo", "--auto"} & set(call.argv)
        if name == "opencode":
            allowed = call.environ["OPENCODE_PERMISSION"]
            assert allowed.startswith('{"*":"deny"')
            assert ('"bash":"allow"' in allowed) == ('"edit":"allow"' in allowed) == ("Run" in tools)
            assert '"external_directory":"deny"' in allowed


def test_a_grant_that_a_program_cannot_be_kept_to_runs_nothing(run, programs, workspace):
    (workspace / "a").mkdir()
    (workspace / "b").mkdir()
    refused = run("claude", grant=Grant(paths=("a", "b")))
    outside = run("claude", grant=Grant(paths=("../x",)))
    proposed = run("cursor-agent", grant=Grant(tools=frozenset({"Read", "Write"})))
    assert {end.error.code for end in (refused, outside, proposed)} == {"GRANT_NOT_HELD"}
    assert programs.calls("claude") == programs.calls("cursor-agent") == []
    assert run("claude", grant=Grant(paths=("a",))).kind == "answered"
    assert programs.calls("claude")[0].cwd == str(workspace / "a")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_could_be_taken_for_a_flag_runs_nothing(name, run, programs):
    for bad in ("--yolo", "-f", "a\0b", "anthropic:x\ny", "own:--yolo"):
        assert run(name, model=bad).error.code == "MODEL_NOT_FOUND"
    assert run(name, resume=BackendSession(id="--force")).error.code == "SESSION_GONE"
    assert programs.calls(name) == []


def test_a_program_that_always_reads_is_not_run_where_nothing_may_be_read(run, programs):
    nothing = Grant(tools=frozenset())
    codes = {name: run(name, grant=nothing) for name in NAMES}
    assert {name for name, end in codes.items() if end.kind == "answered"} == {"claude", "opencode"}
    assert {end.error.code for end in codes.values() if end.error} == {"GRANT_NOT_HELD"}


def test_a_folder_that_cannot_be_entered_is_an_end_and_no_exception(run, programs, workspace):
    workspace.rmdir()
    assert run("claude").error.code == "GRANT_NOT_HELD"


def test_what_programs_print_in_colour_is_quoted_without(run, programs):
    end = run("opencode", resume=BackendSession(id="ses_gone"), message="And?")
    assert end.error.message.endswith("Error: Session not found")


def test_models_have_the_names_that_a_program_gives_them(run, programs):
    wanted = {
        ("claude", "anthropic:claude-opus-5-5"): "claude-opus-5-5",
        ("claude", "sonnet"): "sonnet",
        ("codex", "openai:gpt-5.2"): "gpt-5.2",
        ("gemini", "google:gemini-3.1-pro-preview"): "gemini-3.1-pro-preview",
        ("opencode", "openrouter:qwen/qwen3"): "openrouter/qwen/qwen3",
        ("cursor-agent", "cursor:composer-1"): "composer-1",
        ("cursor-agent", "opus-4.6-thinking"): "opus-4.6-thinking",
        ("cursor-agent", "google:gemini-3.1-pro-preview"): "gemini-3-pro",
    }
    for (name, model), own in wanted.items():
        programs.play(name, SAYS)
        run(name, model=model)
        argv = programs.calls(name)[0].argv
        assert argv[argv.index("--model") + 1] == own
    programs.play("claude", SAYS)
    assert run("claude", model="openai:gpt-5.2").error.code == "MODEL_NOT_FOUND"
    assert programs.calls("claude") == []
    run("claude", model="")
    assert "--model" not in programs.calls("claude")[0].argv


def test_claude_tells_costs_of_this_turn_alone_and_its_retries(run, programs):
    programs.play("claude", (ScriptedTurn(text="One."), ScriptedTurn(text="Two.")))
    first = run("claude")
    second = run("claude", resume=first.own_session, message="And?")
    assert first.usage.cost == second.usage.cost == 0.0004
    assert second.own_session.counted.cost == 0.0008
    assert (first.context.used, first.context.size) == (100, 200_000)
    output = []
    programs.play("claude", (ScriptedTurn(faults=("overloaded",)),))
    run("claude", emit=output.append)
    assert [(event.code, event.attempt) for event in output if isinstance(event, RetryNotice)] == [
        ("overloaded_error", 1)
    ]


def test_a_turn_that_broke_off_may_have_done_more_than_it_told(run, programs):
    for name in NAMES:
        programs.play(name, SAYS, misbehaviour="crashes")
        assert run(name, grant=Grant(tools=WRITING)).may_have_written
        assert not run(name).may_have_written
    programs.play("codex", SAYS)
    assert run("codex", grant=Grant(tools=WRITING)).may_have_written
    programs.play("claude", SAYS)
    assert not run("claude", grant=Grant(tools=WRITING)).may_have_written


def test_errors_on_the_way_that_are_not_fatal_are_warnings(run, programs):
    end = run("codex")
    assert end.kind == "answered"
    assert end.warnings == ("Model metadata not found. Defaulting to fallback metadata.",)


# --- floods -----------------------------------------------------------------------------------------------------------

FLOOD_BYTES = 1 << 27
"""Four times what a process may grow by."""
FLOOD = """
import asyncio, sys
from pathlib import Path
from deputy.backends.cli import cli_backend
from deputy.engine.ports.backend import BackendRequest
folder, work, name = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
environ = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": work}
def peak():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
async def main():
    backend = cli_backend(name, environ)
    await backend.check()
    before = peak()
    end = await backend.run(BackendRequest(session_id="s", prompt="p", workspace=work, spill=work+"/raw"), lambda _: 0)
    print(end.kind, (peak() - before) // 1024, (Path(work) / "raw").stat().st_size)
    print(end.error.message if end.error else end.text)
asyncio.run(main())
"""


@pytest.mark.parametrize(("name", "how"), [("claude", "floods"), ("codex", "floods and says nothing more")])
def test_a_flood_of_output_stays_within_bounds(name, how, programs, tmp_path, workspace):
    programs.play(name, SAYS, misbehaviour=how, flood_bytes=FLOOD_BYTES)
    argv = [sys.executable, "-c", FLOOD, str(tmp_path / "bin"), str(workspace), name]
    figures, *said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    kind, grown_megabytes, file_bytes = figures.split()
    assert int(grown_megabytes) <= 32
    assert int(file_bytes) <= 10_000_000
    assert stat.S_IMODE((workspace / "raw").stat().st_mode) == 0o600
    if how == "floods":
        assert (kind, said) == ("answered", ["Well."])
    else:
        assert kind == "failed"
        text = "\n".join(said)
        assert "first words" in text
        assert "last words" in text
        assert f"{FLOOD_BYTES + 12 + 11:,} bytes" in text


def test_a_line_without_an_end_is_left_out_and_said_so(run, programs):
    programs.play("gemini", SAYS, misbehaviour="prints an endless line", flood_bytes=20_000_000)
    end = run("gemini")
    assert (end.kind, end.text) == ("answered", "Well.")
    assert any("too long" in warning for warning in end.warnings)


WORD = "x" * 99 + " "


def test_an_answer_without_an_end_keeps_head_tail_and_count(run, programs):
    output = []
    programs.play("gemini", (ScriptedTurn(text="begin " + WORD * 8_000 + "end"),))
    end = run("gemini", emit=output.append)
    assert end.text.startswith(f"begin {WORD}")
    assert end.text.endswith(f"{WORD}end")
    assert f"[… {6 + 800_000 + 3 - 400_000:,} bytes left out …]" in end.text
    assert sum(event.input_tokens for event in output if isinstance(event, TokenUsage)) == 100


# --- whether it is there ----------------------------------------------------------------------------------------------


def look(name, environ):
    return asyncio.run(cli_backend(name, environ).check())


def test_what_is_installed_is_found_with_its_version_and_login(programs, environ, tmp_path):
    bare = {"PATH": environ["PATH"], "HOME": environ["HOME"]}
    versions = {name: look(name, bare).version for name in NAMES}
    assert versions == {
        "claude": "2.1.325 (Claude Code)",
        "codex": "codex-cli 0.166.0",
        "gemini": "0.61.0",
        "opencode": "1.18.33",
        "cursor-agent": "2026.02.13-41ac335",
    }
    assert look("claude", bare).is_logged_in is None
    assert look("claude", environ).is_logged_in is True
    (tmp_path / "home" / ".codex").mkdir()
    (tmp_path / "home" / ".codex" / "auth.json").write_text("{}")
    assert look("codex", bare).is_logged_in is True
    settings = tmp_path / "home" / ".config" / "opencode" / "opencode.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"theme": "system"}')
    assert look("opencode", bare).is_logged_in is None
    settings.write_text('{"provider": {"anthropic": {"options": {"apiKey": "made-up"}}}}')
    assert look("opencode", bare).is_logged_in is True
    assert cli_backend("emacs", environ) is None


def test_another_program_of_the_same_name_is_not_taken_for_it(programs, environ):
    programs.play("cursor-agent", SAYS, version="cursor-agent/1.0.3")
    found = look("cursor-agent", environ)
    assert isinstance(found, NotReady)
    assert found.error.code == "PROGRAM_WRONG_VERSION"
    assert "another program" in found.error.recommendation


def test_the_version_of_a_package_is_read_without_running_it(environ, tmp_path):
    package = tmp_path / "lib" / "node_modules" / "@google" / "gemini-cli"
    (package / "bundle").mkdir(parents=True)
    (package / "package.json").write_text('{"name": "@google/gemini-cli", "version": "0.61.0"}')
    (package / "bundle" / "gemini.js").write_text("#!/bin/sh\nexit 9\n")
    (package / "bundle" / "gemini.js").chmod(0o755)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "gemini").symlink_to(package / "bundle" / "gemini.js")
    assert look("gemini", environ).version == "0.61.0"


def test_a_look_is_remembered_until_the_program_is_another(programs, environ):
    backend = cli_backend("claude", environ)
    assert isinstance(asyncio.run(backend.check()), Ready)
    programs.play("claude", SAYS, version="1.0.0")
    assert isinstance(asyncio.run(backend.check()), Ready)
    executable = Path(programs.folder / "claude")
    executable.write_text(executable.read_text() + "\n")
    assert isinstance(asyncio.run(backend.check()), NotReady)


def tagged():
    """The processes that a run has left."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                environ = (process / "environ").read_bytes()
            except OSError:
                continue
            if f"DEPUTY_CALL={session()}:".encode() in environ:
                found.append(process.name)
    return found
