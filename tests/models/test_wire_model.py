"""Every fault at every position of a stream: a typed end in time, usage counted once, nothing half taken for whole."""

import asyncio
import json
import ssl
import threading
from contextlib import asynccontextmanager

import pytest

from deputy.core import model_errors as errors
from deputy.core.conversation import Stop, TextDelta, TokenUsage, ToolCall
from deputy.core.outcome import Usage
from deputy.models import wire
from deputy.models.factory import ModelFactory, wire_of
from deputy.models.http_client import HttpClient
from deputy.models.wire import ApiKey, ModelTarget
from deputy.models.wire_model import Endpoint, WireModel
from deputy.testing import ProviderServer, ScriptedCall, ScriptedTurn
from deputy.testing.faults import FAULTS, answers, cuts, mangles, redirects, stalls
from deputy.testing.model_suite import ask, asking
from deputy.testing.protocol_streams import render

NAMES = {
    "anthropic": "anthropic:claude-haiku-4-5",
    "openai-responses": "openai:gpt-5.2",
    "openai-chat": "openai-chat:any",
    "google": "google:gemini-2.5-pro",
}
TURN = ScriptedTurn(
    text="Grüße 世界.",
    thinking="Hm.",
    calls=(ScriptedCall(name="Read", arguments={"path": "ä.txt"}), ScriptedCall(name="Read", arguments={"path": "b"})),
    usage=TokenUsage(input_tokens=50, output_tokens=9),
)
FINAL = {
    "anthropic": b"message_stop",
    "openai-responses": b"completed",
    "openai-chat": b"finish_reason",
    "google": b"STOP",
}

every_protocol = pytest.mark.parametrize("protocol", NAMES)


def rendered(protocol, turn=TURN):
    return render(protocol, turn, model="m", serial=1)


def whole_at(protocol):
    """How many events a stream must have had to be whole."""
    events = rendered(protocol)
    if protocol == "openai-chat":
        return next(n for n, event in enumerate(events, 1) if b'"finish_reason":"' in event)
    return len(events)


@asynccontextmanager
async def provided(protocol, fault, turn=TURN, *, idle_seconds=5.0):
    """The model under test, in front of a provider that plays this fault."""
    turn = ScriptedTurn(text=turn.text, thinking=turn.thinking, calls=turn.calls, usage=turn.usage, faults=("fault",))
    async with (
        ProviderServer(turn, faults={"fault": fault}, strict=False) as provider,
        ModelFactory(environ=provider.environ, idle_seconds=idle_seconds) as models,
    ):
        yield models.open(NAMES[protocol])._model


async def end_of(model):
    """How a turn ends: its events, and its error or None. It must end in time, and only one way."""
    events, error = [], None
    async with asyncio.timeout(20):
        try:
            async for event in ask(model, asking()):
                events.append(event)
        except errors.ModelError as failure:
            error = failure
    stops = [event for event in events if isinstance(event, Stop)]
    usages = [event for event in events if isinstance(event, TokenUsage)]
    assert len(stops) == (error is None), (events, error)
    assert len(usages) == len(stops)
    assert stops or not any(isinstance(event, ToolCall) for event in events), "a call was told from half a turn"
    if error is not None:
        assert error.model == model.name
        output = "".join(event.text for event in events if isinstance(event, TextDelta))
        assert error.text.startswith(output)
    return events, error


async def failing(protocol, fault, **options):
    async with provided(protocol, fault, **options) as model:
        events, error = await end_of(model)
    assert error is not None, events
    return error


async def answering(protocol, fault, **options):
    async with provided(protocol, fault, **options) as model:
        events, error = await end_of(model)
    assert error is None, error
    return events


# --- before the stream ---

STATUSES = {
    "bad_request": errors.BadRequest,
    "bad_api_key": errors.BadKey,
    "forbidden": errors.BadKey,
    "model_not_found": errors.ModelNotFound,
    "timed_out": errors.ServerFailed,
    "request_too_large": errors.ContextExhausted,
    "context_exhausted": errors.ContextExhausted,
    "rate_limited": errors.RateLimited,
    "rate_limited_by_google": errors.RateLimited,
    "rate_limited_without_advice": errors.RateLimited,
    "quota_spent": errors.QuotaSpent,
    "server_failed": errors.ServerFailed,
    "bad_gateway": errors.ServerFailed,
    "unavailable": errors.Overloaded,
    "overloaded": errors.Overloaded,
    "hung_up": errors.NetworkFailed,
    "gzip_bomb": errors.BadReply,
}


@every_protocol
@pytest.mark.parametrize("fault", STATUSES)
async def test_an_answer_that_is_no_stream_is_typed(protocol, fault):
    assert type(await failing(protocol, FAULTS[fault])) is STATUSES[fault]


@pytest.mark.parametrize(
    ("protocol", "remedy"),
    [
        ("openai-responses", "The server seems to have no Responses API. Name the model openai-chat:gpt-5.2."),
        ("openai-chat", "Nothing is at /v1/chat/completions of 127.0.0.1. Check the address of the server."),
        ("anthropic", "most servers need with /v1 at its end"),
    ],
)
async def test_a_missing_path_is_not_taken_for_a_missing_model(protocol, remedy):
    error = await failing(protocol, answers(404, {"detail": "Not Found"}))
    assert remedy in error.as_value().recommendation
    error = await failing(protocol, FAULTS["model_not_found"])
    assert remedy not in error.as_value().recommendation


async def test_a_refused_connection_is_a_network_failure():
    async with ProviderServer() as provider:
        environ = provider.environ
    async with ModelFactory(environ=environ) as models:
        _, error = await end_of(models.open(NAMES["anthropic"])._model)
    assert type(error) is errors.NetworkFailed
    assert error.retryable


async def test_a_name_that_does_not_resolve_is_a_network_failure():
    environ = {"OPENAI_BASE_URL": "http://nowhere.invalid/v1", "OPENAI_API_KEY": "k"}
    async with ModelFactory(environ=environ) as models:
        _, error = await end_of(models.open("openai:gpt-5.2")._model)
    assert type(error) is errors.NetworkFailed


async def test_a_server_without_tls_is_a_network_failure():
    async def answer(_reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    environ = {"OPENAI_BASE_URL": f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", "OPENAI_API_KEY": "k"}
    async with server, ModelFactory(environ=environ) as models:
        _, error = await end_of(models.open("openai:gpt-5.2")._model)
    assert type(error) is errors.NetworkFailed


async def test_an_untrusted_certificate_is_a_network_failure_for_good(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(self_signed(tmp_path))
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    environ = {"OPENAI_BASE_URL": f"https://localhost:{port}", "OPENAI_API_KEY": "k"}
    async with server, ModelFactory(environ=environ) as models:
        _, error = await end_of(models.open("openai:gpt-5.2")._model)
    assert type(error) is errors.NetworkFailed
    assert not error.retryable


def self_signed(folder):
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "server.pem").write_bytes(pem)
    return folder / "server.pem"


@every_protocol
async def test_a_redirect_is_not_followed_and_carries_no_key_anywhere(protocol):
    async with ProviderServer(strict=False) as elsewhere:
        error = await failing(protocol, redirects(f"{elsewhere.url}/v1/messages"))
        assert elsewhere.asked == []
    assert type(error) is errors.BadRequest
    assert "127.0.0.1" in str(error)
    assert not error.retryable


@pytest.mark.parametrize(
    "garbage",
    [
        b"banana",
        b"HTTP/1.1 banana\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZZ\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 307 X\r\nlocation: http://[bad\x80\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 429 X\r\nretry-after: " + b"9" * 500 + b"\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=\xff\r\ncontent-length: 2\r\n\r\n{}",
    ],
    ids=lambda garbage: ascii(garbage[:40]),
)
async def test_an_answer_that_is_hardly_http_ends_typed(garbage):
    async def answer(_reader, writer):
        writer.write(garbage)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    environ = {"OPENAI_BASE_URL": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "OPENAI_API_KEY": "k"}
    async with server, ModelFactory(environ=environ) as models:
        _, error = await end_of(models.open("openai:gpt-5.2")._model)
    assert error is not None


async def test_a_page_instead_of_a_stream_is_a_bad_reply():
    error = await failing("anthropic", answers(200, b"<html>Please log in</html>"))
    assert type(error) is errors.BadReply


async def test_an_error_in_a_good_answer_is_the_providers_error():
    error = await failing("openai-chat", answers(200, {"error": {"message": "model overloaded"}}))
    assert type(error) is errors.Overloaded


# --- silence ---


KEPT_ALIVE_BY = {
    "nothing": b"",
    "pings": b'event: ping\ndata: {"type": "ping"}\n\n',
    "comments": b": keep-alive\n\n",
    "one byte at a time": b":",
}


@pytest.mark.rule("time.idle")
@every_protocol
@pytest.mark.parametrize("kept_alive_by", KEPT_ALIVE_BY)
async def test_silence_is_measured_by_progress_not_by_bytes(protocol, kept_alive_by):
    async with asyncio.TaskGroup() as group:
        faults = [stalls(at, keep_alive=KEPT_ALIVE_BY[kept_alive_by]) for at in range(whole_at(protocol))]
        ends = [group.create_task(failing(protocol, fault, idle_seconds=0.3)) for fault in faults]
    assert {type(end.result()) for end in ends} == {errors.Silent}
    assert all(end.result().retryable for end in ends)


@pytest.mark.rule("time.idle")
@every_protocol
async def test_an_answer_that_never_begins_is_silence(protocol):
    assert type(await failing(protocol, FAULTS["no_headers"], idle_seconds=0.15)) is errors.Silent


@pytest.mark.rule("time.idle")
@pytest.mark.parametrize(
    ("protocol", "empty"),
    [
        (
            "anthropic",
            b'data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":""}}\n\n',
        ),
        ("openai-chat", b'data: {"choices":[{"index":0,"delta":{"content":""}}]}\n\n'),
        ("openai-responses", b'data: {"type":"response.in_progress","response":{}}\n\n'),
        ("google", b'data: {"candidates":[{"content":{"parts":[{"text":""}]}}]}\n\n'),
    ],
)
async def test_empty_deltas_are_no_progress(protocol, empty):
    error = await failing(protocol, stalls(3, keep_alive=empty), idle_seconds=0.15)
    assert type(error) is errors.Silent


async def test_a_slow_listener_is_not_taken_for_a_silent_model():
    turn = ScriptedTurn(text="one two three", pace_seconds=0.001)
    async with (
        ProviderServer(turn) as provider,
        ModelFactory(environ=provider.environ, idle_seconds=1) as models,
    ):
        events = []
        async for event in ask(models.open(NAMES["anthropic"])._model, asking()):
            events.append(event)
            await asyncio.sleep(1.1 if len(events) == 1 else 0)
    assert events[-1].message.text == "one two three"


async def test_what_came_while_the_whole_process_stood_still_is_not_silence():
    turn = ScriptedTurn(text="word " * 40, pace_seconds=0.02)
    with ProviderServer(turn) as provider:
        async with ModelFactory(environ=provider.environ, idle_seconds=0.2) as models:
            events = []
            async for event in ask(models.open(NAMES["anthropic"])._model, asking()):
                events.append(event)
                if len(events) == 1:
                    asyncio.get_running_loop().call_later(0.01, stand_still, 0.5)
    assert events[-1].message.text == turn.text


def stand_still(seconds):
    """Block the loop, as a stopped process or a sleeping machine would."""
    threading.Event().wait(seconds)


# --- cuts ---


@every_protocol
@pytest.mark.parametrize("how", ["chunked-end", "fin", "rst"])
async def test_a_cut_stream_is_never_taken_for_a_whole_one(protocol, how):
    for at in range(whole_at(protocol)):
        error = await failing(protocol, cuts(at, how))
        assert type(error) in (errors.StreamCut, errors.NetworkFailed), (at, error)
        assert error.retryable


@every_protocol
async def test_a_cut_inside_an_event_is_a_cut_wherever_it_is(protocol):
    events = rendered(protocol)
    for at, event in enumerate(events[: whole_at(protocol)]):
        places = {2, len(event) // 2, len(event) - 4} | {n + 1 for n in range(len(event)) if event[n] > 0xC0}
        for inside in places:
            for how in ("chunked-end", "fin"):
                error = await failing(protocol, cuts(at, how, inside=inside))
                assert type(error) is errors.StreamCut, (at, inside, error)


@every_protocol
async def test_after_the_final_event_a_cut_does_not_matter(protocol):
    for how in ("fin", "rst", "chunked-end"):
        events = await answering(protocol, cuts(len(rendered(protocol)), how))
        assert events[-1].message.text == TURN.text
        assert len(events[-1].message.calls) == 2


# --- garbage ---


def at_every_position(protocol, change):
    return [mangles(lambda events, at=at: change(list(events), at)) for at in range(len(rendered(protocol)))]


@every_protocol
async def test_garbled_json_is_a_bad_reply(protocol):
    def garble(events, at):
        events[at] = events[at].replace(b'"', b"'", 3) if b'"' in events[at] else b"data: {oops\n\n"
        return events

    for at, fault in enumerate(at_every_position(protocol, garble)):
        async with provided(protocol, fault) as model:
            _, error = await end_of(model)
        is_late = at >= whole_at(protocol)
        assert (error is None) if is_late else type(error) is errors.BadReply, (at, error)


@every_protocol
async def test_wrong_types_are_a_bad_reply_not_a_crash(protocol):
    for nonsense in (b"7", b'"x"', b"[]", b"null", b'{"type":7,"choices":7,"candidates":7}', b"[" * 5000):
        fault = mangles(lambda events, n=nonsense: [*events[:2], b"data: " + n + b"\n\n", *events[2:]])
        error = await failing(protocol, fault)
        assert type(error) is errors.BadReply, (nonsense, error)


@every_protocol
async def test_unknown_events_are_passed_over(protocol):
    unknown = (
        b'event: novelty\ndata: {"type":"novelty","index":99,"delta":{"type":"sparkle"},"sequence_number":null}\n\n'
    )
    for fault in at_every_position(protocol, lambda events, at: [*events[:at], unknown, *events[at:]]):
        events = await answering(protocol, fault)
        assert events[-1].message.text == TURN.text


@every_protocol
async def test_duplicate_events_end_typed_or_right(protocol):
    for fault in at_every_position(protocol, lambda events, at: [*events[: at + 1], *events[at:]]):
        async with provided(protocol, fault) as model:
            events, error = await end_of(model)
        assert error is None or type(error) is errors.BadReply
        if protocol == "openai-responses":
            assert events[-1].message.text == TURN.text


@every_protocol
async def test_reordered_events_end_typed_or_whole(protocol):
    def swap(events, at):
        return [*events[: at - 1], events[at], events[at - 1], *events[at + 1 :]] if at else events

    for fault in at_every_position(protocol, swap):
        async with provided(protocol, fault) as model:
            events, error = await end_of(model)
        if error is None:
            for call in events[-1].message.calls:
                assert call.malformed is not None or "path" in call.arguments
        else:
            assert type(error) in (errors.BadReply, errors.StreamCut)


@every_protocol
async def test_duplicate_tool_ids_are_made_distinct(protocol):
    fault = mangles(lambda events: [event.replace(b'0000000101"', b'0000000100"') for event in events])
    events = await answering(protocol, fault)
    first, second = events[-1].message.calls
    assert first.id != second.id
    assert (first.arguments, second.arguments) == ({"path": "ä.txt"}, {"path": "b"})


async def test_missing_tool_ids_are_given():
    fault = mangles(
        lambda events: [e.replace(b',"id":"fc0000000100"', b"").replace(b',"id":"fc0000000101"', b"") for e in events]
    )
    events = await answering("google", fault)
    assert [call.id for call in events[-1].message.calls] == ["call_1", "call_1_2"]


@every_protocol
async def test_an_empty_completion_is_typed(protocol):
    empty = ScriptedTurn(usage=TokenUsage(input_tokens=5, output_tokens=1))
    error = await failing(protocol, mangles(lambda events: events), turn=empty)
    assert type(error) is errors.EmptyReply
    assert error.used.input_tokens == 5


async def test_a_refusal_says_why_where_the_provider_does():
    why = b'"stop_reason":"refusal","stop_details":{"type":"refusal","category":"bio","explanation":"Not this."}'
    error = await failing("anthropic", mangles(lambda e: [x.replace(b'"stop_reason":"tool_use"', why) for x in e]))
    assert "Not this." in str(error)


REFUSALS = {
    "anthropic": (b'"stop_reason":"tool_use"', b'"stop_reason":"refusal"'),
    "openai-responses": (b'"text":"Gr', b'"refusal":"Gr'),
    "openai-chat": (b'"finish_reason":"tool_calls"', b'"finish_reason":"content_filter"'),
    "google": (b'"finishReason":"STOP"', b'"finishReason":"PROHIBITED_CONTENT"'),
}


@every_protocol
async def test_a_refusal_is_typed_and_keeps_its_usage(protocol):
    old, new = REFUSALS[protocol]
    error = await failing(protocol, mangles(lambda events: [event.replace(old, new) for event in events]))
    assert type(error) is errors.ModelRefused
    assert error.used.input_tokens == 50


async def test_a_blocked_prompt_is_a_refusal():
    blocked = b'data: {"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":3}}\n\n'
    assert type(await failing("google", mangles(lambda _: [blocked]))) is errors.ModelRefused


@pytest.mark.rule("context.window")
async def test_a_window_that_ends_in_the_middle_of_an_answer_is_context_exhausted():
    full = mangles(
        lambda e: [x.replace(b'"stop_reason":"tool_use"', b'"stop_reason":"model_context_window_exceeded"') for x in e]
    )
    error = await failing("anthropic", full)
    assert type(error) is errors.ContextExhausted
    assert error.text == TURN.text


@every_protocol
async def test_an_error_inside_the_stream_is_the_providers_error(protocol):
    problem = {"type": "overloaded_error", "code": "overloaded_error", "message": "Overloaded"}
    inner = {"type": "error", "error": problem}
    if protocol == "openai-responses":
        inner = {"type": "error", "code": "server_error", "message": "Overloaded"}
    event = b"event: error\ndata: " + json.dumps(inner).encode() + b"\n\n"
    for at in range(1, whole_at(protocol)):
        error = await failing(protocol, mangles(lambda events, at=at: [*events[:at], event, *events[at:]]))
        assert type(error) is errors.Overloaded
    events = await answering(protocol, mangles(lambda events: [*events, event]))
    assert events[-1].message.text == TURN.text


@every_protocol
async def test_two_final_events_count_once(protocol):
    def twice(events):
        return [*events, *events[whole_at(protocol) - 1 :]]

    events = await answering(protocol, mangles(twice))
    assert [event.input_tokens for event in events if isinstance(event, TokenUsage)] == [50]
    assert len(events[-1].message.calls) == 2


# --- a tool call cut by the output limit ---


CUT_AT_THE_LIMIT = {
    "anthropic": (b'"stop_reason":"tool_use"', b'"stop_reason":"max_tokens"'),
    "openai-chat": (b'"finish_reason":"tool_calls"', b'"finish_reason":"length"'),
}


@pytest.mark.parametrize("protocol", CUT_AT_THE_LIMIT)
async def test_no_call_that_the_output_limit_has_cut_is_reported(protocol):
    def cut(events):
        last = max(n for n, event in enumerate(events) if b'b\\"}' in event)
        return [event.replace(*CUT_AT_THE_LIMIT[protocol]) for n, event in enumerate(events) if n != last]

    turn = ScriptedTurn(text="x", calls=(*TURN.calls, ScriptedCall(name="Read", arguments={"path": "a long one b"})))
    events = await answering(protocol, mangles(cut), turn=turn)
    assert [call.arguments for call in events[-1].message.calls] == [{"path": "ä.txt"}, {"path": "b"}]
    assert events[-1].reason == "length"


async def test_an_incomplete_item_is_no_call():
    def cut(events):
        events = [e.replace(b"response.completed", b"response.incomplete") for e in events]
        events = [
            e.replace(b'"incomplete_details":null', b'"incomplete_details":{"reason":"max_output_tokens"}')
            for e in events
        ]
        call = b'"status":"completed","call_id":"call_0000000101"'
        return [e.replace(call, call.replace(b"completed", b"incomplete")) for e in events]

    events = await answering("openai-responses", mangles(cut))
    assert [call.arguments for call in events[-1].message.calls] == [{"path": "ä.txt"}]
    assert events[-1].reason == "length"


async def test_a_call_without_arguments_at_the_output_limit_is_not_told():
    turn = ScriptedTurn(text="x", calls=(ScriptedCall(name="Read", arguments={"path": "p"}),))

    def cut(events):
        kept = [event for event in events if b"input_json_delta" not in event]
        return [event.replace(b'"stop_reason":"tool_use"', b'"stop_reason":"max_tokens"') for event in kept]

    events = await answering("anthropic", mangles(cut), turn=turn)
    assert events[-1].message.calls == ()


async def test_arguments_that_are_no_object_are_reported_as_malformed():
    for text in ('{"path": ', "[1]", "nonsense", "null", '"x"', "{" * 100_000):
        piece = json.dumps(text).encode()
        fault = mangles(
            lambda events, piece=piece: [
                e.replace(b'"partial_json":"{\\"path\\":\\"b\\"}"', b'"partial_json":' + piece) for e in events
            ]
        )
        events = await answering("anthropic", fault)
        bad = events[-1].message.calls[1]
        assert bad.malformed == text
        assert bad.arguments == {}


# --- sizes ---


ENDLESS = {
    "anthropic": lambda n: {"type": "content_block_start", "index": n, "content_block": {"type": "text"}},
    "openai-responses": lambda n: {"type": "response.output_item.done", "output_index": n, "item": {"type": "x" * 200}},
    "openai-chat": lambda n: {"choices": [{"delta": {"tool_calls": [{"index": n, "function": {}}]}}]},
    "google": lambda n: {"candidates": [{"content": {"parts": [{"functionCall": {"name": "x"}}]}}]},
}


@every_protocol
def test_endless_parts_are_refused(protocol, monkeypatch):
    monkeypatch.setattr(wire, "CONTENT_LIMIT", 100_000)
    reader = wire_of(protocol).reader()

    def read_on():
        for number in range(1000):
            reader.read(json.dumps(ENDLESS[protocol](number)).encode())

    with pytest.raises(errors.ReplyTooLarge):
        read_on()


@pytest.mark.parametrize("in_one_event", [True, False], ids=["in one event", "in many"])
async def test_fifty_megabytes_of_arguments_are_refused(in_one_event):
    size = 50_000_000

    def swell(events):
        index = next(n for n, event in enumerate(events) if b"input_json_delta" in event)
        head, _ = events[index].split(b'"partial_json":"')
        many = 1 if in_one_event else 50
        fat = head + b'"partial_json":"' + b"x" * (size // many) + b'"}}\n\n'
        return [*events[:index], *[fat] * many, *events[index:]]

    assert type(await failing("anthropic", mangles(swell))) is errors.ReplyTooLarge


async def test_a_million_tiny_deltas_are_read_in_time():
    def many(events):
        index = next(n for n, event in enumerate(events) if b'"content":"' in event and b'"Gr' in event)
        tiny = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n' * 10_000
        return [*events[:index], *[tiny] * 100, *events[index:]]

    events = await answering("openai-chat", mangles(many), idle_seconds=60)
    assert len(events[-1].message.text) == 1_000_000 + len(TURN.text)


# --- usage ---


@every_protocol
async def test_missing_usage_is_reported_as_unreported_and_costs_nothing_known(protocol):
    def without(events):
        return [e.replace(b'"usage":', b'"nothing":').replace(b'"usageMetadata":', b'"nothing":') for e in events]

    events = await answering(protocol, mangles(without))
    (usage,) = [event for event in events if isinstance(event, TokenUsage)]
    assert (usage.is_reported, usage.usage) == (False, Usage(requests=1, cost=None))


@every_protocol
async def test_negative_usage_counts_as_none(protocol):
    def negative(events):
        for number in (b"50", b"9"):
            events = [e.replace(b":" + number + b",", b":-7,").replace(b":" + number + b"}", b":-7}") for e in events]
        return events

    events = await answering(protocol, mangles(negative))
    (usage,) = [event for event in events if isinstance(event, TokenUsage)]
    assert (usage.input_tokens, usage.output_tokens) == (0, 0)


async def test_usage_that_comes_only_after_the_reason_to_stop_is_counted():
    late = b'data: {"usageMetadata":{"promptTokenCount":77}}\n\n'
    for protocol in ("openai-chat", "google"):
        events = await answering(protocol, mangles(lambda events: [*events, late]))
        (usage,) = [event for event in events if isinstance(event, TokenUsage)]
        assert usage.input_tokens == (77 if protocol == "google" else 50)


async def test_a_cut_stream_keeps_the_usage_it_told():
    error = await failing("anthropic", cuts(4))
    assert error.used.input_tokens == 50


@pytest.mark.rule("context.window")
async def test_a_conversation_that_was_cut_without_a_word_is_context_exhausted():
    async with ProviderServer(
        ScriptedTurn(text="What?", usage=TokenUsage(input_tokens=4000, output_tokens=3))
    ) as provider:
        http = HttpClient()
        model = WireModel(
            wire_of("openai-chat"),
            ModelTarget(provider="ollama", model="any"),
            Endpoint(base_url=f"{provider.url}/v1", key=ApiKey("kkkk")),
            http,
            context_window=4096,
        )
        conversation = asking("word " * 20_000)
        with pytest.raises(errors.ContextExhausted):
            async for _ in ask(model, conversation):
                pass
        await http.aclose()


@pytest.mark.rule("context.window")
async def test_an_unknown_window_is_learned_from_the_providers_error():
    async with provided("openai-chat", FAULTS["context_exhausted"]) as model:
        assert model.context_window is None
        await end_of(model)
        assert model.context_window == 8192
