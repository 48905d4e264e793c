"""What is fuzzed: each reader of hostile input, with the exceptions that it documents."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from deputy.agents.definition import AgentDefinition, DefinitionOrigin, DefinitionProblem
from deputy.agents.read_definition import read_content
from deputy.config.settings import Settings, UserSettings
from deputy.config.settings_file import read_settings
from deputy.core import contract
from deputy.core.contract import ExpectedReturn
from deputy.core.detect import detect, request_json
from deputy.core.errors import UsageError
from deputy.core.model_errors import ModelError
from deputy.core.task import DelegateArguments, StartArguments
from deputy.core.text_calls import read_calls, without_thinking
from deputy.core.tool_arguments import read_arguments
from deputy.interfaces.mcp import tool_shapes
from deputy.interfaces.mcp.stdio_transport import read_message
from deputy.models.factory import wire_of
from deputy.models.sse import EventReader

PROTOCOLS = ("anthropic", "openai-responses", "openai-chat", "google")
ORIGIN = DefinitionOrigin(path="agent.md", file_name="from-file")
EXPECTED = ExpectedReturn(session_id="sess_1_abcdef", depth=1, path=("orchestrator", "agent"), workspace="/w")
SCHEMA = contract.schema_of(
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
)
ARGUMENTS = (
    DelegateArguments,
    StartArguments,
    tool_shapes.RunArguments,
    tool_shapes.ResultArguments,
    tool_shapes.ResumeArguments,
    tool_shapes.DetectArguments,
    tool_shapes.NoArguments,
)


def sse(data: bytes) -> None:
    """A stream of each protocol, cut into pieces; only a ModelError may come, and the pieces change nothing."""
    first, size, stream = data[:1], data[1:2], data[2:]
    piece = 1 + 4 * (size[0] if size else 0)
    reader, whole, cut = wire_of(PROTOCOLS[(first[0] if first else 0) % 4]).reader(), EventReader(), EventReader()
    events = [*whole.feed(stream), *whole.close()]
    pieces = [event for at in range(0, len(stream), piece) for event in cut.feed(stream[at : at + piece])]
    assert events == [*pieces, *cut.close()]
    try:
        for event in events:
            reader.read(event)
            reader.buffer.take()
        reader.end()
    except ModelError as error:
        error.as_value()


def frontmatter(data: bytes) -> None:
    """An agent definition; reading it never raises."""
    assert isinstance(read_content(data, ORIGIN), AgentDefinition | DefinitionProblem)


def returns(data: bytes) -> None:
    """The report of a subagent; reading it never raises, and a return without problems is whole."""
    text = data.decode(errors="surrogateescape")
    for checked in (
        contract.read(text),
        contract.read(text, EXPECTED, "lenient"),
        contract.read(text, EXPECTED, "strict"),
        contract.read(text, schema=SCHEMA),
    ):
        assert (checked.return_ is None) == bool(checked.problems)


def text(data: bytes) -> None:
    """Requests and tool calls in a text; reading it never raises."""
    words = data.decode(errors="surrogateescape")
    for request in detect(words):
        start, end = request.span
        assert 0 <= start < end <= len(words)
        assert request.prompt.strip()
        request_json(request)
    calls = read_calls(words, ("Read", "Grep", "Delegate"))
    assert calls is None or len(calls.calls) <= len(words)
    assert len(without_thinking(words)) <= len(words)


def mcp(data: bytes) -> None:
    """A line of an MCP client, and the arguments of every tool; all mistakes are answers."""
    message = read_message(data)
    message.answer.model_dump_json() if hasattr(message, "answer") else message.model_dump_json()  # pyright: ignore
    try:
        said = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    for kind in ARGUMENTS:
        problems: list[object] = []
        assert (read_arguments(kind, said, problems) is None) == bool(problems)  # pyright: ignore


def config(data: bytes) -> None:
    """A settings file, the project's and the user's; the only exception is a UsageError."""
    with tempfile.NamedTemporaryFile(dir=_MEMORY, prefix="deputy-fuzz-", suffix=".toml") as file:
        Path(file.name).write_bytes(data)
        for kind in (UserSettings, Settings):
            with suppress(UsageError):
                read_settings(file.name, kind)


_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Target(NamedTuple):
    """A reader, words that its input is made of, and inputs to begin with."""

    read: Callable[[bytes], None]
    words: tuple[str, ...]
    files: tuple[str, ...] = ()
    """Patterns of files, from the folder of the tests."""
    examples: tuple[bytes, ...] = ()


TARGETS = {
    "sse": Target(
        sse,
        (
            *(
                "data: ",
                "\n\n",
                "event: ",
                "[DONE]",
                '"type":',
                '"message_start"',
                '"content_block_start"',
                '"index":0',
            ),
            *('"content_block_delta"', '"delta":{', '"text_delta"', '"message_stop"', '"usage":{', '"choices":[{'),
            *('"finish_reason":"stop"', '"candidates":[{', '"response.completed"', '"tool_calls":[{', '"error":{'),
        ),
        ("models/streams/*.sse",),
    ),
    "frontmatter": Target(
        frontmatter,
        (
            *("---\n", "name: ", "description: ", "tools: ", "permission:\n", "model: ", "timeout: ", "maxTurns: "),
            *("- ", "[", "]", "{", "}", "&a", "*a", "!!", "|\n", ">\n", "'", '"', "#", "<<: ", "? ", "\t"),
        ),
        ("corpus/agents/*/*.md",),
    ),
    "returns": Target(
        returns,
        (
            *('{"status":', '"completed"', '"summary":', '"artifacts":[', '"path":', '"metadata":{', '"errors":['),
            *('"session_id":"sess_1_abcdef"', '"agent_type":', '"delegation_path":[', "```json\n", "```", "\\u0000"),
        ),
        ("corpus/returns/*/*.txt", "corpus/returns/*/*.md"),
    ),
    "text": Target(
        text,
        (
            *("<delegate>", "</delegate>", "<prompt>", "</prompt>", "<model>", "<context>", "<tool_call>", "<think>"),
            *("Try to use Task tool", "delegate this", "use a subagent", " to spawn a subprocess", "[model: ", '"'),
            *("<function=Read>", "<parameter=path>", '{"name":"Read","arguments":{', "```", "isolated execution"),
        ),
        ("corpus/text/*/*.md", "corpus/text/*/*.txt"),
    ),
    "mcp": Target(
        mcp,
        (
            *('{"jsonrpc":"2.0"', '"id":1', '"method":"tools/call"', '"params":{', '"arguments":{', '"tasks":[{'),
            *('"label":"a"', '"prompt":"b"', '"session_id":"s"', '"budget":{', '"wait":1', '"return":"json"', "1e999"),
        ),
        examples=(
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"Delegate","arguments":{"tasks":[]}}}',
            b'{"tasks":[{"label":"a","prompt":"b","context":["c"],"tools":["Read"],"timeout":5,"budget":{"cost":0.5}}]}',
            b'{"session_id":"s","wait":1,"return":"json"}',
            b'{"session_id":"s","answer":"yes","budget":{"tokens":5},"model":"m"}',
            b'{"text":"<delegate>x</delegate>"}',
        ),
    ),
    "config": Target(
        config,
        (
            *("[models]\n", "[limits]\n", "[text]\n", "[approval]\n", "[mcp.servers.a]\n", "[[models.routes]]\n"),
            *("default = ", "policy = 'ask'", "tasks = 1", "aliases = {", "triggers = [", '"""', "1979-05-27", "nan"),
            *(
                "[providers.a]\n",
                "[fallback]\n",
                "[commands.plan]\n",
                "[routing]\n",
                "[store]\n",
                "url = ",
                "[notify]\n",
            ),
        ),
        examples=(
            b'[models]\ndefault = "a:b"\naliases = {fast = "a:c"}\n[[models.routes]]\nwords = ["x"]\nmodel = "a:b"\n',
            b"[limits]\ntasks = 8\nidle_seconds = 30.5\ntools.Run = 60\ncommands.plan = {default = 60, max = 120}\n",
            b'[mcp.servers.notes]\ncommand = "notes"\nargs = ["-x"]\n',
            b'[approval]\npolicy = "ask"\n[routing]\ninline = "never"\n',
        ),
    ),
}
