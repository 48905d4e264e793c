"""The hostile provider, a process of its own: plays scripts and faults, and counts.

Each trial has a path of its own (`/TRIAL/v1/…`), so one process serves all. `POST /TRIAL` loads a trial, `GET /TRIAL`
returns its counts, `POST /TRIAL/resumed` says that its subject was started again.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from time import time
from typing import Any

import msgspec

from deputy.core.conversation import TokenUsage
from deputy.core.model_script import ScriptedCall, ScriptedTurn
from deputy.testing.faults import FAULTS, Fault, answers, cuts, stalls
from deputy.testing.protocol_streams import render
from deputy.testing.provider import Exchange, ProviderRequest, protocol_of, read_request
from gauntlet.scenario import PARENT, Scenario, Turn, found, prompt_of

SECRET = "sk-ant-api03-" + "Zq7Lw2Xv9Tn4Rb6Yk1Hd8Mc3Pf5Gs0J" * 2 + "AA"
CHILD = re.compile(r"GAUNTLET-CHILD-(\w+)\.")
WAITS = 12
KEPT = 2_000_000
TYPED = {"content-type": "application/json"}


class Trial:
    """One subject in one scenario: the script, and the log of its requests."""

    def __init__(self, scenario: Scenario, dialect: dict[str, Any]) -> None:
        self.scenario = scenario
        self.dialect = dialect
        self.is_resumed = False
        self.has_repeated = False
        """Whether the resumed parent has delegated again what it has no report of."""
        self.log: list[dict[str, Any]] = []
        self.asked: dict[tuple[str, int], int] = {}
        self.peak = self.now = 0

    def turn(self, request: ProviderRequest, child: str) -> tuple[ScriptedTurn, Turn, str]:
        """The answer, the turn of the scenario it comes from, and the fault to play instead."""
        if not child:
            return self._parent(request), Turn(), ""
        turns = self.scenario.turns(child)
        number = min(request.answered, len(turns) - 1)
        turn = turns[number]
        asked = self.asked.get((child, number), 0)
        self.asked[child, number] = asked + 1
        is_faulty = bool(turn.fault) and asked < turn.times and not (turn.until_resumed and self.is_resumed)
        return self._child(turn, child), turn, turn.fault if is_faulty else ""

    def _parent(self, request: ProviderRequest) -> ScriptedTurn:
        if not request.body.get("tools"):
            return ScriptedTurn(text="A title")
        if request.answered == 0:
            return ScriptedTurn(calls=tuple(self.delegate(self.scenario.names)))
        missing = tuple(one for one in self.scenario.expected if found(one) not in json.dumps(request.body))
        if self.is_resumed and missing and not self.has_repeated:
            self.has_repeated = True
            return ScriptedTurn(calls=tuple(self.delegate(missing)))
        if "wait" in self.dialect and (working := working_agents(request)) and request.answered < WAITS:
            return ScriptedTurn(calls=(self._call(self.dialect["wait"], {"agents": working}),))
        return ScriptedTurn(text=self.scenario.parent_says.replace("SECRET", SECRET))

    def _child(self, turn: Turn, child: str) -> ScriptedTurn:
        values = {"path": turn.path, "command": turn.command, "offset": turn.offset}
        if turn.delegate:
            return ScriptedTurn(calls=tuple(self.delegate(turn.delegate, turn.label)))
        if turn.call:
            return ScriptedTurn(text=turn.text or "", calls=(self._call(self.dialect[turn.call], values),))
        if turn.call_as_text:
            call = self._call(self.dialect[turn.call_as_text], values)
            body = json.dumps({"name": call.name, "arguments": call.arguments})
            return ScriptedTurn(text=f"<tool_call>{body}</tool_call>")
        text = f"{found(child)} all is as agreed." if turn.text is None else turn.text.replace("SECRET", SECRET)
        if "evidence" in self.scenario.needs:
            artifacts = [{"type": "report", "path": turn.claims, "summary": "The report."}] if turn.claims else []
            text = json.dumps({"status": "completed", "summary": text, "artifacts": artifacts, "errors": []})
        return ScriptedTurn(text=text, stop="length" if turn.stop == "length" else "end")

    def delegate(self, children: tuple[str, ...], label: str = "") -> list[ScriptedCall]:
        """The calls by which this subject's model starts these children."""
        how = self.dialect["delegate"]
        batch = how.get("batch", 1)
        groups = [children[start : start + batch] for start in range(0, len(children), batch)]
        scenario = self.scenario
        values = [[{"label": label or scenario.label(n), "prompt": prompt_of(n)} for n in group] for group in groups]
        return [self._call(how, group[0], group) for group in values]

    def _call(self, how: dict[str, Any], values: dict[str, Any], group: Any = ()) -> ScriptedCall:
        arguments = filled(how["arguments"], values, group)
        return ScriptedCall(name=how["name"], namespace=how.get("namespace", ""), arguments=arguments)


def working_agents(request: ProviderRequest) -> list[str]:
    """The ids of started agents that have not been reported as finished; for subjects that start agents and wait."""
    texts = "\n".join(results_of(request)).replace("\\", "")
    if '"timed_out":true' in texts:
        return []  # the caller stops waiting
    started = dict.fromkeys(re.findall(r'"agent_id":\s*"([\w-]+)"', texts))
    return [one for one in started if not re.search(rf'"{one}":\s*({{|"not_found")', texts)]


def filled(value: Any, values: dict[str, Any], group: Any = ()) -> Any:
    """The arguments of a call: `{name}` is replaced, a list of one object is repeated for each child of a batch."""
    if isinstance(value, dict):
        return {name: filled(one, values, group) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(value[0], one) for one in group] if group else [filled(one, values) for one in value]
    if isinstance(value, str) and value[:1] == "{" and value[1:-1] in values:
        return values[value[1:-1]]
    if isinstance(value, str):
        return re.sub(r"\{(\w+)\}", lambda name: str(values.get(name[1], name[0])), value)
    return value


def whole(protocol: str, turn: ScriptedTurn, events: list[bytes], model: str, serial: int) -> bytes:
    """The same answer for a client that asked for no stream."""
    if protocol == "openai-responses":
        return json.dumps(json.loads(events[-1].partition(b"data: ")[2])["response"]).encode()
    used = {"input": turn.usage.input_tokens, "output": turn.usage.output_tokens}
    ids = [f"call_{serial:08d}{number:02d}" for number in range(len(turn.calls))]
    if protocol == "anthropic":
        blocks: list[dict[str, Any]] = [{"type": "text", "text": turn.text}] if turn.text else []
        for key, call in zip(ids, turn.calls, strict=True):
            blocks.append({"type": "tool_use", "id": key, "name": call.name, "input": call.arguments})
        stop = "max_tokens" if turn.stop == "length" else "tool_use" if turn.calls else "end_turn"
        usage = {"input_tokens": used["input"], "output_tokens": used["output"]}
        body = {"id": f"msg_{serial}", "type": "message", "role": "assistant", "model": model, "content": blocks}
        return json.dumps({**body, "stop_reason": stop, "stop_sequence": None, "usage": usage}).encode()
    calls = [
        {"id": key, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
        for key, call in zip(ids, turn.calls, strict=True)
    ]
    message = {"role": "assistant", "content": turn.text or None, **({"tool_calls": calls} if calls else {})}
    finish = "length" if turn.stop == "length" else "tool_calls" if calls else "stop"
    total = used["input"] + used["output"]
    usage = {"prompt_tokens": used["input"], "completion_tokens": used["output"], "total_tokens": total}
    choice = {"index": 0, "message": message, "finish_reason": finish, "logprobs": None}
    body = {"id": f"chatcmpl-{serial}", "object": "chat.completion", "created": 1, "model": model}
    return json.dumps({**body, "choices": [choice], "usage": usage}).encode()


class WholeExchange(Exchange):
    """The answer to a client that asked for no stream: in pieces too, but as JSON."""

    async def begin(self) -> None:
        """The head of an answer whose length is not known yet."""
        self._head(200, {**TYPED, "transfer-encoding": "chunked"})


# --- faults of our own ------------------------------------------------------------------------------------------------


def babbles(protocol: str) -> Fault:
    """Text without end."""

    async def play(exchange: Exchange, events: list[bytes]) -> None:
        await exchange.begin()
        turn = ScriptedTurn(text="and so on " * 50)
        middle = [one for one in render(protocol, turn, model="m", serial=1) if b"so" in one][:40]
        head = render(protocol, turn, model="m", serial=1)[:3]
        exchange.send_all(head)
        while await exchange.pause(0.05):
            exchange.send_all(middle)

    return play


def fault_of(name: str, protocol: str, events: list[bytes]) -> Fault:
    """A fault by its name in scenarios.toml."""
    match name:
        case "cut_in_the_middle":
            return cuts(len(events) // 2, "fin")
        case "cut_without_end":
            return cuts(len(events) // 2, "chunked-end")
        case "html":
            return answers(200, b"<!doctype html><html><body><h1>HTML-PAGE</h1>Sign in to the proxy.</body></html>")
        case "rate_limited_for_a_second":
            error = {"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "slow down"}
            return answers(429, {"type": "error", "error": error}, {"retry-after": "1"})
        case "babbles":
            return babbles(protocol)
        case "only_pings":
            return stalls(
                3,
                keep_alive=b'event: ping\ndata: {"type": "ping"}\n\n' if protocol == "anthropic" else b": ping\n\n",
                every_seconds=0.2,
            )
        case "drips":
            return stalls(3, keep_alive=b":", every_seconds=0.2)
        case _:
            return FAULTS[name]


def whole_fault_of(name: str) -> Fault | None:
    """The same fault for a client that asked for no stream; None: the fault of streams fits."""
    match name:
        case "cut_in_the_middle":
            return cuts(1, "fin")
        case "cut_without_end":
            return cuts(1, "chunked-end")
        case "only_pings" | "drips" | "babbles":
            return stalls(0, keep_alive=b"\n", every_seconds=0.2)
        case _:
            return None


# --- the server -------------------------------------------------------------------------------------------------------


def results_of(request: ProviderRequest) -> list[str]:
    """What the caller's model was given after its first turn: results of tools, and news of finished children."""
    rows: Any = request.body.get("input" if request.protocol == "openai-responses" else "messages")
    texts: list[str] = []
    has_begun = False
    for row in rows if isinstance(rows, list) else []:
        is_own = row.get("role") == "assistant" or row.get("type") in ("function_call", "reasoning")
        has_begun |= is_own
        if has_begun and not is_own:
            content = row.get("content", row.get("output"))
            blocks = content if isinstance(content, list) else [content]
            texts += [json.dumps(block, ensure_ascii=False) for block in blocks if not _is_reminder(block)]
    return texts


def _is_reminder(block: Any) -> bool:
    return isinstance(block, dict) and "<system-reminder>" in str(block.get("text", ""))


class Server:
    """All trials, by the first part of their path."""

    def __init__(self) -> None:
        self.trials: dict[str, Trial] = {}
        self.serial = 0

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, path, _ = head[0].split(" ", 2)
                pairs = (line.partition(":") for line in head[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                content = await self._content(reader, writer, headers)
                is_whole = b'"stream":true' not in content.replace(b" ", b"")
                exchange = WholeExchange(reader, writer) if is_whole else Exchange(reader, writer)
                await self._answer(exchange, method, path, headers, content)
                if not exchange.is_reusable:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass
        finally:
            writer.close()

    async def _content(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: dict[str, str]
    ) -> bytes:
        if "100-continue" in headers.get("expect", ""):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if headers.get("transfer-encoding") != "chunked":
            return await reader.readexactly(int(headers.get("content-length", "0")))
        pieces: list[bytes] = []
        while size := int(await reader.readline(), 16):
            pieces.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(pieces)

    async def _answer(
        self, exchange: Exchange, method: str, path: str, headers: dict[str, str], content: bytes
    ) -> None:
        name, _, rest = path.lstrip("/").partition("/")
        if method == "POST" and not rest:
            fields = json.loads(content)
            self.trials[name] = Trial(msgspec.convert(fields["scenario"], Scenario), fields["dialect"])
            return await exchange.answer(200, b"{}", TYPED)
        trial = self.trials.get(name)
        if trial is None:
            return await exchange.answer(404, b"{}", TYPED)
        if rest == "resumed":
            trial.is_resumed = True
            return await exchange.answer(200, b"{}", TYPED)
        if not rest:
            return await exchange.answer(200, json.dumps({"log": trial.log, "peak": trial.peak}).encode(), TYPED)
        protocol = protocol_of(rest)
        if protocol is None or method != "POST":
            return await exchange.answer(404, b'{"error": {"message": "nothing is here"}}', TYPED)
        trial.now += 1
        trial.peak = max(trial.peak, trial.now)
        try:
            return await self._play(
                exchange, trial, read_request(protocol, rest, headers, content, time()), len(content)
            )
        finally:
            trial.now -= 1

    async def _play(self, exchange: Exchange, trial: Trial, request: ProviderRequest, size: int) -> None:
        marks = CHILD.findall(request.opening)
        child = marks[-1] if marks else ""
        is_side = not child and (PARENT not in request.opening or not request.body.get("tools"))
        self.serial += 1
        serial = self.serial
        answer, turn, fault = trial.turn(request, child)
        row: dict[str, Any] = {"child": child, "turn": request.answered, "at": time(), "bytes": size, "fault": fault}
        row |= {"is_side": is_side, "is_resumed": trial.is_resumed, "done": 0.0, "calls": len(answer.calls)}
        if not child:
            row["results"] = [one[:KEPT] for one in results_of(request)]
        trial.log.append(row)
        if turn.delay:
            await asyncio.sleep(turn.delay)
        tokens = trial.scenario.tokens or max(100, size // 4)
        answer = msgspec.structs.replace(answer, usage=TokenUsage(input_tokens=tokens, output_tokens=30))
        events = render(request.protocol, answer, model=request.model, serial=serial)
        if not request.body.get("stream"):
            content = whole(request.protocol, answer, events, request.model, serial)
            play = whole_fault_of(fault) if fault else None
            if play is not None:
                await play(exchange, [content[: len(content) // 2]])
            elif fault:
                await fault_of(fault, request.protocol, events)(exchange, events)
            else:
                await exchange.answer(200, content, TYPED)
        elif fault:
            await fault_of(fault, request.protocol, events)(exchange, events)
        else:
            await exchange.begin()
            exchange.send_all(events)
            await exchange.end()
        row["done"] = 0.0 if fault else time()


async def main() -> None:
    """Serve until standard input is closed, so that the provider never outlives the runner."""
    served = Server()
    server = await asyncio.start_server(served.connected, "127.0.0.1", 0, limit=64 * 1024, backlog=2048)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
