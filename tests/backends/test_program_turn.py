from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deputy.backends.cli import NAMES
from deputy.backends.cli.program import Invocation
from deputy.backends.program_backend import numbers
from deputy.backends.program_turn import OutputReader, end_of
from deputy.backends.turn_recorder import TurnRecorder
from deputy.engine.ports.backend import BackendRequest
from deputy.processes.supervise import ExitStatus

PROGRAMS = {name: import_module(f"deputy.backends.cli.{name.replace('-', '_')}").PROGRAM for name in NAMES}
KINDS = """item.completed item.started turn.completed turn.failed error assistant user system result init stream_event
message_start message_delta content_block_delta text_delta tool_use tool_result step_finish command_execution
file_change agent_message completed started permission_denied api_retry success stop"""
NAMES_OF_FIELDS = """type subtype session_id thread_id sessionID message content text id item part tool_call call_id
args result status state input output error errors data usage stats model modelUsage tokens cache role parameters
tool_id tool_name event delta changes path is_error api_error_status reason readToolCall writeToolCall"""
WORDS = st.sampled_from(f"{KINDS} {NAMES_OF_FIELDS}".split())
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=15,
)
LINES = st.lists(st.dictionaries(WORDS, VALUES, max_size=6), max_size=6)


def invocation(name):
    request = BackendRequest(session_id="s", prompt="p", workspace="/")
    return Invocation(program=PROGRAMS[name], request=request, model="m", environ={})


def printed(events=0, noise="", errors=""):
    output = OutputReader()
    output.events = events
    output.noise.feed(noise.encode())
    output.errors.feed(errors.encode())
    return output


@given(lines=LINES, code=st.none() | st.integers(-20, 300), said=st.text(max_size=50))
def test_no_output_breaks_a_reader_and_every_one_has_an_end(lines, code, said):
    for name in NAMES:
        recorder = TurnRecorder(invocation(name), lambda _: None, lambda: 0.0)
        for line in lines:
            PROGRAMS[name].read(line, recorder)
        end = end_of(recorder, "exited", ExitStatus(code=code), printed(len(lines), said, said))
        assert (end.error is None) == (end.kind in ("answered", "asked")), name
        assert end.usage.input >= 0, name


@pytest.mark.parametrize(
    ("said", "found"),
    [("2.1.325 (Claude Code)", (2, 1, 325)), ("codex-cli 0.166.0", (0, 166, 0)), ("v1.2", (1, 2)), ("none", ())],
)
def test_versions_are_found_where_they_stand(said, found):
    assert numbers(said) == found


@pytest.mark.parametrize(
    ("exit_code", "code"),
    [(145, "PROGRAM_NOT_LOGGED_IN"), (148, "MODEL_NOT_FOUND"), (173, "RATE_LIMITED"), (247, "OVERLOADED"), (1, None)],
)
@pytest.mark.parametrize("is_told", [True, False], ids=["as an event", "on stderr"])
def test_the_exit_code_of_gemini_is_its_providers_status(exit_code, code, is_told):
    recorder = TurnRecorder(invocation("gemini"), lambda _: None, lambda: 0.0)
    if is_told:
        line = {"type": "result", "status": "error", "error": {"message": "[API Error: it did not work]"}}
        PROGRAMS["gemini"].read(line, recorder)
    output = printed(errors="" if is_told else "it did not work")
    end = end_of(recorder, "exited", ExitStatus(code=exit_code), output)
    assert end.error.code == code or (code is None and end.error.code in ("PROVIDER_FAILED", "PROGRAM_CRASHED"))


def test_claude_that_another_process_ended_is_interrupted():
    recorder = TurnRecorder(invocation("claude"), lambda _: None, lambda: 0.0)
    words = "[ede_diagnostic] result_type=user last_content_type=n/a stop_reason=null"
    line = {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": [words]}
    PROGRAMS["claude"].read(line, recorder)
    end = end_of(recorder, "exited", ExitStatus(code=1), printed(events=1))
    assert end.error.code == "PROGRAM_CRASHED"
