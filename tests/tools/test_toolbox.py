import asyncio
import subprocess
import sys

import msgspec
import pytest

from deputy.core.request import READ_ONLY_TOOLS, Grant
from deputy.engine.ports import ToolContext, ToolOutput, ToolTraits
from deputy.tools.struct_tool import StructTool
from deputy.tools.toolbox import Toolbox, standard_tools

EVERYTHING = Grant(tools=READ_ONLY_TOOLS | {"Edit", "Write", "Run"})


@pytest.fixture
def tools(workspace):
    return standard_tools(workspace, {"PATH": "/usr/bin:/bin"})


def run(toolbox, name, arguments):
    return asyncio.run(toolbox.run(name, arguments, ToolContext()))


@pytest.mark.rule("tools.readonly")
def test_without_a_word_a_subagent_has_the_tools_that_read(tools):
    toolbox = Toolbox(tools, Grant())
    # WebSearch is offered only where a search engine is set up.
    assert [tool.name for tool in toolbox.definitions()] == ["Read", "Grep", "Glob", "WebFetch"]
    assert "BRAVE_API_KEY" in run(toolbox, "WebSearch", {"query": "x"}).text
    assert all(tool.traits.reads_only and not tool.traits.needs_approval for tool in toolbox.definitions())


@pytest.mark.rule("tools.readonly")
@pytest.mark.parametrize("name", ["Edit", "Write", "Run", "Delegate", "NotebookEdit", "read", "Read ", "", "__class__"])
def test_a_tool_that_was_not_given_does_not_run(tools, root, name):
    toolbox = Toolbox(tools, Grant())
    refusal = run(toolbox, name, {"path": "a.txt", "content": "x", "command": "touch a.txt"})
    assert refusal.is_error
    assert "nothing was run. Your tools: Read, Grep, Glob, WebFetch, WebSearch." in refusal.text
    assert ("is not granted" in refusal.text) == (name in {"Edit", "Write", "Run", "Delegate"})
    assert not list(root.iterdir())


@pytest.mark.rule("tools.readonly")
def test_a_grant_adds_tools_that_need_approval(tools, root):
    toolbox = Toolbox(tools, EVERYTHING)
    traits = {tool.name: tool.traits for tool in toolbox.definitions()}
    assert all(traits[name].needs_approval and not traits[name].repeatable for name in ("Edit", "Write", "Run"))
    assert traits["Run"].risk == "high"
    assert not run(toolbox, "Write", {"path": "a.txt", "content": "x"}).is_error
    assert (root / "a.txt").read_text() == "x"


def test_every_tool_has_a_description_and_a_short_schema(tools):
    for tool in tools:
        assert len(tool.description) > 60
        assert tool.schema["type"] == "object"
        assert all(field.keys() <= {"type", "description", "enum"} for field in tool.schema["properties"].values())
        assert set(tool.schema.get("required", ())) <= set(tool.schema["properties"])
        msgspec.json.encode(tool.schema)


BAD = [None, True, -1, 10**20, 1.5, float("nan"), "", "\ud800", [], {}, [["x"]], {"a": 1}]


def test_whatever_the_arguments_are_the_answer_is_an_output(tools, root):
    toolbox = Toolbox(tools, EVERYTHING)
    for tool in tools:
        for field in [*tool.schema["properties"], "nonsense"]:
            for value in BAD:
                given = {name: "x" for name in tool.schema["required"] if name != field and tool.name != "Run"}
                if tool.name == "WebFetch" and field != "url":
                    given["url"] = "ftp://x"
                output = run(toolbox, tool.name, {**given, field: value})
                assert isinstance(output, ToolOutput)
                if field == "nonsense":
                    assert "'nonsense': unknown" in output.text, tool.name


def test_all_bad_fields_are_named_at_once(tools):
    for tool in tools:
        properties = tool.schema["properties"]
        output = run(Toolbox(tools, EVERYTHING), tool.name, {name: {"not": "this"} for name in properties})
        assert output.is_error
        assert all(f"- {name}: " in output.text for name in properties)


class Nothing(msgspec.Struct):
    pass


def test_a_tool_that_overstays_its_limit_is_stopped():
    async def hang(_, __):
        await asyncio.Event().wait()

    traits = ToolTraits(reads_only=True, limit_seconds=-4.9)
    toolbox = Toolbox([StructTool("Read", Nothing, traits, hang)], Grant())
    stopped = run(toolbox, "Read", {})
    assert stopped.is_error
    assert "was stopped after its limit" in stopped.text


def test_a_tool_that_is_cancelled_within_has_failed():
    async def wait(_, __):
        own = asyncio.ensure_future(asyncio.Event().wait())
        own.cancel()
        await own

    toolbox = Toolbox([StructTool("Read", Nothing, ToolTraits(reads_only=True), wait)], Grant())
    failed = run(toolbox, "Read", {})
    assert failed.is_error
    assert failed.text == "Read failed: an operation that it waited for was cancelled."


def test_a_tool_that_is_cancelled_is_stopped():
    async def hang(_, __):
        await asyncio.Event().wait()

    toolbox = Toolbox([StructTool("Read", Nothing, ToolTraits(reads_only=True), hang)], Grant())

    async def stop() -> None:
        calling = asyncio.create_task(toolbox.run("Read", {}, ToolContext(call_id="c")))
        await asyncio.sleep(0)
        calling.cancel()
        await calling

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stop())


def test_tools_are_made_without_loading_the_network():
    code = (
        "import sys; from deputy.tools.toolbox import standard_tools; from deputy.tools.workspace import Workspace\n"
        "standard_tools(Workspace('.'), {}); print(sorted({'aiohttp', 'html_to_markdown', 'ctypes'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "[]\n"
