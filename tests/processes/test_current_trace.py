"""The trace of a caller (a variable, an MCP client, the library) reaches programs of other agents as real processes."""

import asyncio

import pytest
from mcp import Client
from opentelemetry import context, trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from tests.support.collector import Collector
from tests.support.command_house import CommandHouse
from tests.support.mcp_clients import LEGACY, stdio, tasks
from tests.support.programs import install_fake_programs

from deputy import Deputy

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
CALLER = f"00-{TRACE}-{SPAN}-01"
MODEL = "anthropic:claude-haiku-5-5"


@pytest.fixture
def house(tmp_path):
    return CommandHouse(tmp_path)


def installed(tmp_path, name):
    """One program on the PATH, the only way to the model."""
    programs = install_fake_programs(tmp_path / "bin", [name])
    return programs, {"PATH": f"{programs.folder}:/usr/bin:/bin", "HOME": str(tmp_path)}


@pytest.mark.parametrize("name", ["claude", "claude-agent-acp"])
def test_a_program_gets_the_exported_span_of_its_turn_in_the_trace_of_the_caller(house, tmp_path, name):
    programs, env = installed(tmp_path, name)
    with Collector() as collector:
        ran = house.run(
            "delegate", "Look.", "--model", MODEL, "--yes", "--json", TRACEPARENT=CALLER, **env, **collector.environ
        )
    assert ran.returncode == 0, ran.stderr
    [turn] = [span for span in collector.spans if span.name.startswith("chat")]
    [called] = programs.calls(name)
    assert called.environ["TRACEPARENT"] == f"00-{TRACE}-{turn.span_id}-01"
    if name == "claude-agent-acp":
        assert called.stdin.splitlines()[-1] == called.environ["TRACEPARENT"]


@pytest.mark.parametrize("is_exporting", [True, False])
def test_the_trace_of_an_mcp_client_reaches_the_program(house, tmp_path, is_exporting):
    programs, env = installed(tmp_path, "claude")

    async def main(given):
        server = stdio(house, "--yes", "--model", MODEL, **env, **given)
        async with Client(server, mode=LEGACY) as client:
            await client.call_tool("Delegate", tasks("a"), meta={"traceparent": CALLER})

    with Collector() as collector:
        asyncio.run(main(collector.environ if is_exporting else {}))
    [called] = programs.calls("claude")
    turns = [span.span_id for span in collector.spans if span.name.startswith("chat")]
    # Without tracing the span of the caller is passed on as it is.
    [span] = turns if is_exporting else [SPAN]
    assert called.environ["TRACEPARENT"] == f"00-{TRACE}-{span}-01"


def test_the_current_span_of_the_librarys_caller_reaches_the_program(house, tmp_path, monkeypatch):
    programs, env = installed(tmp_path, "claude")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    span = SpanContext(int(TRACE, 16), int(SPAN, 16), is_remote=False, trace_flags=TraceFlags(1))

    async def main():
        async with Deputy(MODEL, workspace=house.workspace, home=house.home) as deputy:
            token = context.attach(trace.set_span_in_context(NonRecordingSpan(span)))
            try:
                return await deputy.delegate(["Look."])
            finally:
                context.detach(token)

    [outcome] = asyncio.run(main())
    assert outcome.status == "completed"
    [called] = programs.calls("claude")
    assert called.environ["TRACEPARENT"] == CALLER
