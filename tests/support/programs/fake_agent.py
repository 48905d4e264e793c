"""A scripted agent that speaks the Agent Client Protocol over its standard streams."""

from __future__ import annotations

import _thread
import os
import sys
import time
from _queue import SimpleQueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.support.programs.dialects import FAULTS, SESSION_ID, Line, addressee, pieces
    from tests.support.programs.json_text import dumps, loads
    from tests.support.programs.misbehaviour import FOR_EVER, how_now, misbehave_first, misbehave_midway
    from tests.support.programs.text_files import read_text, write_text
else:
    from dialects import FAULTS, SESSION_ID, addressee, pieces
    from json_text import dumps, loads
    from misbehaviour import FOR_EVER, how_now, misbehave_first, misbehave_midway
    from text_files import read_text, write_text

_LOADS = ("gemini", "qwen")
"""They go on by telling everything again."""
_KINDS = {"Read": "read", "Write": "edit", "Run": "execute"}
_MODES = ("default", "read-only", "workspace-write")


def play_agent(name: str, script: Line, executable: str, note: Callable[[str], None]) -> None:
    """Talk until the other side hangs up."""
    how = str(script.get("misbehaviour") or "")
    if how == "does not know a flag":
        sys.exit("error: unknown option '--acp'")
    misbehave_first(how, int(script.get("flood_bytes") or 0))
    FakeAgent(name, script, f"{executable}.sessions.json", note).talk()


class FakeAgent:
    """One conversation, in which several prompts may come."""

    def __init__(self, name: str, script: Line, sessions: str, note: Callable[[str], None]) -> None:
        self.name = name
        self.script = script
        self.how = str(script.get("misbehaviour") or "")
        self._note = note
        self._file = sessions
        self._sessions: dict[str, Line] = loads(read_text(sessions, "{}"))
        self._heard: SimpleQueue[Line | None] = SimpleQueue()
        self._session = ""
        self._asked = 0
        self._is_cancelled = False
        self._goes_on = False

    def talk(self) -> None:
        _thread.start_new_thread(self._listen, ())
        while (message := self._heard.get()) is not None:
            if "method" in message and "id" in message:
                self._serve(message["id"], message["method"], message.get("params") or {})
        if self.how == "lingers":
            time.sleep(FOR_EVER)

    def _listen(self) -> None:
        for line in sys.stdin:
            message = loads(line)
            if message.get("method") == "session/cancel":
                self._is_cancelled = True
            self._heard.put(message)
        self._heard.put(None)

    # --- what it answers ----------------------------------------------------------------------------------------------

    def _serve(self, number: int, method: str, params: Line) -> None:
        match method:
            case "initialize":
                self._answer(number, self._introduction())
            case "session/new" | "session/load" | "session/resume" if self.how == "is logged out":
                self._fail(number, "Authentication required", -32000)
            case "session/new":
                self._session = f"ses_{len(self._sessions) + 1:04}"
                self._sessions[self._session] = {"answered": 0, "cost": 0.0, "addressee": ""}
                self._save()
                self._answer(number, {"sessionId": self._session, **self._choices()})
            case "session/load" | "session/resume":
                self._go_on(number, method, params)
            case "session/set_mode" | "session/set_config_option":
                self._answer(number, {} if method == "session/set_mode" else self._choices())
            case "session/prompt":
                prompt = params["prompt"][0]["text"]
                traceparent = params.get("_meta", {}).get("traceparent", "")
                self._note(f"{prompt}\n{traceparent}" if traceparent else prompt)
                self._prompt(number, prompt)
            case _:
                self._fail(number, "Method not found", -32601)

    def _introduction(self) -> Line:
        goes_on: Line = {"loadSession": True} if self.name in _LOADS else {"sessionCapabilities": {"resume": {}}}
        return {
            "protocolVersion": 99 if self.how == "speaks another version" else 1,
            "agentCapabilities": {} if self.how == "cannot go on" else goes_on,
            "agentInfo": {"name": self.name, "version": "1"},
            "authMethods": [{"id": "browser", "name": "Browser"}],
        }

    def _choices(self) -> Line:
        modes = [{"id": mode, "name": mode} for mode in _MODES if self.how != "has no modes"]
        option: Line = {
            "id": "model",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": "own",
            "options": [],
        }
        return {"modes": {"currentModeId": "agent", "availableModes": modes}, "configOptions": [option]}

    def _go_on(self, number: int, method: str, params: Line) -> None:
        if params["sessionId"] not in self._sessions:
            self._fail(number, "Resource not found", -32002)
            return
        self._session = params["sessionId"]
        self._goes_on = True
        if method == "session/load":
            self._update("user_message_chunk", content={"type": "text", "text": "And what was asked."})
            self._update("agent_message_chunk", content={"type": "text", "text": "All that was said."})
        self._answer(number, self._choices())

    # --- one turn -----------------------------------------------------------------------------------------------------

    def _prompt(self, number: int, prompt: str) -> None:
        state = self._sessions[self._session]
        state["addressee"] = state["addressee"] or addressee(prompt)
        spent = {"input": 0, "output": 0, "cached": 0}
        for turn in self.script["turns"][state["answered"] :]:
            if not self._waits(turn.get("delay_seconds") or 0):
                self._end_cancelled(number)
                return
            if turn.get("faults"):
                _, status, message = FAULTS[turn["faults"][0]]
                self._fail_in_words(number, f"API Error: {status} {message}")
                return
            state["answered"] += 1
            spent = {key: spent[key] + turn["usage"][key] for key in spent}
            for word in pieces(str(turn.get("text") or "").replace(SESSION_ID, state["addressee"])):
                self._say(word, f"msg_{state['answered']}")
            misbehave_midway(how_now(self.how, goes_on=self._goes_on))
            self._misbehave()
            for index, call in enumerate(turn.get("calls") or []):
                self._use(f"call_{state['answered']}_{index}", call["name"], call.get("arguments") or {})
            if not turn.get("calls"):
                break
        state["cost"] = round(state["cost"] + 0.0004, 6)
        self._update("usage_update", used=120, size=200_000, cost={"amount": state["cost"], "currency": "USD"})
        self._save()
        self._finish(number, spent)

    def _finish(self, number: int, spent: Line) -> None:
        if self.how == "fills its context":
            self._update("usage_update", used=199_000, size=200_000)
        reasons = {"fills its context": "max_tokens", "says too much": "max_tokens", "refuses": "refusal"}
        usage = {
            "totalTokens": spent["input"] + spent["output"],
            "inputTokens": spent["input"] - spent["cached"],
            "cachedReadTokens": spent["cached"],
            "outputTokens": spent["output"],
        }
        self._answer(number, {"stopReason": reasons.get(self.how, "end_turn"), "usage": usage})

    def _fail_in_words(self, number: int, words: str) -> None:
        """One of them tells a failure as its answer."""
        if self.name == "codex-acp":
            self._say(words, "msg_failed")
            self._answer(number, {"stopReason": "end_turn", "usage": {"inputTokens": 0, "outputTokens": 0}})
        else:
            self._fail(number, f"Internal error: {words}", -32603)

    def _end_cancelled(self, number: int) -> None:
        """One of them does not say that it was cancelled."""
        self._save()
        if self.name == "qwen":
            self._fail(number, "Internal error: This operation was aborted", -32603)
        else:
            self._answer(number, {"stopReason": "cancelled"})

    def _save(self) -> None:
        write_text(self._file, dumps(self._sessions))

    def _waits(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._is_cancelled:
            time.sleep(0.02)
        return not self._is_cancelled

    def _use(self, call: str, tool: str, arguments: Line) -> None:
        path = os.path.join(os.getcwd(), str(arguments.get("path", "")))
        fields: Line = {"toolCallId": call, "title": f"{tool} {path}", "kind": _KINDS[tool], "status": "pending"}
        fields |= {"locations": [{"path": path}], "rawInput": arguments}
        self._update("tool_call", **fields)
        if tool != "Read" and not self._is_permitted(fields):
            self._update("tool_call_update", toolCallId=call, status="failed")
            return
        output = self._done(tool, path, arguments)
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        self._update("tool_call_update", toolCallId=call, status="completed", content=content)

    def _is_permitted(self, call: Line) -> bool:
        options = [
            {"optionId": "forever", "name": "Always", "kind": "allow_always"},
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        replied = self._ask("session/request_permission", toolCall=call, options=options)
        return replied.get("result", {}).get("outcome", {}).get("optionId") == "yes"

    def _done(self, tool: str, path: str, arguments: Line) -> str:
        if tool == "Read":
            return str(self._ask("fs/read_text_file", path=path).get("result", {}).get("content", "refused"))
        if tool == "Write":
            # One of them takes a file that is not there for a failure.
            if self.name == "gemini" and "error" in self._ask("fs/read_text_file", path=path):
                return "Error checking existing file"
            self._ask("fs/write_text_file", path=path, content=arguments.get("content", ""))
            return "written"
        import subprocess

        return subprocess.run(["sh", "-c", arguments["command"]], capture_output=True, text=True, check=False).stdout

    def _misbehave(self) -> None:
        match self.how:
            case "updates without end":
                line = _line({"method": "session/update", "params": self._told("agent_thought_chunk", content={})})
                for _ in range(100):
                    _write(line * (int(self.script["flood_bytes"]) // 100))
            case "asks for what it may not have":
                self._probe()
            case "talks nonsense":
                for message in _NONSENSE:
                    _write(message)
            case _:
                pass

    def _probe(self) -> None:
        """Try every way out, and say in the end what came of each."""
        secret, outside = f"{os.getcwd()}/.env", f"{os.path.dirname(os.getcwd())}/outside.txt"
        named = {"toolCallId": "probe_named", "kind": "edit", "title": "edit"}
        came = {
            "secret": self._ask("fs/read_text_file", path=secret),
            "outside": self._ask("fs/read_text_file", path=outside),
            "climb": self._ask("fs/read_text_file", path="../outside.txt"),
            "link": self._ask("fs/read_text_file", path=f"{os.getcwd()}/link/outside.txt"),
            "write": self._ask("fs/write_text_file", path=outside, content="x"),
            "hook": self._ask("fs/write_text_file", path=f"{os.getcwd()}/.git/hooks/x", content="x"),
            "terminal": self._ask("terminal/create", command="sh"),
            "unknown": self._ask("x/y"),
        }
        text = {key: "result" if "result" in reply else reply["error"]["code"] for key, reply in came.items()}
        text["edit nowhere"] = self._is_permitted(named)
        text["edit outside"] = self._is_permitted({**named, "toolCallId": "p2", "locations": [{"path": outside}]})
        text["other"] = self._is_permitted({**named, "toolCallId": "p3", "kind": "other"})
        text["run"] = self._is_permitted({**named, "toolCallId": "p4", "kind": "execute"})
        text["edit here"] = self._is_permitted(
            {**named, "toolCallId": "p5", "locations": [{"path": f"{os.getcwd()}/here.txt"}]}
        )
        self._say(dumps(text), "msg_probe")

    # --- messages -----------------------------------------------------------------------------------------------------

    def _ask(self, method: str, **params: Any) -> Line:
        self._asked += 1
        number = f"q{self._asked}"
        _write(_line({"id": number, "method": method, "params": {"sessionId": self._session, **params}}))
        while (message := self._heard.get()) is not None:
            if message.get("id") == number:
                return message
        os._exit(0)

    def _say(self, text: str, message: str) -> None:
        self._update("agent_message_chunk", content={"type": "text", "text": text}, messageId=message)

    def _update(self, update: str, /, **fields: Any) -> None:
        _write(_line({"method": "session/update", "params": self._told(update, **fields)}))

    def _told(self, update: str, /, **fields: Any) -> Line:
        return {"sessionId": self._session, "update": {"sessionUpdate": update, **fields}}

    def _answer(self, number: int, result: Line) -> None:
        _write(_line({"id": number, "result": result}))

    def _fail(self, number: int, message: str, code: int) -> None:
        _write(_line({"id": number, "error": {"code": code, "message": message}}))


_NONSENSE = (
    b"{}\n", b"{\n", b"[1]\n", b"\xff\xfe\n", b'{"id":true,"result":{}}\n', b'{"id":999,"result":{}}\n',
    b'{"id":[],"method":{}}\n', b'{"method":"session/update"}\n', b'{"method":"session/update","params":[1]}\n',
    b'{"method":"x","params":null,"id":null}\n', b'{"id":"a","method":"session/request_permission"}\n',
    b'{"id":"b","method":"fs/read_text_file","params":{"path":7}}\n', b'{"id":1.5,"error":7}\n',
    b'{"a":' * 5000 + b"\n", b'{"id":"c","method":"fs/write_text_file","params":{"path":"a\\u0000b","content":1}}\n',
)  # fmt: skip


def _line(fields: Line) -> bytes:
    return dumps({"jsonrpc": "2.0", **fields}).encode() + b"\n"


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]
