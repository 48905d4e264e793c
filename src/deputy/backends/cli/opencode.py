"""opencode: `opencode run --format json`. It reads the prompt from stdin only, and prints errors twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import json

from deputy.backends.cli.program import Fields, Invocation, ModelCommand, Program, cost_of, number_of, part, text_of
from deputy.core.fallback import LOGIN_FILES
from deputy.core.outcome import Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deputy.backends.turn_recorder import TurnRecorder

_PERMISSIONS: Mapping[str, tuple[str, ...]] = {
    "Read": ("read", "list"), "Grep": ("grep",), "Glob": ("glob",), "WebFetch": ("webfetch",),
    "WebSearch": ("websearch",), "Edit": ("edit",), "Write": ("edit",), "Run": ("bash",),
}  # fmt: skip
_HARMLESS = frozenset({"read", "list", "grep", "glob", "webfetch", "websearch", "codesearch", "todowrite", "todoread"})
_DENIALS = ("Model tried to call unavailable tool", "The user has specified a rule", "The user rejected permission")
_SWITCHED_OFF: Mapping[str, str] = {
    # Settings of the project could run commands.
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
}
_STOPPED = ("stop", "end", "length", "content-filter", "other", "unknown")


def _arguments(invocation: Invocation) -> list[str]:
    return [
        "run",
        *("--format", "json"),
        # The reason for an unknown model is only in its log.
        *("--print-logs", "--log-level", "ERROR"),
        *(("--session", invocation.session) if invocation.session else (f"--title={invocation.request.session_id}",)),
        *(("--model", invocation.model) if invocation.model else ()),
    ]


def _settings(invocation: Invocation) -> dict[str, str]:
    granted = {name for ours in invocation.tools for name in _PERMISSIONS.get(ours, ())}
    permissions = {"*": "deny", **dict.fromkeys(sorted(granted), "allow"), "external_directory": "deny"}
    return {"OPENCODE_PERMISSION": json.encode(permissions).decode(), **_SWITCHED_OFF}


def _read(fields: Fields, recorder: TurnRecorder) -> None:
    session, piece = fields.get("sessionID"), part(fields, "part")
    if isinstance(session, str):
        recorder.session = session
    match fields.get("type"):
        case "text":
            recorder.add_text(text_of(piece.get("text")), text_of(piece.get("messageID")))
        case "tool_use":
            _tool(piece, recorder)
        case "step_finish":
            _step(piece, recorder)
        case "error":
            recorder.finishes()
            error = part(fields, "error")
            data = part(error, "data")
            status = data.get("statusCode")
            text = text_of(data.get("responseBody")) or text_of(data.get("message"))
            recorder.fails(text or text_of(error.get("name")), status if isinstance(status, int) else None)
        case _:
            recorder.mark_active()


def _tool(piece: Fields, recorder: TurnRecorder) -> None:
    """Record a tool call, which is reported only at its end."""
    name, call, state = text_of(piece.get("tool")), text_of(piece.get("callID")), part(piece, "state")
    given, problem = part(state, "input"), text_of(state.get("error"))
    path = given.get("filePath") if name in ("write", "edit") else None
    recorder.calls(call, name, given, may_write=name not in _HARMLESS, path=path)
    if state.get("status") in ("completed", "error"):
        is_error = state.get("status") == "error"
        result = text_of(state.get("output")) or problem
        recorder.gets(call, result, is_error=is_error, is_denied=problem.startswith(_DENIALS))


def _step(piece: Fields, recorder: TurnRecorder) -> None:
    tokens = part(piece, "tokens")
    cached, written = number_of(part(tokens, "cache").get("read")), number_of(part(tokens, "cache").get("write"))
    # An unknown price is reported as 0.
    cost = cost_of(piece.get("cost")) or None
    output = number_of(tokens.get("output")) + number_of(tokens.get("reasoning"))
    recorder.uses(
        Usage(input=number_of(tokens.get("input")) + cached + written, output=output, cached=cached, cost=cost)
    )
    if piece.get("reason") in _STOPPED:
        recorder.finishes()


def _listed(text: str) -> Iterator[str]:
    """The names in `opencode models`: one `provider/model` on each line."""
    return (line for line in text.splitlines() if "/" in line and " " not in line)


PROGRAM = Program(
    name="opencode",
    install="npm install -g opencode-ai",
    login="Run `opencode auth login`, or set the key of the model's provider",
    arguments=_arguments,
    read=_read,
    separator="/",
    package="opencode-ai",
    least_version=(1,),
    variables=("OPENCODE_CONFIG*", "OPENCODE_API_KEY", "OPENCODE_DISABLE_*"),
    variables_by={
        "anthropic": ("ANTHROPIC_API_KEY",),
        "openai": ("OPENAI_API_KEY",),
        "google": ("GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY"),
        "openrouter": ("OPENROUTER_API_KEY",),
        "groq": ("GROQ_API_KEY",),
        "deepseek": ("DEEPSEEK_API_KEY",),
        "mistral": ("MISTRAL_API_KEY",),
    },
    settings=_settings,
    keys=("OPENCODE_API_KEY",),
    login_files=LOGIN_FILES["opencode"],
    key_files=(".config/opencode/opencode.json", ".config/opencode/opencode.jsonc", ".config/opencode/config.json"),
    logged_out=("loadapikeyerror", "api key is missing"),
    session_unknown=("session not found",),
    model_missing=("providermodelnotfounderror", "model not found"),
    models=ModelCommand(arguments=("models",), read=_listed, settings=_SWITCHED_OFF),
)  # fmt: skip
