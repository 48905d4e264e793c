import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from opentelemetry import context, trace
from opentelemetry.trace import SpanContext, TraceFlags
from tests.backends.conftest import ACP_MODELS, KEYS

from deputy.backends.acp import NAMES, acp_backend
from deputy.backends.acp.acp_turn import AcpBackend
from deputy.backends.acp.known_agents import AGENTS
from deputy.backends.program_backend import check_installed
from deputy.core.model_script import ScriptedCall, ScriptedTurn
from deputy.core.request import READ_ONLY_TOOLS, Grant
from deputy.engine.ports.backend import BackendRequest, BackendSession, NotReady
from deputy.testing.backend_suite import WRITING
from deputy.tools.workspace_text_files import WorkspaceTextFiles


def session():
    """The run of this process: other processes run other tests of this file."""
    return f"sess_4_{os.getpid()}"


SAYS = (ScriptedTurn(text="Well."),)
WRITES = (
    ScriptedTurn(text="I write.", calls=(ScriptedCall(name="Write", arguments={"path": "a/b.txt", "content": "x"}),)),
    ScriptedTurn(text="Written."),
)
SEVEN = {
    "not installed": "PROGRAM_NOT_INSTALLED",
    "is logged out": "PROGRAM_NOT_LOGGED_IN",
    "speaks another version": "PROGRAM_WRONG_VERSION",
    "model not there": "MODEL_NOT_FOUND",
    "crashes": "PROGRAM_CRASHED",
    "says nothing": "EMPTY_REPLY",
    "prints garbage": "BAD_REPLY",
}
OWN = ("not installed", "is logged out", "model not there")
"""What each agent says in its own words; the rest is the same code for all."""


@pytest.fixture
def run(programs, environ, workspace):
    """Run an agent as it is told to play."""

    def run(name, turns=SAYS, how="", *, emit=lambda _: None, flood_bytes=0, **fields):
        agent = AGENTS[name]
        programs.play(agent.program.name, turns, misbehaviour=how, flood_bytes=flood_bytes)
        return again(name, emit=emit, **fields)

    def again(name, *, emit=lambda _: None, **fields):
        agent = AGENTS[name]
        quick = structs.replace(agent, program=structs.replace(agent.program, grace_seconds=0.3))
        given = {"model": ACP_MODELS[name], "session_id": session(), "prompt": "PROMPT", "seconds": 60, **fields}
        backend = AcpBackend(quick, environ, WorkspaceTextFiles)
        return asyncio.run(backend.run(BackendRequest(workspace=str(workspace), **given), emit))

    run.again = again
    return run


@pytest.mark.rule("cli")
@pytest.mark.parametrize("name", NAMES)
def test_seven_things_that_are_wrong_are_distinguished_each_with_what_to_do(name, run, environ):
    is_whole = name == NAMES[0] or os.environ.get("DEPUTY_SUITE") == "all"
    tried = {what: code for what, code in SEVEN.items() if is_whole or what in OWN}
    ends = {}
    for what in tried:
        turns = (ScriptedTurn(faults=("model_not_found",)),) if what == "model not there" else SAYS
        if what == "not installed":
            nowhere = acp_backend(name, {**environ, "PATH": "/nowhere"}, WorkspaceTextFiles)
            ends[what] = asyncio.run(
                nowhere.run(BackendRequest(session_id="s", prompt="p", workspace="/"), lambda _: None)
            )
        else:
            ends[what] = run(name, turns, what)
    assert {what: end.error.code for what, end in ends.items()} == tried
    assert {end.kind for end in ends.values()} == {"failed"}
    assert len({end.error.recommendation for end in ends.values()}) == len(tried)
    if not is_whole:
        return
    assert "panicked" in ends["crashes"].error.message
    assert "exit code 3" in ends["crashes"].error.message
    assert "Welcome!" in ends["prints garbage"].error.message
    assert "99" in ends["speaks another version"].error.message


@pytest.mark.parametrize(
    ("how", "kind", "code"),
    [
        ("does not know a flag", "failed", "PROGRAM_WRONG_VERSION"),
        ("is killed", "failed", "PROGRAM_CRASHED"),
        ("stops in the middle of a line", "failed", "PROGRAM_CRASHED"),
        ("has no modes", "failed", "GRANT_NOT_HELD"),
        ("refuses", "failed", "REFUSED"),
        ("says too much", "limited", "OUTPUT_LIMIT"),
        ("fills its context", "limited", "CONTEXT_EXHAUSTED"),
    ],
)
def test_other_bad_ends_are_distinguished_too(how, kind, code, run):
    end = run("codex", SAYS, how)
    assert (end.kind, end.error.code) == (kind, code)


@pytest.mark.parametrize("how", ["hangs", "hangs and is deaf", "closes its pipes", "asks at the terminal"])
def test_an_agent_that_takes_too_long_or_is_silent_is_ended(how, run):
    assert run("codex", SAYS, how, seconds=0.5).error.code == "TIMEOUT"
    assert run("codex", SAYS, how, idle_seconds=0.5).error.code == "SILENT"
    assert tagged() == []


@pytest.mark.parametrize("name", ["claude", "qwen"])
def test_an_agent_is_asked_to_stop_and_can_go_on_after_it(name, run):
    # Long enough for an agent to start and open its session on a busy machine.
    end = run(name, (ScriptedTurn(text="Late.", delay_seconds=30),), seconds=4)
    assert (end.kind, end.error.code, end.is_resumable) == ("limited", "TIMEOUT", True)
    later = run.again(name, resume=end.own_session, message="Go on.", seconds=4)
    assert later.error.code == "TIMEOUT"
    assert later.own_session.id == end.own_session.id


@pytest.mark.parametrize("how", ["leaves children", "lingers"])
def test_nothing_of_an_agent_is_left_when_its_turn_is_over(how, run):
    end = run("opencode", SAYS, how)
    assert (end.kind, end.text) == ("answered", "Well.")
    assert tagged() == []


def test_an_agent_that_cannot_go_on_says_so(run):
    first = run("copilot", SAYS, "cannot go on")
    assert (first.kind, first.is_resumable) == ("answered", False)
    second = run.again("copilot", resume=first.own_session, message="And?")
    assert (second.error.code, second.is_resumable) == ("SESSION_GONE", False)
    assert run("claude", resume=BackendSession(id="ses_gone"), message="And?").error.code == "SESSION_GONE"


@pytest.mark.parametrize("name", ["claude", "gemini"])
def test_a_resumed_session_gets_only_what_is_new_and_old_text_is_not_repeated(name, run, programs):
    output = []
    first = run(name, (ScriptedTurn(text="One."), ScriptedTurn(text="Two.")), system="SYSTEM")
    second = run.again(name, emit=output.append, system="SYSTEM", resume=first.own_session, message="And?")
    calls = programs.calls(AGENTS[name].program.name)
    assert [call.stdin for call in calls] == ["SYSTEM\n\nPROMPT", "And?"]
    assert second.text == "Two."
    assert "All that was said." not in "".join(getattr(event, "text", "") for event in output)
    assert first.usage.cost == second.usage.cost == 0.0004
    assert second.own_session.counted.cost == 0.0008
    assert (second.context.used, second.context.size) == (120, 200_000)


@pytest.mark.parametrize("name", NAMES)
def test_the_keys_of_others_stay_here_and_names_that_could_be_flags_run_nothing(name, run, programs):
    run(name)
    (call,) = programs.calls(AGENTS[name].program.name)
    own = {
        "claude": {"ANTHROPIC_API_KEY"},
        "codex": {"OPENAI_API_KEY"},
        "gemini": {"GEMINI_API_KEY"},
        "opencode": {"ANTHROPIC_API_KEY"},
        "copilot": {"GITHUB_TOKEN"},
        "qwen": {"OPENAI_API_KEY"},
    }
    assert {key for key, value in KEYS.items() if value and value in call.environ.values()} == own[name]
    assert not any("PROMPT" in word or "canary" in word for word in call.argv)
    assert not {"--yolo", "--allow-all-tools", "--allow-all"} & set(call.argv)
    assert run(name, model="--yolo").error.code == "MODEL_NOT_FOUND"
    assert run(name, resume=BackendSession(id="-x")).error.code == "SESSION_GONE"
    assert programs.calls(AGENTS[name].program.name) == []


def test_what_is_allowed_once_is_never_allowed_for_good_and_files_are_put_in_place(run, workspace):
    end = run("gemini", WRITES, grant=Grant(tools=WRITING))
    assert (workspace / "a" / "b.txt").read_text() == "x"
    assert (end.text, end.may_have_written) == ("Written.", True)
    assert end.changed == ("a/b.txt",)


REFUSED = dict.fromkeys(["secret", "outside", "climb", "link", "write", "hook"], -32602)
NEVER = {**REFUSED, "terminal": -32601, "unknown": -32601, "edit nowhere": False, "edit outside": False, "other": False}


@pytest.mark.parametrize(
    ("tools", "more"),
    [
        (READ_ONLY_TOOLS, {"edit here": False, "run": False}),
        (READ_ONLY_TOOLS | {"Write"}, {"edit here": True, "run": False}),
        (WRITING, {"edit here": True, "run": True}),
    ],
    ids=["reading", "writing", "running"],
)
def test_no_request_leads_out_of_the_grant(tools, more, run, workspace):
    (workspace.parent / "outside.txt").write_text("canary")
    (workspace / ".env").write_text("KEY=canary")
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / "link").symlink_to(workspace.parent)
    output = []
    end = run("claude", SAYS, "asks for what it may not have", grant=Grant(tools=tools), emit=output.append)
    assert json.loads(end.text) == {**NEVER, **more}
    assert "canary" not in repr(output)
    assert (workspace.parent / "outside.txt").read_text() == "canary"
    assert [use.is_denied for use in end.tools_used] == [
        True,
        True,
        True,
        not more["run"],
        not more["edit here"],
    ]


def test_nothing_is_read_where_reading_is_not_granted(run, workspace):
    (workspace / "notes.txt").write_text("canary")
    reads = ScriptedTurn(text="I look.", calls=(ScriptedCall(name="Read", arguments={"path": "notes.txt"}),))
    end = run("claude", (reads, *SAYS), grant=Grant(tools=frozenset()))
    assert end.tools_used[0].result == "refused"


def test_nonsense_in_the_middle_changes_nothing(run):
    end = run("claude", SAYS, "talks nonsense", grant=Grant(tools=WRITING))
    assert (end.kind, end.text) == ("answered", "Well.")


def test_a_line_without_an_end_is_left_out_and_said_so(run):
    end = run("codex", SAYS, "prints an endless line", flood_bytes=100_000_000)
    assert (end.kind, end.text) == ("answered", "Well.")
    assert any("too long" in warning for warning in end.warnings)


FLOOD_BYTES = 1 << 27
"""Four times what a process may grow by."""
FLOOD = """
import asyncio, sys
from pathlib import Path
from deputy.backends.acp import acp_backend
from deputy.engine.ports.backend import BackendRequest
from deputy.tools.workspace_text_files import WorkspaceTextFiles
folder, work = Path(sys.argv[1]), sys.argv[2]
def peak():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
async def main():
    backend = acp_backend("claude", {"PATH": f"{folder}:/usr/bin:/bin", "HOME": work}, WorkspaceTextFiles)
    await backend.check()
    before = peak()
    end = await backend.run(BackendRequest(session_id="s", prompt="p", workspace=work, spill=work+"/raw"), lambda _: 0)
    modules = {"acp", "pydantic", "aiohttp", "sqlite3"} & set(sys.modules)
    print(end.kind, (peak() - before) // 1024, (Path(work) / "raw").stat().st_size, *modules)
    print(end.error.message if end.error else end.text)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("how", "size"),
    [("updates without end", 150_000), ("floods", FLOOD_BYTES), ("floods and says nothing more", FLOOD_BYTES)],
)
def test_floods_stay_within_bounds_and_no_sdk_is_loaded(how, size, programs, tmp_path, workspace):
    programs.play("claude-agent-acp", SAYS, misbehaviour=how, flood_bytes=size)
    argv = [sys.executable, "-c", FLOOD, str(tmp_path / "bin"), str(workspace)]
    figures, *said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    kind, grown_megabytes, file_bytes = figures.split()
    assert int(grown_megabytes) <= 32
    assert int(file_bytes) <= 10_000_000
    if how == "floods and says nothing more":
        text = "\n".join(said)
        assert (kind, "first words" in text, "last words" in text) == ("failed", True, True)
        assert f"{FLOOD_BYTES + 12 + 11:,} bytes" in text
    else:
        assert (kind, said) == ("answered", ["Well."])


def test_what_is_installed_is_found_and_the_rest_says_how_to_get_it(programs, environ):
    agents = {name: AGENTS[name].program for name in NAMES}
    looked = asyncio.run(check_installed(agents, environ))
    assert list(looked) == list(NAMES)
    assert {name: look.version for name, look in looked.items() if look.version} == {
        "gemini": "0.61.0",
        "opencode": "1.18.33",
        "qwen": "0.24.4",
    }
    missing = asyncio.run(check_installed(agents, {"PATH": "/nowhere"}))
    assert all(
        isinstance(found, NotReady) and "npm install" in found.error.recommendation for found in missing.values()
    )
    assert all(acp_backend(name, environ, WorkspaceTextFiles).name == f"acp:{name}" for name in NAMES)
    assert acp_backend("emacs", environ, WorkspaceTextFiles) is None


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


def test_an_agent_gets_the_span_of_its_turn_in_its_environment_and_with_the_prompt(run, programs):
    span = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(1))
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(span)))
    try:
        run("gemini")
    finally:
        context.detach(token)
    (call,) = programs.calls(AGENTS["gemini"].program.name)
    traceparent = f"00-{0xABC:032x}-{0xDEF:016x}-01"
    assert call.stdin.splitlines()[-1] == call.environ["TRACEPARENT"] == traceparent
