"""MCP resources (transcript, notes and outcome of runs) and the prompt `delegate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from deputy.core.errors import UnknownRun
from deputy.interfaces.mcp.tools import delegate_advice
from deputy.interfaces.text_lines import outgoing_json, plain

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp_types import GetPromptRequestParams, PaginatedRequestParams, ReadResourceRequestParams

    from deputy.engine.ports.queries import Queries
    from deputy.interfaces.mcp.server_state import ServerState

_SCHEME = "deputy://runs/"
_KINDS = {
    "transcript": ("text/markdown", "The conversation of a subagent, also during the run."),
    "notes": ("text/markdown", "The notes of a subagent."),
    "outcome": ("application/json", "Status and outcome of a run."),
}
_PROMPT = "delegate"


class Resources:
    """The resources and prompts of a server."""

    def __init__(self, server_state: ServerState) -> None:
        self._server_state = server_state

    async def templates(
        self, context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        """The resource templates of a run."""
        return ListResourceTemplatesResult(
            resource_templates=[
                ResourceTemplate(
                    uri_template=f"{_SCHEME}{{session_id}}/{kind}", name=kind, description=said, mime_type=mime
                )
                for kind, (mime, said) in _KINDS.items()
            ]
        )

    async def resources(
        self, context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """The resources of the runs that this server started."""
        from deputy.interfaces.mcp.run_tools import read_journal

        runs = tuple(self._server_state.started)
        listed: list[Resource] = (
            await read_journal(self._server_state, runs[0], lambda queries: _listed(queries, runs)) if runs else []
        )
        return ListResourcesResult(resources=listed)

    async def read(
        self, context: ServerRequestContext[Any, Any], params: ReadResourceRequestParams
    ) -> ReadResourceResult:
        """One resource of one run."""
        from deputy.interfaces.mcp.run_tools import read_journal

        run, _, kind = params.uri.removeprefix(_SCHEME).partition("/")
        if not params.uri.startswith(_SCHEME) or kind not in _KINDS:
            raise _unknown(params.uri)
        try:
            text = await read_journal(self._server_state, run, lambda queries: _page(queries, run, kind))
        except UnknownRun:
            raise _unknown(params.uri) from None
        return ReadResourceResult(contents=[TextResourceContents(uri=params.uri, mime_type=_KINDS[kind][0], text=text)])

    async def prompts(
        self, context: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None
    ) -> ListPromptsResult:
        """The prompt `delegate`: the advice of the Delegate tool."""
        work = PromptArgument(name="work", description="The work to delegate.", required=False)
        return ListPromptsResult(
            prompts=[
                Prompt(name=_PROMPT, description="Split work among subagents, and use their reports.", arguments=[work])
            ]
        )

    async def prompt(self, context: ServerRequestContext[Any, Any], params: GetPromptRequestParams) -> GetPromptResult:
        """The advice, followed by the work."""
        if params.name != _PROMPT:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown prompt: {plain(params.name)!r:.80}")
        work = (params.arguments or {}).get("work", "").strip()
        text = f"{delegate_advice()}\n\nUse the Delegate tool for this work:\n\n{work}" if work else delegate_advice()
        return GetPromptResult(
            description="How to delegate well.",
            messages=[PromptMessage(role="user", content=TextContent(type="text", text=text))],
        )


def _unknown(uri: str) -> MCPError:
    shown = plain(uri)[:200]
    return MCPError(code=INVALID_PARAMS, message=f"Unknown resource: {shown}", data={"uri": shown})


def _listed(queries: Queries, runs: tuple[str, ...]) -> list[Resource]:
    listed: list[Resource] = []
    for run in reversed(runs):
        listed.append(_resource(run, "outcome", run))
        for child in queries.children(run):
            listed += [_resource(child.run, kind, child.label) for kind in _KINDS]
    return listed


def _resource(run: str, kind: str, label: str) -> Resource:
    mime, said = _KINDS[kind]
    return Resource(uri=f"{_SCHEME}{run}/{kind}", name=plain(f"{label} {kind}"), description=said, mime_type=mime)


def _page(queries: Queries, run: str, kind: str) -> str:
    from deputy.journal.registry import show_run
    from deputy.journal.transcript import markdown, transcribe

    if kind == "outcome":
        form = show_run(queries, run)
        if form is None:
            raise UnknownRun(run)
        return outgoing_json(form, indent=2).decode()
    transcript = transcribe(queries.records(run))
    if transcript is None:
        raise UnknownRun(run)
    return plain(markdown(transcript) if kind == "transcript" else "\n\n".join(transcript.notes))
