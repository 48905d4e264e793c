"""The output format of each program for the same turn.

Hundreds of tests start these programs: they import what each turn needs, and nothing else.
"""

from __future__ import annotations

if __package__:
    from tests.support.programs.json_text import dumps, loads
else:
    from json_text import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    Line = dict[str, Any]
    Fault = tuple[str, int, str]
    """A provider's failure: its code, its status, its message."""

FAULTS: dict[str, Fault] = {
    "bad_api_key": ("authentication_error", 401, "invalid api key"),
    "context_exhausted": ("context_length_exceeded", 400, "prompt is too long: 9000 > 8192 maximum"),
    "model_not_found": ("model_not_found", 404, "no such model"),
    "overloaded": ("overloaded_error", 529, "Overloaded"),
}


SESSION_ID = "{session_id}"
"""Stands in a text for the session id that the program was told, as in any script."""


def addressee(prompt: str) -> str:
    """The session id that a prompt tells, if it does."""
    return prompt.partition('"session_id":')[2].lstrip(' "').partition('"')[0]


class Dialect:
    """One program's way to be called and to answer."""

    version = "1.0.0"
    tools: ClassVar[dict[str, tuple[str, str]]] = {}
    """Its names for our tools and for the argument that holds the path or the command."""

    def __init__(self, argv: list[str], environ: dict[str, str]) -> None:
        self.argv = argv
        self.environ = environ
        self.session = ""
        self.model = self.option("--model") or "own-choice"

    def option(self, name: str) -> str:
        """The value after an option, if it is there."""
        return self.argv[self.argv.index(name) + 1] if name in self.argv else ""

    @property
    def resumes(self) -> str:
        """The session to go on with."""
        return self.option("--resume")

    def allows(self, tool: str) -> bool:
        """Whether it was called so that it may use one of our tools."""
        raise NotImplementedError

    def begins(self) -> list[Line]:
        """What it says first."""
        return []

    def says(self, text: str, number: int, usage: Line) -> list[Line]:
        """A message."""
        raise NotImplementedError

    def calls(self, call: str, tool: str, arguments: Line) -> list[Line]:
        """The begin of a tool's use."""
        return []

    def gets(self, call: str, tool: str, arguments: Line, output: str, denied: bool) -> list[Line]:
        """The end of a tool's use."""
        raise NotImplementedError

    def takes(self, usage: Line, number: int, is_last: bool) -> list[Line]:
        """What one request took, where it tells that."""
        return []

    def ends(self, text: str, turn: Line, total: Line) -> list[Line]:
        """What it says last."""
        return []

    def fails(self, fault: Fault) -> tuple[list[Line], str, int]:
        """Its lines, its standard error and its exit code when its provider fails."""
        raise NotImplementedError

    def logged_out(self) -> tuple[list[Line], str, int]:
        """The same without a login."""
        raise NotImplementedError

    def unknown_session(self, session: str) -> tuple[list[Line], str, int]:
        """The same when it does not have a session."""
        raise NotImplementedError

    def their(self, tool: str, arguments: Line) -> tuple[str, Line]:
        """A tool's name and arguments in its own words."""
        name, argument = self.tools[tool]
        rest = {key: value for key, value in arguments.items() if key not in ("path", "command")}
        return name, {argument: arguments.get("path") or arguments.get("command") or "", **rest}


class Claude(Dialect):
    """Claude Code 2.1."""

    version = "2.1.325 (Claude Code)"
    tools: ClassVar = {"Read": ("Read", "file_path"), "Write": ("Write", "file_path"), "Run": ("Bash", "command")}

    def allows(self, tool: str) -> bool:
        name = self.tools[tool][0]
        is_free = tool == "Read" or (tool == "Write" and self.option("--permission-mode") == "acceptEdits")
        return name in self.option("--tools").split(",") and (
            is_free or name in self.option("--allowedTools").split(",")
        )

    def begins(self) -> list[Line]:
        return [self._line("system", subtype="init", model=self.model, permissionMode=self.option("--permission-mode"))]

    def says(self, text: str, number: int, usage: Line) -> list[Line]:
        given = {
            "input_tokens": usage["input"] - usage["cached"],
            "cache_read_input_tokens": usage["cached"],
            "output_tokens": 1,
        }
        message: Line = {"id": f"msg_{number}", "model": self.model, "role": "assistant", "usage": given}
        lines = [self._streamed({"type": "message_start", "message": {**message, "content": []}})]
        if text:
            lines += [
                self._streamed({"type": "content_block_delta", "delta": {"type": "text_delta", "text": word}})
                for word in pieces(text)
            ]
            content = [{"type": "text", "text": text}]
            lines.append(self._line("assistant", message={**message, "content": content}))
        return lines

    def calls(self, call: str, tool: str, arguments: Line) -> list[Line]:
        name, given = self.their(tool, arguments)
        block = {"type": "tool_use", "id": call, "name": name, "input": given}
        return [self._line("assistant", message={"model": self.model, "content": [block]})]

    def gets(self, call: str, tool: str, arguments: Line, output: str, denied: bool) -> list[Line]:
        block: Line = {"type": "tool_result", "tool_use_id": call, "content": output}
        if denied:
            name = self.tools[tool][0]
            block |= {
                "is_error": True,
                "content": f"<tool_use_error>Error: No such tool available: {name}.</tool_use_error>",
            }
        return [self._line("user", message={"role": "user", "content": [block]})]

    def takes(self, usage: Line, number: int, is_last: bool) -> list[Line]:
        return [self._streamed({"type": "message_delta", "usage": {"output_tokens": usage["output"]}})]

    def ends(self, text: str, turn: Line, total: Line) -> list[Line]:
        return [self._result(False, text, turn, total)]

    def fails(self, fault: Fault) -> tuple[list[Line], str, int]:
        code, status, message = fault
        words = {
            "authentication_error": "Failed to authenticate. API Error: 401 invalid api key",
            "context_length_exceeded": "Prompt is too long",
            "model_not_found": f"There's an issue with the selected model ({self.model}). It may not exist.",
        }.get(code, f"API Error: {status} {message}")
        retry = self._line("system", subtype="api_retry", attempt=1, retry_delay_ms=1, error_status=status, error=code)
        result = {**self._result(True, words), "api_error_status": status, "api_error_type": code}
        return [retry, result], "", 1

    def logged_out(self) -> tuple[list[Line], str, int]:
        return [self._result(True, "Not logged in · Please run /login")], "", 1

    def unknown_session(self, session: str) -> tuple[list[Line], str, int]:
        words = f"No conversation found with session ID: {session}"
        return [{"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": [words]}], words, 1

    def _line(self, kind: str, **fields: Any) -> Line:
        return {"type": kind, **fields, "parent_tool_use_id": None, "session_id": self.session}

    def _streamed(self, event: Line) -> Line:
        return self._line("stream_event", event=event)

    def _result(self, is_error: bool, text: str, turn: Line | None = None, total: Line | None = None) -> Line:
        """A failure is called a success too, and its kind does not come first."""
        return {
            "duration_ms": 1,
            "session_id": self.session,
            "total_cost_usd": _dollars(total),
            "modelUsage": {self.model: {**_counts(total), "contextWindow": 200_000}} if total else {},
            "model_usage_since_last_result": {self.model: _counts(turn)} if turn else {},
            "is_error": is_error,
            "subtype": "success",
            "result": text,
            "type": "result",
        }


class CursorAgent(Dialect):
    """Cursor's agent of early 2026."""

    version = "2026.02.13-41ac335"
    tools: ClassVar = {"Read": ("read", "path"), "Write": ("write", "path"), "Run": ("shell", "command")}

    def allows(self, tool: str) -> bool:
        return tool == "Read" or "--force" in self.argv

    def begins(self) -> list[Line]:
        return [{"type": "system", "subtype": "init", "session_id": self.session, "model": self.model}]

    def says(self, text: str, number: int, usage: Line) -> list[Line]:
        content = [{"type": "text", "text": text}]
        message = {"role": "assistant", "content": content}
        return [{"type": "assistant", "message": message, "session_id": self.session}] if text else []

    def calls(self, call: str, tool: str, arguments: Line) -> list[Line]:
        name, given = self.their(tool, arguments)
        return [
            {
                "type": "tool_call",
                "subtype": "started",
                "call_id": call,
                "tool_call": {f"{name}ToolCall": {"args": given}},
            }
        ]

    def gets(self, call: str, tool: str, arguments: Line, output: str, denied: bool) -> list[Line]:
        name, given = self.their(tool, arguments)
        result = {"rejected": {"reason": "not allowed"}} if denied else {"success": {"content": output}}
        used = {f"{name}ToolCall": {"args": given, "result": result}}
        return [{"type": "tool_call", "subtype": "completed", "call_id": call, "tool_call": used}]

    def ends(self, text: str, turn: Line, total: Line) -> list[Line]:
        usage = {
            "inputTokens": turn["input"] - turn["cached"],
            "outputTokens": turn["output"],
            "cacheReadTokens": turn["cached"],
            "cacheWriteTokens": 0,
        }
        return [
            {
                "type": "result",
                "subtype": "success",
                "is_error": False,
                "result": text,
                "session_id": self.session,
                "usage": usage,
            }
        ]

    def fails(self, fault: Fault) -> tuple[list[Line], str, int]:
        code, _, message = fault
        if code == "model_not_found":
            return [], f"Cannot use this model: {self.model}. Available models: auto, composer-1", 1
        words = dumps({"error": {"type": code, "message": message}})
        return (
            [{"type": "result", "subtype": "error", "is_error": True, "result": words, "session_id": self.session}],
            "",
            1,
        )

    def logged_out(self) -> tuple[list[Line], str, int]:
        return [], "Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY.", 1

    def unknown_session(self, session: str) -> tuple[list[Line], str, int]:
        return [], f"Chat not found: {session}", 1


class Codex(Dialect):
    """Codex 0.166."""

    version = "codex-cli 0.166.0"
    tools: ClassVar = {
        "Read": ("command_execution", "command"),
        "Write": ("file_change", "path"),
        "Run": ("command_execution", "command"),
    }

    @property
    def resumes(self) -> str:
        return self.option("resume")

    def allows(self, tool: str) -> bool:
        return tool == "Read" or 'sandbox_mode="workspace-write"' in self.argv

    def begins(self) -> list[Line]:
        warning = {
            "id": "item_0",
            "type": "error",
            "message": "Model metadata not found. Defaulting to fallback metadata.",
        }
        return [
            {"type": "thread.started", "thread_id": self.session},
            {"type": "item.completed", "item": warning},
            {"type": "turn.started"},
        ]

    def says(self, text: str, number: int, usage: Line) -> list[Line]:
        item = {"id": f"item_m{number}", "type": "agent_message", "text": text}
        return [{"type": "item.completed", "item": item}] if text else []

    def calls(self, call: str, tool: str, arguments: Line) -> list[Line]:
        return [{"type": "item.started", "item": self._item(call, tool, arguments, "in_progress")}]

    def gets(self, call: str, tool: str, arguments: Line, output: str, denied: bool) -> list[Line]:
        item = self._item(call, tool, arguments, "failed" if denied else "completed")
        output = "Read-only file system" if denied else output
        return [{"type": "item.completed", "item": {**item, "aggregated_output": output, "exit_code": int(denied)}}]

    def ends(self, text: str, turn: Line, total: Line) -> list[Line]:
        """What it took is told for the whole thread."""
        usage = {
            "input_tokens": total["input"],
            "cached_input_tokens": total["cached"],
            "output_tokens": total["output"],
        }
        return [{"type": "turn.completed", "usage": usage}]

    def fails(self, fault: Fault) -> tuple[list[Line], str, int]:
        code, status, message = fault
        words = f"unexpected status {status} X: {message}, url: http://127.0.0.1/v1/responses"
        if code == "context_length_exceeded":
            words = dumps({"type": "error", "error": {"type": code, "code": code, "message": message}})
        elif code == "model_not_found":
            words = message
        again = {"type": "error", "message": "Reconnecting... 1/5 (stream disconnected before completion)"}
        return [again, {"type": "error", "message": words}, {"type": "turn.failed", "error": {"message": words}}], "", 1

    def logged_out(self) -> tuple[list[Line], str, int]:
        words = "Missing environment variable: `OPENAI_API_KEY`."
        return [{"type": "error", "message": words}, {"type": "turn.failed", "error": {"message": words}}], "", 1

    def unknown_session(self, session: str) -> tuple[list[Line], str, int]:
        return [], f"Error: thread/resume: thread/resume failed: no rollout found for thread id {session}", 1

    def _item(self, call: str, tool: str, arguments: Line, status: str) -> Line:
        kind = self.tools[tool][0]
        path = arguments.get("path", "")
        given: Line = {"command": arguments.get("command") or f"cat {path}"}
        if kind == "file_change":
            given = {"changes": [{"path": path, "kind": "add"}]}
        return {"id": call, "type": kind, **given, "status": status}


class Opencode(Dialect):
    """opencode 1.18."""

    version = "1.18.33"
    tools: ClassVar = {"Read": ("read", "filePath"), "Write": ("write", "filePath"), "Run": ("bash", "command")}

    @property
    def resumes(self) -> str:
        return self.option("--session")

    def allows(self, tool: str) -> bool:
        allowed = loads(self.environ.get("OPENCODE_PERMISSION", "{}"))
        permission = {"Read": "read", "Write": "edit", "Run": "bash"}[tool]
        return allowed.get(permission, allowed.get("*", "allow")) == "allow"

    def says(self, text: str, number: int, usage: Line) -> list[Line]:
        lines = [self._line("step_start", {"type": "step-start"})]
        return [*lines, self._line("text", {"messageID": f"msg_{number}", "text": text})] if text else lines

    def gets(self, call: str, tool: str, arguments: Line, output: str, denied: bool) -> list[Line]:
        name, given = self.their(tool, arguments)
        state: Line = {"status": "completed", "input": given, "output": output}
        if denied:
            state = {"status": "error", "input": given, "error": "Model tried to call unavailable tool 'invalid'."}
        return [self._line("tool_use", {"tool": name, "callID": call, "state": state})]

    def takes(self, usage: Line, number: int, is_last: bool) -> list[Line]:
        tokens = {
            "input": usage["input"] - usage["cached"],
            "output": usage["output"],
            "reasoning": 0,
            "cache": {"read": usage["cached"], "write": 0},
        }
        reason = "stop" if is_last else "tool-calls"
        return [self._line("step_finish", {"reason": reason, "tokens": tokens, "cost": 0})]

    def fails(self, fault: Fault) -> tuple[list[Line], str, int]:
        """Its error is printed twice."""
        code, status, message = fault
        body = dumps({"type": "error", "error": {"type": code, "code": code, "message": message}})
        error: Line = {"name": "APIError", "data": {"message": message, "statusCode": status, "responseBody": body}}
        if code == "context_length_exceeded":
            error = {"name": "ContextOverflowError", "data": {"message": message, "responseBody": body}}
        return [self._error(error)] * 2, "", 1

    def logged_out(self) -> tuple[list[Line], str, int]:
        error = {"name": "UnknownError", "data": {"message": "AI_LoadAPIKeyError: API key is missing."}}
        return [self._error(error)], "", 1

    def unknown_session(self, session: str) -> tuple[list[Line], str, int]:
        return [], "\x1b[91m\x1b[1mError: \x1b[0mSession not found", 1

    def _error(self, error: Line) -> Line:
        return {"type": "error", "timestamp": 1, "sessionID": self.session, "error": error}

    def _line(self, kind: str, piece: Line) -> Line:
        return {"type": kind, "timestamp": 1, "sessionID": self.session, "part": piece}


class Gemini(Dialect):
    """Gemini CLI 0.61."""

    version = "0.61.0"
    tools: ClassVar = {
        "Read": ("read_file", "file_path"),
        "Write": ("write_file", "file_path"),
        "Run": ("run_shell_command", "command"),
    }

    def allows(self, tool: str) -> bool:
        mode = self.option("--approval-mode")
        return tool == "Read" or mode == "yolo" or (tool == "Write" and mode == "auto_edit")

    def begins(self) -> list[Line]:
        return [
            {"type": "init", "session_id": self.session, "model": self.model},
            {"type": "message", "role": "user", "content": "…"},
        ]

    def says(self, text: str, number: int, usage: Line) -> list[Line]:
        return [{"type": "message", "role": "assistant", "content": word, "delta": True} for word in pieces(text)]

    def calls(self, call: str, tool: str, arguments: Line) -> list[Line]:
        name, given = self.their(tool, arguments)
        return [{"type": "tool_use", "tool_name": name, "tool_id": call, "parameters": given}]

    def gets(self, call: str, tool: str, arguments: Line, output: str, denied: bool) -> list[Line]:
        if denied:
            error = {"type": "tool_not_registered", "message": f'Tool "{self.tools[tool][0]}" not found.'}
            return [{"type": "tool_result", "tool_id": call, "status": "error", "output": "", "error": error}]
        return [{"type": "tool_result", "tool_id": call, "status": "success", "output": output}]

    def ends(self, text: str, turn: Line, total: Line) -> list[Line]:
        stats = {"input_tokens": turn["input"], "output_tokens": turn["output"], "cached": turn["cached"]}
        return [{"type": "result", "status": "success", "stats": stats}]

    def fails(self, fault: Fault) -> tuple[list[Line], str, int]:
        """Its exit code is the status, as much of it as fits."""
        code, status, message = fault
        body = dumps({"type": "error", "error": {"type": code, "code": code, "message": message}})
        error = {"type": "unknown", "message": f"[API Error: {body}]"}
        line = {"type": "result", "status": "error", "error": error, "stats": {"input_tokens": 0, "output_tokens": 0}}
        return [line], f"Error when talking to Gemini API {body}", status % 256

    def logged_out(self) -> tuple[list[Line], str, int]:
        return [], "Please set an Auth method in your settings or specify one of the variables: GEMINI_API_KEY", 41

    def unknown_session(self, session: str) -> tuple[list[Line], str, int]:
        return [], f'Error resuming session: Invalid session identifier "{session}".', 42


def pieces(text: str) -> list[str]:
    """A text in pieces of about a word."""
    first, *rest = text.split(" ")
    return [piece for piece in (first, *(f" {word}" for word in rest)) if piece]


def _counts(usage: Line | None) -> Line:
    usage = usage or {"input": 0, "output": 0, "cached": 0}
    return {
        "inputTokens": usage["input"] - usage["cached"],
        "outputTokens": usage["output"],
        "cacheReadInputTokens": usage["cached"],
        "cacheCreationInputTokens": 0,
        "costUSD": _dollars(usage),
    }


def _dollars(usage: Line | None) -> float:
    return 0.0 if usage is None else round(usage["input"] * 2e-6 + usage["output"] * 1e-5, 9)


DIALECTS: dict[str, type[Dialect]] = {
    "claude": Claude,
    "codex": Codex,
    "cursor-agent": CursorAgent,
    "gemini": Gemini,
    "opencode": Opencode,
}
VERSIONS = {name: dialect.version for name, dialect in DIALECTS.items()} | {
    # They speak the Agent Client Protocol, and nothing else.
    "claude-agent-acp": "0.99.1",
    "codex-acp": "2.6.0",
    "copilot": "1.0.102",
    "qwen": "0.24.4",
}
