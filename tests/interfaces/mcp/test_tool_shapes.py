"""Every structured result fits the schema that its tool declares: by the official client, and by jsonschema."""

import asyncio
import threading
from typing import get_args

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client
from tests.support.mcp_clients import ERAS, here, tasks, text_of
from tests.support.scripts import talk, turn

from deputy.core.errors import Error
from deputy.core.outcome import (
    SUMMARY_LENGTH,
    Artifact,
    Blocked,
    Cancelled,
    Completed,
    Failed,
    Fallback,
    Partial,
    Rejected,
    Usage,
)
from deputy.core.request import Lineage
from deputy.core.results import Result
from deputy.core.state import Status
from deputy.interfaces.mcp.delegate_tools import answer
from deputy.interfaces.mcp.server import make_server
from deputy.interfaces.mcp.server_state import Options, ServerState
from deputy.interfaces.mcp.tool_shapes import RunStatusOutput, SubagentStatus
from deputy.interfaces.mcp.tools import json_result

COUNTS = st.integers(0, 10**12)
TEXT = st.text(max_size=50)
IDS = st.sampled_from(["", "sess_1_aaaaaa"])
"""A task that never began has no session of its own."""


COSTS = st.none() | st.floats(0, 10**6)
USAGE = st.builds(Usage, input=COUNTS, output=COUNTS, cached=COUNTS, requests=COUNTS, cost=COSTS)
ERRORS = st.builds(
    Error, type=TEXT, message=TEXT, recoverable=st.booleans(), recommendation=TEXT, code=TEXT, session_id=IDS
)
ENDING = {
    "lineage": IDS.map(Lineage.root),
    "summary": st.text(min_size=1, max_size=SUMMARY_LENGTH),
    "report": TEXT,
    "notes": st.lists(TEXT, max_size=2).map(tuple),
    "artifacts": st.lists(st.builds(Artifact, type=TEXT, path=TEXT), max_size=2).map(tuple),
    "branch": TEXT,
    "errors": st.lists(ERRORS, min_size=1, max_size=2).map(tuple),
    "warnings": st.lists(TEXT, max_size=2).map(tuple),
    "usage": USAGE,
    "model": st.one_of(st.none(), TEXT),
    "backend": st.one_of(st.none(), TEXT),
    "fallbacks": st.lists(st.builds(Fallback, left=TEXT, taken=TEXT, reason=TEXT), max_size=2).map(tuple),
    "is_isolated": st.booleans(),
}
OUTCOMES = st.one_of(
    st.builds(Completed, **ENDING),
    st.builds(Partial, **ENDING),
    st.builds(Failed, **ENDING),
    st.builds(Blocked, **ENDING, question=TEXT),
    st.builds(Cancelled, **{**ENDING, "errors": st.just(())}),
    st.builds(Rejected, **ENDING),
)
WORDS = st.sampled_from([*get_args(Status), "interrupted", "cancelling"])
SUBAGENTS = st.builds(
    SubagentStatus,
    label=TEXT,
    session_id=TEXT,
    status=WORDS,
    turns=COUNTS,
    tool_calls=COUNTS,
    notes=COUNTS,
    under_way=st.lists(TEXT, max_size=2).map(tuple),
    question=TEXT,
)


class Official:
    """The official client, connected to our server, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    async def _serve(self) -> None:
        async with ServerState(Options()) as hub, Client(make_server(hub), mode=ERAS[1]) as client:
            self._session = client.session
            schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
            for schema in schemas.values():
                jsonschema.Draft202012Validator.check_schema(schema)
            self._validators = {name: jsonschema.Draft202012Validator(schema) for name, schema in schemas.items()}
            self._is_ready.set()
            await self._over.wait()

    def __enter__(self):
        self._thread.start()
        assert self._is_ready.wait(60)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()

    def check(self, tool: str, result) -> None:
        validating = self._session.validate_tool_result(tool, result)
        asyncio.run_coroutine_threadsafe(validating, self._loop).result(60)
        self._validators[tool].validate(result.structured_content)


@pytest.fixture(scope="module")
def official():
    with Official() as client:
        yield client


few = settings(max_examples=settings.default.max_examples // 2, suppress_health_check=[HealthCheck.too_slow])


@few
@given(
    results=st.lists(st.builds(Result, label=TEXT, outcome=OUTCOMES), min_size=1, max_size=3),
    form=st.sampled_from(["json", "markdown"]),
)
def test_the_results_of_all_outcomes_fit_the_schema(official, results, form):
    given = answer(results, form, "sess_1_aaaaaa")
    for tool in ("Delegate", "DelegateResult"):
        official.check(tool, given)
    never_began = [one["session_id"] is None for one in given.structured_content["results"]]
    assert never_began == [not result.outcome.session_id for result in results]


@few
@given(st.builds(RunStatusOutput, session_id=TEXT, status=WORDS, tasks=st.lists(SUBAGENTS, max_size=2).map(tuple)))
def test_every_status_fits_the_schema(official, status):
    for tool in ("DelegateStart", "DelegateStatus", "DelegateResult", "DelegateCancel", "DelegateResume"):
        official.check(tool, json_result(status))


@pytest.mark.parametrize("text", ["", "Please use a subagent to fix the roof.", '<delegate model="x">Do it</delegate>'])
def test_every_tool_declares_what_it_returns(house, text):
    agents = house.workspace / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "good.md").write_text("---\nname: good\ndescription: d\nmodel: inherit\ntools: Read\n---\nDo it.\n")
    (agents / "bad.md").write_text("---\nname: [\n---\n")

    async def main():
        async with here(house) as client:
            declared = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
            # The client raises where a result does not fit.
            found = await client.call_tool("Detect", {"text": text})
            listed = await client.call_tool("Agents", {})
            return declared, found, listed

    declared, found, listed = asyncio.run(main())
    assert all(schema["type"] == "object" for schema in declared.values())
    assert len(found.structured_content["requests"]) == bool(text)
    assert "good" in [agent["name"] for agent in listed.structured_content["agents"]]
    assert listed.structured_content["problems"] or listed.structured_content["agents"][0]["warnings"]


@pytest.mark.parametrize("mode", ERAS)
def test_the_official_client_takes_the_result_of_a_cancelled_call_with_a_task_that_never_began(house, mode):
    model = house.script("slow", talk(turn("never said", delay_seconds=60), times=2))

    async def main():
        async with here(house, mode=mode, model=model, approval="granted") as client:
            started = await client.call_tool("DelegateStart", tasks("a", "b", concurrency=1))
            run = {"session_id": started.structured_content["session_id"]}
            status = await client.call_tool("DelegateStatus", run)
            cancelled = await client.call_tool("DelegateCancel", run)
            return status, cancelled, await client.call_tool("DelegateResult", run)

    status, cancelled, results = asyncio.run(main())
    assert (status.structured_content["status"], cancelled.structured_content["status"]) == ("running", "cancelled")
    assert results.structured_content["results"][1]["session_id"] is None, text_of(results)
