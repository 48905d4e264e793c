"""A storm is never made worse by our own retries: none is early, starts are paced, concurrency halved and won back."""

import asyncio
import random
from contextlib import aclosing, suppress

import pytest

from deputy.core.conversation import AssistantMessage, GenerationSettings, RetryNotice, Stop, Text, TokenUsage, Toolset
from deputy.core.model_errors import BadKey, ContextExhausted, RateLimited, ServerFailed, StreamCut
from deputy.core.model_script import ModelScript, ScriptedConversation
from deputy.models.factory import ModelFactory, account
from deputy.models.rate_limiter import LocalRateLimitStore, RateLimiter
from deputy.models.retry import RetryingModel, RetryPolicy
from deputy.models.wire import ApiKey
from deputy.testing import ProviderServer, ScriptedTurn, run_in_virtual_time
from deputy.testing.faults import answers
from deputy.testing.model_suite import asking, heard
from deputy.testing.protocol_streams import render

CALM = {"draw": lambda: 0.5}
_STREAM = b"".join(render("anthropic", ScriptedTurn(text="Done."), model="claude-haiku-4-5", serial=1))
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (
    len(_STREAM),
    _STREAM,
)
_SLOW = b'{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}'


def _slow(retry_after):
    head = f"HTTP/1.1 429 Slow\r\nretry-after: {retry_after}\r\ncontent-length: {len(_SLOW)}\r\n\r\n"
    return head.encode() + _SLOW


class Moody:
    """A model that takes a second per turn and fails as told, by number of request."""

    name = "moody:m"
    context_window = None

    def __init__(self, failures, seconds=1.0):
        self.failures = failures
        self.seconds = seconds
        self.starts = []
        self.active = 0
        self.most_active = 0

    async def stream(self, conversation, tools, settings):
        number = len(self.starts)
        self.starts.append(asyncio.get_running_loop().time())
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            await asyncio.sleep(self.seconds)
            if (error := self.failures(number)) is not None:
                raise error
            yield TokenUsage(input_tokens=1)
            yield Stop(reason="end", message=AssistantMessage(parts=(Text(text="ok"),)))
        finally:
            self.active -= 1


async def turn(model):
    events = []
    async with aclosing(model.stream(asking(), Toolset(), GenerationSettings())) as stream:
        async for event in stream:
            events.append(event)
    return events


def busiest(times, window=0.1):
    """The most starts within any window of time."""
    times = sorted(times)
    return max(sum(1 for other in times if start <= other < start + window) for start in times)


@pytest.mark.rule("governor")
def test_a_hundred_throttled_together_come_back_paced_after_retry_after():
    moody = Moody(lambda number: RateLimited("slow", retry_after=7.0) if number < 100 else None, seconds=0.05)
    limiter = RateLimiter(**CALM)
    limits = []

    async def storm():
        model = RetryingModel(moody, limiter, **CALM)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(turn(model)) for _ in range(100)]
        limits.append(limiter.limit)
        for _ in range(600):
            await turn(model)
        return [task.result() for task in tasks]

    turns = run_in_virtual_time(storm())
    retries = moody.starts[100:200]
    assert len(moody.starts) == 100 + 100 + 600
    assert all(isinstance(events[-1], Stop) for events in turns)
    assert min(retries) >= 0.05 + 7.0
    assert busiest(retries) <= 10
    assert max(retries) - min(retries) < 3.0
    assert 50 <= limits[0] < 80
    assert limiter.limit > 90
    assert limiter.active == 0


@pytest.mark.rule("governor")
def test_a_hundred_come_back_paced_although_every_timer_is_late_and_every_way_is_long():
    chance = random.Random(7)
    late = {"draw": lambda: 0.5, "sleep": lambda seconds: asyncio.sleep(seconds + chance.uniform(0, 0.05))}
    moody = Moody(lambda number: RateLimited("slow", retry_after=1.0) if number < 100 else None, seconds=0.05)

    async def storm():
        model = RetryingModel(moody, RateLimiter(**late), **late)
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(turn(model))

    run_in_virtual_time(storm())
    arrivals = [start + chance.uniform(0, 0.05) for start in moody.starts[100:]]
    assert len(arrivals) == 100
    assert busiest(arrivals) <= 10


@pytest.mark.rule("governor")
def test_a_storm_is_over_although_more_and_more_come():
    moody = Moody(lambda number: RateLimited("slow", retry_after=0.5) if number < 3 else None, seconds=0.2)

    async def crowd():
        limiter = RateLimiter(max_concurrency=50, **CALM)
        model = RetryingModel(moody, limiter, **CALM)

        async def worker():
            for _ in range(20):
                await turn(model)

        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(worker())
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(crowd()) < 2 * 20 * 0.2
    assert moody.most_active <= 50


@pytest.mark.rule("governor")
def test_those_whom_another_process_holds_back_do_not_start_all_at_once():
    pace = LocalRateLimitStore()
    moody = Moody(lambda _: None, seconds=0.05)

    async def crowd():
        await pace.hold(3.0)
        model = RetryingModel(moody, RateLimiter(**CALM, store=pace), **CALM)
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(turn(model))

    run_in_virtual_time(crowd())
    assert min(moody.starts) >= 3.0
    assert busiest(moody.starts) <= 10


@pytest.mark.rule("governor")
def test_every_new_storm_halves_again_and_one_storm_halves_once():
    limiter = RateLimiter(max_concurrency=64, **CALM)

    async def storms():
        limits = []
        for _ in range(3):
            starts = [await limiter.enter() for _ in range(int(limiter.limit))]
            await asyncio.sleep(1)
            for start in starts:
                await limiter.throttled(start, 0.5)
                limiter.release()
            limits.append(limiter.limit)
            await asyncio.sleep(30)
        return limits

    assert run_in_virtual_time(storms()) == [32, 16, 8]


@pytest.mark.rule("governor")
def test_the_limit_is_never_passed_and_never_below_one():
    moody = Moody(lambda number: RateLimited("slow", retry_after=0.1) if number % 3 == 0 else None, seconds=0.3)
    limiter = RateLimiter(max_concurrency=8, **CALM)

    async def crowd():
        model = RetryingModel(moody, limiter, **CALM, policy=RetryPolicy(attempts=50))
        async with asyncio.TaskGroup() as group:
            for _ in range(40):
                group.create_task(turn(model))

    run_in_virtual_time(crowd())
    assert moody.most_active <= 8
    assert 1 <= limiter.limit <= 8
    assert limiter.active == 0


def test_a_cancelled_waiter_gives_its_place_away():
    limiter = RateLimiter(max_concurrency=1, **CALM)

    async def play():
        await limiter.enter()
        waiters = [asyncio.create_task(limiter.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        limiter.release()
        await waiters[1]
        await limiter.throttled(await asyncio.sleep(0, 0.0), 5.0)
        limiter.release()
        await asyncio.sleep(0)
        waiters[2].cancel()
        await asyncio.wait(waiters)
        assert limiter.active == 0
        await limiter.enter()
        assert limiter.active == 1
        limiter.release()

    run_in_virtual_time(play())


def test_a_late_timer_never_becomes_a_burst():
    pace = LocalRateLimitStore()

    async def take(now):
        return await pace.next_start(now, 0.1)

    async def play():
        await pace.hold(10.0)
        assert await take(9.0) == pytest.approx(1.0)
        assert await take(30.0) == 0
        assert await take(30.0) == pytest.approx(0.1)
        assert await take(30.05) == pytest.approx(0.05)
        assert await take(30.11) == 0

    run_in_virtual_time(play())


def test_a_hold_by_another_process_is_kept_by_one_that_knows_of_no_storm():
    pace = LocalRateLimitStore()
    ours, theirs = RateLimiter(**CALM, store=pace), RateLimiter(**CALM, store=pace)

    async def play():
        await theirs.throttled(await theirs.enter(), 4.0)
        return await ours.enter()

    assert run_in_virtual_time(play()) >= 4.0


def test_each_provider_and_key_has_one_limiter():
    of = ModelFactory(environ={}).limiter
    one, two = ApiKey("key-number-one"), ApiKey("key-number-two")
    assert of(account("openai", one)) is of(account("openai", ApiKey("key-number-one")))
    assert of(account("openai", one)) is not of(account("openai", two))
    assert of(account("openai", one)) is not of(account("groq", one))
    assert "key-number" not in account("openai", one)


async def test_a_hundred_subagents_over_a_real_socket_wait_and_come_back_paced():
    retry_after = 0.4
    slow = answers(429, {"error": {"type": "rate_limit_error", "message": "slow"}}, {"retry-after": str(retry_after)})
    conversation = ScriptedConversation(turns=(ScriptedTurn(text="Done.", faults=("slow",)),), times=100)
    async with (
        ProviderServer(ModelScript(conversations=(conversation,)), faults={"slow": slow}) as provider,
        ModelFactory(environ=provider.environ) as models,
    ):
        model = models.open("anthropic:claude-haiku-4-5")
        async with asyncio.TaskGroup() as group:
            for _ in range(100):
                group.create_task(heard(model, asking()))
    times = [asked.at for asked in provider.asked]
    first, again = times[:100], times[100:]
    assert len(again) == 100
    assert min(again) >= min(first) + retry_after
    # As the server sees them come, whatever this machine puts between a start and that.
    assert busiest(again) <= 10


@pytest.mark.rule("governor")
async def test_no_window_has_more_retries_than_there_are_slots_and_none_comes_early():
    retry_after, clients = 0.3, 60
    seen: list[tuple[float, str, int]] = []
    thrown_back: dict[str, float] = {}

    async def serve(reader, writer):
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
                name = head.partition(b"idempotency-key:")[2].partition(b"\r\n")[0].decode()
                at = asyncio.get_running_loop().time()
                assert at >= thrown_back.get(name, 0.0) + retry_after
                seen.append((at, name, int(limiter.limit)))
                # A storm of all at once, and one more that is thrown back while the others still wait.
                is_thrown_back = len(seen) <= clients or len(seen) == clients + 10
                if is_thrown_back:
                    thrown_back[name] = at
                writer.write(_slow(retry_after) if is_thrown_back else _ANSWER)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with (
        server,
        ModelFactory(environ={"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "key"}) as models,
        asyncio.TaskGroup() as group,
    ):
        model = models.open("anthropic:claude-haiku-4-5")
        limiter = model._limiter
        for client in range(clients):
            settings = GenerationSettings(idempotency_key=f"client-{client}")
            group.create_task(heard(model, asking(), settings))
    retries = [(at, slots) for index, (at, name, slots) in enumerate(seen) if name in {n for _, n, _ in seen[:index]}]
    assert len(retries) >= clients
    windows = [[slots for other, slots in retries if at <= other < at + 0.1] for at, _ in retries]
    assert [window for window in windows if len(window) > max(window)] == []


# --- retries ---


def retried(failures, **policy):
    moody = Moody(failures)
    model = RetryingModel(moody, RateLimiter(**CALM), **CALM, policy=RetryPolicy(**policy))
    return moody, model


def test_what_may_help_is_tried_again_with_growing_waits():
    moody, model = retried(lambda number: StreamCut("cut") if number < 3 else None)
    events = run_in_virtual_time(turn(model))
    waits = [event.seconds for event in events if isinstance(event, RetryNotice)]
    assert waits == [0.75, 1.5, 3.0]
    assert moody.starts == [0, 1.75, 4.25, 8.25]
    assert [event.code for event in events if isinstance(event, RetryNotice)] == ["STREAM_CUT"] * 3


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ServerFailed("internal error", model="m", status=500), "m: internal error (HTTP 500, 3 attempts)"),
        (StreamCut("cut", model="m"), "m: cut (3 attempts)"),
        (BadKey("no", model="m", status=401), "m: no (HTTP 401)"),
    ],
)
def test_the_error_after_the_last_attempt_names_the_status_and_the_attempts(error, message):
    _, model = retried(lambda _: error, attempts=3)
    with pytest.raises(type(error)) as failed:
        run_in_virtual_time(turn(model))
    assert failed.value.as_value().message == message


@pytest.mark.parametrize("error", [BadKey("no"), ContextExhausted("full"), ServerFailed("x", retryable=False)])
def test_what_cannot_help_is_not_tried_again(error):
    moody, model = retried(lambda _: error)
    with pytest.raises(type(error)):
        run_in_virtual_time(turn(model))
    assert len(moody.starts) == 1


def test_tries_are_bounded():
    moody, model = retried(lambda _: ServerFailed("broken"), attempts=4)
    with pytest.raises(ServerFailed):
        run_in_virtual_time(turn(model))
    assert len(moody.starts) == 4


def test_a_provider_that_wants_more_time_than_there_is_gets_none():
    moody, model = retried(lambda _: RateLimited("slow", retry_after=3600.0))
    with pytest.raises(RateLimited):
        run_in_virtual_time(turn(model))
    assert len(moody.starts) == 1


def test_a_request_while_a_provider_wants_too_much_time_fails_at_once():
    moody, model = retried(lambda _: RateLimited("come back tomorrow", retry_after=86_400.0))

    async def play():
        for _ in range(3):
            with pytest.raises(RateLimited) as caught:
                await turn(model)
        assert caught.value.model == model.name
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(play()) == 1.0
    assert len(moody.starts) == 1


def test_the_usage_of_a_failed_try_is_reported_once():
    def fail(number):
        if number:
            return None
        error = StreamCut("cut")
        error.used = TokenUsage(input_tokens=40)
        return error

    _, model = retried(fail)
    events = run_in_virtual_time(turn(model))
    assert [event.input_tokens for event in events if isinstance(event, TokenUsage)] == [40, 1]


def test_leaving_a_retrying_model_gives_its_slot_back():
    limiter = RateLimiter(**CALM)
    model = RetryingModel(Moody(lambda _: None), limiter, **CALM)

    async def leave():
        async with aclosing(model.stream(asking(), Toolset(), GenerationSettings())) as events:
            async for _ in events:
                break
        task = asyncio.create_task(turn(model))
        await asyncio.sleep(0.5)
        task.cancel()
        await asyncio.wait([task])

    run_in_virtual_time(leave())
    assert limiter.active == 0


def test_waiting_at_a_rate_limit_is_not_failing():
    moody, model = retried(lambda number: RateLimited("slow", retry_after=1.0) if number < 12 else None)
    assert isinstance(run_in_virtual_time(turn(model))[-1], Stop)
    moody, model = retried(lambda _: RateLimited("slow", retry_after=0.0))
    with pytest.raises(RateLimited):
        run_in_virtual_time(turn(model))
    assert len(moody.starts) == 20
