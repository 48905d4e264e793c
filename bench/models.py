"""CPU per model turn over a real socket: ours, the hand-written aiohttp floor and the official SDKs, in one run.

A turn is one streamed answer of 40 text deltas and one tool call, and a tool result of 2 kB that goes back. The
provider runs in a process of its own and answers from memory, so what is measured is the client alone: user and system
time of its process between the first and the last turn, imports and a warm-up excluded. Every contender runs in its
own process, rounds are interleaved, and the best of each counts: noise only ever adds.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time

SYSTEM = "You read files and report what they hold. " * 20
PROMPT = "Read all files of the project, one after the other, and report."
RESULT = "alpha beta gamma delta read write parse token agent report state error value\n" * 26
WORDS = [f"word{n} " for n in range(40)]
ARGUMENTS = '{"path": "src/deputy/models/wire_model.py"}'
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TOOL = {"name": "Read", "description": "Read a file.", "parameters": SCHEMA}

# --- the provider -----------------------------------------------------------------------------------------------------


def event(name: str | None, fields: object) -> bytes:
    data = fields if isinstance(fields, str) else json.dumps(fields)
    return f"event: {name}\ndata: {data}\n\n".encode() if name else f"data: {data}\n\n".encode()


def chat_events() -> list[bytes]:
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None}

    def chunk(delta: dict, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event(None, {**base, "choices": [choice]})

    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "Read", "arguments": ""}}
    pieces = [ARGUMENTS[at : at + 8] for at in range(0, len(ARGUMENTS), 8)]
    usage = {"prompt_tokens": 9, "completion_tokens": 50, "total_tokens": 59}
    return [
        chunk({"role": "assistant", "content": ""}),
        *(chunk({"content": word}) for word in WORDS),
        chunk({"tool_calls": [call]}),
        *(chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}) for piece in pieces),
        chunk({}, "tool_calls"),
        event(None, {**base, "choices": [], "usage": usage}),
        event(None, "[DONE]"),
    ]


def anthropic_events() -> list[bytes]:
    def one(kind: str, **fields: object) -> bytes:
        return event(kind, {"type": kind, **fields})

    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    usage = {"input_tokens": 9, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    block = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}
    pieces = [ARGUMENTS[at : at + 8] for at in range(0, len(ARGUMENTS), 8)]
    return [
        one("message_start", message={**message, "stop_sequence": None, "usage": usage}),
        one("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(one("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS),
        one("content_block_stop", index=0),
        one("content_block_start", index=1, content_block=block),
        *(one("content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": p}) for p in pieces),
        one("content_block_stop", index=1),
        one("message_delta", delta={"stop_reason": "tool_use", "stop_sequence": None}, usage={"output_tokens": 50}),
        one("message_stop"),
    ]


def canned(events: list[bytes]) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in events) + b"0\r\n\r\n"


class Provider(asyncio.Protocol):
    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self.answers = answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.pieces: list[bytes] = []
        self.missing = -1

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        if self.missing < 0:
            data = b"".join(self.pieces)
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self.pieces = [data]
                return
            head = data[:end].lower()
            length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            self.missing = length - (len(data) - end - 4)
            self.path = head.split(b" ", 2)[1]
        else:
            self.missing -= len(data)
        if self.missing <= 0:
            self.pieces.clear()
            self.missing = -1
            self.transport.write(self.answers[self.path])


async def serve() -> None:
    answers = {b"/v1/chat/completions": canned(chat_events()), b"/v1/messages": canned(anthropic_events())}
    server = await asyncio.get_running_loop().create_server(lambda: Provider(answers), "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


# --- the contenders: each makes a coroutine that runs one subagent of so many turns -----------------------------------


def ours(protocol: str):
    def load(url: str):
        from deputy.core.conversation import (
            Conversation,
            GenerationSettings,
            Stop,
            ToolMessage,
            ToolResult,
            Toolset,
            ToolSpec,
            UserMessage,
        )
        from deputy.models.factory import ModelFactory

        environ = {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "k" * 20,
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "k" * 20,
        }
        models = ModelFactory(environ=environ)
        model = models.open("anthropic:claude-haiku-4-5" if protocol == "anthropic" else "openai-chat:m")
        tools = Toolset([ToolSpec(**TOOL)])
        settings = GenerationSettings(max_output_tokens=4096)

        async def run(turns: int) -> None:
            conversation = Conversation(SYSTEM, [UserMessage(text=PROMPT)])
            for _ in range(turns):
                message = None
                async for text in model.stream(conversation, tools, settings):
                    if isinstance(text, Stop):
                        message = text.message
                conversation.append(message)
                results = [ToolResult(call_id=c.id, name=c.name, content=RESULT) for c in message.calls]
                assert results[0].content
                conversation.append(ToolMessage(results=tuple(results)))

        return run, models.__aexit__

    return load


def floor(url: str):
    """What one would write by hand for this one server: no errors told apart, no limits, no retries."""
    import aiohttp
    import msgspec

    class Function(msgspec.Struct):
        name: str | None = None
        arguments: str | None = None

    class Call(msgspec.Struct):
        index: int = 0
        id: str | None = None
        function: Function | None = None

    class Delta(msgspec.Struct):
        content: str | None = None
        tool_calls: list[Call] | None = None

    class Choice(msgspec.Struct):
        delta: Delta
        finish_reason: str | None = None

    class Chunk(msgspec.Struct):
        choices: list[Choice]

    decode, encode = msgspec.json.Decoder(Chunk).decode, msgspec.json.encode
    held: dict[str, aiohttp.ClientSession] = {}
    headers = {"content-type": "application/json", "authorization": "Bearer k"}
    head = {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 4096,
        "tools": [{"type": "function", "function": TOOL}],
    }
    prefix = encode(head)[:-1] + b',"messages":['

    async def run(turns: int) -> None:
        if not held:
            held["session"] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        session = held["session"]
        messages = [encode({"role": "system", "content": SYSTEM}), encode({"role": "user", "content": PROMPT})]
        for _ in range(turns):
            text, identity, name, arguments, buffer = [], "", "", [], b""
            body = prefix + b",".join(messages) + b"]}"
            async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as response:
                async for data in response.content.iter_any():
                    *events, buffer = (buffer + data).split(b"\n\n")
                    for one in events:
                        if one == b"data: [DONE]":
                            continue
                        for choice in decode(one[6:]).choices:
                            if choice.delta.content:
                                text.append(choice.delta.content)
                            for call in choice.delta.tool_calls or ():
                                identity, name = call.id or identity, call.function.name or name
                                arguments.append(call.function.arguments or "")
            msgspec.json.decode("".join(arguments))
            function = {"name": name, "arguments": "".join(arguments)}
            calls = [{"id": identity, "type": "function", "function": function}]
            messages.append(encode({"role": "assistant", "content": "".join(text), "tool_calls": calls}))
            messages.append(encode({"role": "tool", "tool_call_id": identity, "content": RESULT}))

    async def close() -> None:
        await held["session"].close()

    return run, close


def openai_sdk(url: str):
    from openai import AsyncOpenAI

    client = AsyncOpenAI(api_key="k", base_url=f"{url}/v1", max_retries=0)
    tools = [{"type": "function", "function": TOOL}]

    async def run(turns: int) -> None:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPT}]
        for _ in range(turns):
            text, identity, name, arguments = [], "", "", []
            stream = await client.chat.completions.create(
                model="m",
                messages=messages,
                tools=tools,
                stream=True,
                stream_options={"include_usage": True},
                max_tokens=4096,
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    if choice.delta.content:
                        text.append(choice.delta.content)
                    for call in choice.delta.tool_calls or ():
                        identity, name = call.id or identity, call.function.name or name
                        arguments.append(call.function.arguments or "")
            json.loads("".join(arguments))
            function = {"name": name, "arguments": "".join(arguments)}
            calls = [{"id": identity, "type": "function", "function": function}]
            messages.append({"role": "assistant", "content": "".join(text), "tool_calls": calls})
            messages.append({"role": "tool", "tool_call_id": identity, "content": RESULT})

    return run, client.close


def anthropic_sdk(url: str):
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(api_key="k", base_url=url, max_retries=0)
    tools = [{"name": "Read", "description": "Read a file.", "input_schema": SCHEMA}]

    async def run(turns: int) -> None:
        messages = [{"role": "user", "content": PROMPT}]
        for _ in range(turns):
            async with client.messages.stream(
                model="claude-haiku-4-5", max_tokens=4096, system=SYSTEM, tools=tools, messages=messages
            ) as stream:
                async for _ in stream:
                    pass
                message = await stream.get_final_message()
            messages.append(
                {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in message.content]}
            )
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": RESULT}
                for block in message.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})

    return run, client.close


CONTENDERS = {
    "ours (chat)": ours("chat"),
    "ours (anthropic)": ours("anthropic"),
    "floor: aiohttp by hand": floor,
    "openai SDK (chat)": openai_sdk,
    "anthropic SDK": anthropic_sdk,
}

# --- measuring --------------------------------------------------------------------------------------------------------


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(name: str, url: str, subagents: int, turns: int, profile: str | None) -> float:
    run, close = CONTENDERS[name](url)
    await run(3)
    if profile:
        import cProfile

        profiler = cProfile.Profile()
        profiler.enable()
    before = cpu_seconds()
    async with asyncio.TaskGroup() as group:
        for _ in range(subagents):
            group.create_task(run(turns))
    used = cpu_seconds() - before
    if profile:
        profiler.disable()
        profiler.dump_stats(profile)
    await close(*([None] * 3 if name.startswith("ours") else []))
    return used / (subagents * turns) * 1000


def in_own_process(name: str, url: str, subagents: int, turns: int) -> float:
    arguments = ["--contender", name, "--url", url, "--subagents", str(subagents), "--turns", str(turns)]
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
    return float(done.stdout)


def best(names: list[str], url: str, subagents: int, turns: int, rounds: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for _ in range(rounds):
        for name in names:
            value = in_own_process(name, url, subagents, turns)
            found[name] = min(value, found.get(name, value))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--contender")
    parser.add_argument("--url")
    parser.add_argument("--subagents", type=int, default=50)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--profile")
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
    if options.contender:
        print(asyncio.run(measure(options.contender, options.url, options.subagents, options.turns, options.profile)))
        return 0
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as provider:
        try:
            assert provider.stdout is not None
            return report(f"http://127.0.0.1:{int(provider.stdout.readline())}", options.rounds)
        finally:
            provider.terminate()


def report(url: str, rounds: int) -> int:
    began = time.perf_counter()
    turn = best(list(CONTENDERS), url, 50, 10, rounds)
    floor_ms = turn["floor: aiohttp by hand"]
    print("CPU per turn (40 deltas, one tool call; 50 subagents at once, 10 turns each)")
    for name, value in sorted(turn.items(), key=lambda pair: pair[1]):
        print(f"  {name:<24} {value:7.2f} ms   {value / floor_ms:5.2f} x floor")
    pair = ["ours (chat)", "floor: aiohttp by hand"]
    sdk = ["openai SDK (chat)"]
    long = best(pair, url, 4, 200, rounds) | best(sdk, url, 1, 200, 1)
    short = best(pair, url, 80, 10, rounds) | best(sdk, url, 10, 10, 1)
    print("\nGrowth with the conversation: CPU per turn over 10 and over 200 turns")
    for name in long:
        print(f"  {name:<24} {short[name]:7.2f} ms -> {long[name]:7.2f} ms")
    growth = (long[pair[0]] / long[pair[1]]) / (short[pair[0]] / short[pair[1]])
    ratio = turn["ours (chat)"] / floor_ms
    print(f"\nours / floor: {ratio:.2f} (goal: at most 2)")
    print(f"(ours / floor at 200 turns) / (the same at 10): {growth:.2f} (goal: at most 1.3)")
    print(f"took {time.perf_counter() - began:.0f} s")
    return 0 if ratio <= 2 and growth <= 1.3 else 1


if __name__ == "__main__":
    sys.exit(main())
