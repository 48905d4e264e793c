"""Claude Code: `claude -p`, with its stream of JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from deputy.backends.cli.program import Fields, Invocation, Program, cost_of, number_of, part, parts, text_of, usage_of
from deputy.backends.program_errors import crashed, output_limit
from deputy.core.fallback import LOGIN_FILES
from deputy.core.outcome import NO_USAGE, Usage
from deputy.engine.ports.backend import ContextFill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deputy.backends.turn_recorder import TurnRecorder

TOOLS: Mapping[str, str] = {
    "Read": "Read", "Grep": "Grep", "Glob": "Glob", "WebFetch": "WebFetch", "WebSearch": "WebSearch",
    "Edit": "Edit", "Write": "Write", "Run": "Bash",
}  # fmt: skip
"""Its names of our tools."""
_HARMLESS = frozenset({"Read", "Grep", "Glob", "WebFetch", "WebSearch", "TodoWrite", "ToolSearch"})
_WRITING = frozenset({"Edit", "Write"})
_ASKED_FOR = ("WebFetch", "WebSearch", "Bash")
"""Tools that need a permission; reading in the workspace does not."""
_NO_SUCH_TOOL = "No such tool available"
_LIMITS = ("error_max_turns", "error_max_budget_usd")


_BROKEN_OFF = "[ede_diagnostic]"
"""The beginning of its message when it is ended in the middle of a turn."""


def _arguments(invocation: Invocation) -> list[str]:
    tools = [theirs for ours, theirs in TOOLS.items() if ours in invocation.tools]
    allowed = [tool for tool in tools if tool in _ASKED_FOR]
    return [
        "-p",
        *("--output-format", "stream-json", "--verbose", "--include-partial-messages"),
        # MCP tools and settings of the project are not part of the grant.
        *("--strict-mcp-config", "--setting-sources", "user"),
        *("--tools", ",".join(tools)),
        # Both modes keep files within the workspace and ask no person.
        *("--permission-mode", "acceptEdits" if {"Edit", "Write"} & set(tools) else "dontAsk"),
        *(("--allowedTools", ",".join(allowed)) if allowed else ()),
        *(("--model", invocation.model) if invocation.model else ()),
        *(("--resume", invocation.session) if invocation.session else ()),
    ]


def _read(fields: Fields, recorder: TurnRecorder) -> None:
    session = fields.get("session_id")
    if isinstance(session, str):
        recorder.session = session
    match fields.get("type"):
        case "system":
            _system(fields, recorder)
        case "stream_event" if fields.get("parent_tool_use_id") is None:
            _streamed(part(fields, "event"), recorder)
        case "assistant":
            _assistant(part(fields, "message"), recorder)
        case "user":
            _results(part(fields, "message"), recorder)
        case "result":
            _result(fields, recorder)
        case _:
            return


def _system(fields: Fields, recorder: TurnRecorder) -> None:
    match fields.get("subtype"):
        case "init":
            recorder.model = text_of(fields.get("model"))
            recorder.mark_active()
        case "api_retry":
            reason, seconds = text_of(fields.get("error")), number_of(fields.get("retry_delay_ms")) / 1000
            attempt, status = number_of(fields.get("attempt")), number_of(fields.get("error_status"))
            recorder.retries(reason, attempt=attempt, seconds=seconds, code=reason, status=status or None)
        case "permission_denied":
            recorder.denies(text_of(fields.get("tool_use_id")))
        case _:
            return


def _streamed(event: Fields, recorder: TurnRecorder) -> None:
    recorder.mark_active()
    match event.get("type"):
        case "message_start":
            recorder.begins(_tokens(part(event, "message", "usage")))
        case "content_block_delta" if part(event, "delta").get("type") == "text_delta":
            recorder.add_text(text_of(part(event, "delta").get("text")))
        case "message_delta":
            recorder.spends(number_of(part(event, "usage").get("output_tokens")))
        case _:
            return


def _tokens(usage: Fields) -> Usage:
    cached = ("cache_read_input_tokens", "cache_creation_input_tokens")
    return usage_of(usage, "input_tokens", "output_tokens", "cache_read_input_tokens", *cached)


def _assistant(message: Fields, recorder: TurnRecorder) -> None:
    if message.get("model") == "<synthetic>":
        return
    for block in parts(message.get("content")):
        if block.get("type") == "text" and not recorder.is_streaming:
            recorder.add_text(text_of(block.get("text")), text_of(message.get("id")))
        if block.get("type") == "tool_use":
            name = text_of(block.get("name"))
            given = part(block, "input")
            path = given.get("file_path") if name in _WRITING else None
            recorder.calls(text_of(block.get("id")), name, given, may_write=name not in _HARMLESS, path=path)


def _results(message: Fields, recorder: TurnRecorder) -> None:
    for block in parts(message.get("content")):
        if block.get("type") == "tool_result":
            text, is_error = text_of(block.get("content")), block.get("is_error") is True
            denied = is_error and _NO_SUCH_TOOL in text
            recorder.gets(text_of(block.get("tool_use_id")), text, is_error=is_error, is_denied=denied)


def _result(fields: Fields, recorder: TurnRecorder) -> None:
    """Record the end of the turn; a failed request is a result with `is_error`."""
    recorder.finishes()
    recorder.counted = _sum(part(fields, "modelUsage"), fields.get("total_cost_usd"))
    since = fields.get("model_usage_since_last_result")
    if isinstance(since, dict):
        recorder.set_total(_sum(part(fields, "model_usage_since_last_result"), None))
    else:
        recorder.set_total(_tokens(part(fields, "usage")))
    _weigh(part(fields, "modelUsage"), recorder)
    text = text_of(fields.get("result"))
    if fields.get("is_error") is not True:
        recorder.answers(text)
    elif fields.get("subtype") in _LIMITS or fields.get("api_error") == "max_output_tokens":
        recorder.error = output_limit("claude", text or text_of(fields.get("subtype")))
    else:
        status = fields.get("api_error_status")
        text = text or text_of(fields.get("errors")) or "no reason given"
        if text.startswith(_BROKEN_OFF):
            recorder.error = crashed("claude", "broke off", text)
        else:
            recorder.fails(text, status if isinstance(status, int) else None)


def _sum(models: Fields, cost: object) -> Usage:
    total, cached = NO_USAGE, ("cacheReadInputTokens", "cacheCreationInputTokens")
    for name in models:
        used = part(models, name)
        tokens = usage_of(used, "inputTokens", "outputTokens", "cacheReadInputTokens", *cached)
        total += structs.replace(tokens, cost=cost_of(used.get("costUSD")))
    known = cost_of(cost)
    return total if known is None else structs.replace(total, cost=known)


def _weigh(models: Fields, recorder: TurnRecorder) -> None:
    window = max((number_of(part(models, name).get("contextWindow")) for name in models), default=0)
    if window and recorder.request.input:
        recorder.context = ContextFill(used=recorder.request.input, size=window)


PROGRAM = Program(
    name="claude",
    install="npm install -g @anthropic-ai/claude-code",
    login="Run `claude` and log in, or set ANTHROPIC_API_KEY",
    arguments=_arguments,
    read=_read,
    providers=("anthropic",),
    package="@anthropic-ai/claude-code",
    least_version=(2, 1),
    variables=(
        "ANTHROPIC_*", "CLAUDE_CONFIG_DIR", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_*", "CLAUDE_CODE_SKIP_*",
        "CLAUDE_CODE_MAX_RETRIES", "CLAUDE_CODE_MAX_OUTPUT_TOKENS", "CLAUDE_CODE_DISABLE_*", "DISABLE_*",
        "API_TIMEOUT_MS",
    ),
    variables_by={
        "CLAUDE_CODE_USE_BEDROCK": ("AWS_*",),
        "CLAUDE_CODE_USE_VERTEX": ("GOOGLE_*", "CLOUD_ML_*", "VERTEX_*"),
    },
    # Its default of ten retries takes minutes with an invalid key; Deputy retries after it.
    settings=lambda _: {"CLAUDE_CODE_MAX_RETRIES": "1", "DISABLE_AUTOUPDATER": "1"},
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    login_files=LOGIN_FILES["claude"],
    logged_out=("not logged in", "please run /login", "invalid api key", "oauth token has expired"),
    session_unknown=("no conversation found with session id",),
    model_missing=("issue with the selected model",),
    refused=("usage policy",),
)  # fmt: skip
