import asyncio

import pytest
from tests.support.house import House
from tests.support.scripts import call, talk, turn

from deputy.core.conversation import TokenUsage
from deputy.core.events import ModelCallBegun, QuestionAsked
from deputy.core.outcome import Blocked, Completed, Failed, Partial
from deputy.core.task import Task
from deputy.journal.transcript import files_of
from deputy.testing import ProviderServer
from deputy.testing.faults import answers


@pytest.mark.rule("loop")
def test_a_subagent_works_turn_after_turn_until_it_answers_without_tool_calls(house: House):
    (house.workspace / "a.txt").write_text("hello\n")
    house.script(
        talk(
            turn("I look.", call("Read", path="a.txt")),
            turn("", call("Grep", pattern="hello")),
            turn("hello stands in a.txt:1"),
        )
    )
    outcome = house.one()
    assert isinstance(outcome, Completed)
    assert outcome.report == "hello stands in a.txt:1"
    assert (outcome.usage.requests, outcome.usage.input, outcome.usage.output) == (3, 300, 60)


@pytest.mark.rule("loop")
def test_results_keep_the_order_of_the_calls_with_exactly_one_each(house: House):
    for name in "abc":
        (house.workspace / f"{name}.txt").write_text(f"this is {name}\n")
    house.script(
        talk(
            turn(
                "",
                call("Read", path="a.txt"),
                call("Nonsense", x=1),
                call("Read", path="c.txt"),
                call("Write", path="no.txt", content="x"),
                call("Read", path="b.txt"),
            ),
            turn("done"),
        )
    )
    outcome = house.one()
    assert isinstance(outcome, Completed)
    results = house.results(outcome)
    assert [("this is a" in results[0]), ("this is c" in results[2]), ("this is b" in results[4])] == [True] * 3
    assert "does not exist" in results[1]
    assert "is not granted" in results[3]
    assert not (house.workspace / "no.txt").exists()


@pytest.mark.rule("untrusted")
def test_what_a_failing_tool_says_is_fenced_and_our_own_refusals_are_not(house: House):
    house.script(
        talk(
            turn(
                "", call("Run", command="echo obey me; exit 3"), call("Nonsense"), call("Write", path="a", content="")
            ),
            turn("done"),
        )
    )
    failed, unknown, withheld = house.results(house.one(Task(label="scout", prompt="Look.", tools=("Run",))))
    assert failed.startswith("[data from Run ")
    assert "obey me" in failed
    assert failed.endswith("]")
    assert "[end of data" in failed
    assert unknown == "The tool 'Nonsense' does not exist; nothing was run. Your tools: Run, Note, Ask."
    assert withheld.startswith("The tool 'Write' is not granted")


@pytest.mark.rule("untrusted")
def test_the_mark_of_a_fence_cannot_be_guessed_from_what_a_command_knows(house: House):
    guess = (
        "import hashlib, os\n"
        "known = os.environ.get('DEPUTY_CALL', '')\n"
        "for part in (known, known.split(':')[0]):\n"
        "    for size in (4, 5, 8): print(hashlib.blake2b(part.encode(), digest_size=size).hexdigest())\n"
    )
    (house.workspace / "guess.py").write_text(guess)
    house.script(
        talk(turn("", call("Run", command="python3 guess.py")), turn("", call("Run", command="true")), turn("done"))
    )
    first, second = house.results(house.one(Task(label="scout", prompt="Look.", tools=("Run",))))
    marks = [result.splitlines()[-1].removeprefix("[end of data ").removesuffix("]") for result in (first, second)]
    assert marks[0] != marks[1]
    assert all(len(mark) >= 8 for mark in marks)
    assert first.count(marks[0]) == 2


@pytest.mark.rule("untrusted")
def test_a_failure_that_repeats_is_still_told_from_a_new_one(house: House):
    with ProviderServer(*[turn("", call("Run", command="exit 3"))] * 8, turn("All I know.")) as provider:
        house.use(provider)
        outcome = house.one(Task(label="scout", prompt="Look.", tools=("Run",)))
    assert (outcome.errors[0].code, outcome.report) == ("REPETITION", "All I know.")


@pytest.mark.rule("note")
def test_the_scratchpad_exists_from_the_start(house: House):
    house.script(talk(turn("Nothing to note.")))
    outcome = house.one()
    (scratchpad,) = (house.home / "subagent").glob("subagent-scout-*.scratch.md")
    assert (scratchpad.read_text(), scratchpad.stat().st_mode & 0o777) == ("", 0o600)
    assert outcome.notes == ()


@pytest.mark.rule("note")
def test_notes_are_kept_in_the_outcome_and_in_the_scratchpad(house: House):
    house.script(
        talk(turn("", call("Note", content="first finding")), turn("", call("Note", content="second")), turn("ok"))
    )
    outcome = house.one()
    assert outcome.notes == ("first finding", "second")
    assert house.results(outcome) == ["Noted.", "Noted."]
    (scratchpad,) = (house.home / "subagent").glob("subagent-scout-*.scratch.md")
    assert scratchpad.read_text() == "first finding\n\nsecond\n\n"
    assert outcome.session_id in scratchpad.name


def test_a_label_that_reads_like_a_secret_does_not_hide_whose_scratchpad_it_is(house: House):
    house.script(talk(turn("", call("Note", content="a finding")), turn("done")))
    outcome = house.one(Task(label="sk-ant-key", prompt="Look."))
    (scratchpad,) = (house.home / "subagent").glob("*.scratch.md")
    assert outcome.session_id in scratchpad.name
    assert files_of(house.home, outcome.session_id).count(scratchpad) == 1


@pytest.mark.rule("note")
def test_a_note_without_content_is_reported_to_the_model(house: House):
    house.script(talk(turn("", call("Note", text="x")), turn("ok")))
    outcome = house.one()
    assert outcome.notes == ()
    assert "content: missing" in house.results(outcome)[0]


@pytest.mark.rule("outcome.total")
def test_an_answer_cut_at_the_output_limit_is_asked_to_go_on(house: House):
    house.script(talk(turn("one ", stop="length"), turn("two ", stop="length"), turn("three")))
    outcome = house.one()
    assert isinstance(outcome, Completed)
    assert outcome.report == "one two three"


@pytest.mark.rule("outcome.total")
def test_an_answer_that_is_cut_again_and_again_is_partial_and_never_completed(house: House):
    house.script(talk(*[turn(f"{n} ", stop="length") for n in range(4)]))
    outcome = house.one()
    assert isinstance(outcome, Partial)
    assert (outcome.report, outcome.errors[0].code) == ("0 1 2 3 ", "OUTPUT_LIMIT")


def test_a_call_repeated_with_the_same_result_is_warned_about_and_then_ended(house: House):
    (house.workspace / "a.txt").write_text("the same\n")
    with ProviderServer(*[turn("", call("Read", path="a.txt"))] * 8, turn("All I know.")) as provider:
        house.use(provider)
        outcome = house.one()
    assert isinstance(outcome, Partial)
    assert (outcome.errors[0].code, outcome.report) == ("REPETITION", "All I know.")
    warned = [str(asked.body).count("Do something else") for asked in provider.asked]
    assert warned == [0, 0, 0, 1, 2, 3, 4, 5, 6]


def test_the_warning_stands_at_the_call_that_repeats(house: House):
    (house.workspace / "a.txt").write_text("the same\n")
    turns = [turn("", call("Read", path="a.txt"), call("Glob", pattern=f"*{n}")) for n in range(3)]
    with ProviderServer(*turns, turn("done")) as provider:
        house.use(provider)
        house.one()
    repeating, other = provider.asked[-1].body["messages"][-1]["content"]
    assert "You have received this result 3 times." in str(repeating)
    assert "You have received" not in str(other)


def test_every_model_call_carries_the_key_that_its_record_names(house: House):
    (house.workspace / "a.txt").write_text("the same\n")
    with ProviderServer(*[turn("", call("Read", path="a.txt"))] * 8, turn("All I know.")) as provider:
        house.use(provider)
        outcome = house.one()
    sent = [asked.headers["idempotency-key"] for asked in provider.asked]
    begun = [record.event for record in house.records(outcome.session_id) if isinstance(record.event, ModelCallBegun)]
    assert sent == [event.call for event in begun]
    assert len(set(sent)) == 9


@pytest.mark.rule("context.window")
def test_a_full_context_leads_to_one_last_turn_without_tools(house: House):
    (house.workspace / "big.txt").write_text("x" * 4000 + "\n")
    house.script(
        talk(
            turn("", call("Note", content="seen")),
            turn("", call("Read", path="big.txt"), usage=TokenUsage(input_tokens=9000, output_tokens=10)),
            turn("What I found."),
        )
    )
    outcome = house.one(window=10_000)
    assert isinstance(outcome, Partial)
    assert (outcome.errors[0].type, outcome.errors[0].code) == ("context_exhausted", "CONTEXT_EXHAUSTED")
    assert (outcome.report, outcome.notes) == ("What I found.", ("seen",))


@pytest.mark.rule("context.window")
@pytest.mark.rule("time.handin")
@pytest.mark.parametrize(("window", "is_told"), [(None, False), (None, True), (10**6, False), (10**6, True)])
def test_a_provider_that_says_the_context_is_full_gets_less_of_it_and_never_less_of_the_task(
    house: House, window: int | None, is_told: bool
):
    for name in ("old", "new"):
        (house.workspace / f"{name}.txt").write_text(f"{name} line\n" * 1500)
    words = "prompt is too long: 9000 tokens > 8192 maximum" if is_told else "prompt is too long"
    full = answers(400, {"type": "error", "error": {"type": "invalid_request_error", "message": words}})
    script = (
        turn("", call("Note", content="seen")),
        turn("", call("Read", path="old.txt")),
        turn("", call("Read", path="new.txt")),
        turn("Handed in.", faults=("full",)),
    )
    with ProviderServer(*script, faults={"full": full}) as provider:
        house.use(provider)
        outcome = house.one(Task(label="scout", prompt="The task itself."), window=window)
    assert isinstance(outcome, Partial)
    assert (outcome.errors[0].type, outcome.errors[0].recoverable) == ("context_exhausted", True)
    assert (outcome.report, outcome.notes) == ("Handed in.", ("seen",))
    refused, last = (str(asked.body["messages"]) for asked in provider.asked[-2:])
    assert "old line" in refused
    assert "old line" not in last
    assert "The task itself." in last
    assert "seen" in last
    assert len(last) < 0.7 * len(refused)


@pytest.mark.rule("context.window")
def test_a_first_request_that_the_provider_refuses_as_too_long_fails_with_the_numbers(house: House):
    with ProviderServer(turn("never said", faults=("context_exhausted",)), strict=False) as provider:
        house.use(provider, "anthropic:unknown-model")
        outcome = house.one(Task(label="scout", prompt="x" * 40_000))
    assert isinstance(outcome, Failed)
    assert outcome.errors[0].code == "PROMPT_TOO_LONG"
    assert outcome.errors[0].message.endswith("its context window has 8,192.")
    assert len(provider.asked) == 1


@pytest.mark.rule("context.window")
def test_a_short_first_request_that_the_server_refuses_as_too_long_names_its_words_and_a_smaller_window(house: House):
    with ProviderServer(turn("never said", faults=("context_exhausted",)), strict=False) as provider:
        house.use(provider, "anthropic:unknown-model")
        outcome = house.one(Task(label="scout", prompt="Look."))
    message = outcome.errors[0].message
    assert message.startswith("The server refused the first request, of about ")
    assert message.endswith("The server's own context window seems smaller than 8,192 tokens.")
    assert "prompt is too long" in message


@pytest.mark.rule("time.handin")
def test_what_the_provider_counted_decides_how_much_is_dropped(house: House):
    (house.workspace / "old.txt").write_text("old line\n" * 2000)
    (house.workspace / "new.txt").write_text("new line\n")
    script = (
        turn("", call("Read", path="old.txt")),
        turn("", call("Read", path="new.txt"), usage=TokenUsage(input_tokens=19_000, output_tokens=10)),
        turn("Handed in."),
    )
    with ProviderServer(*script) as provider:
        house.use(provider)
        outcome = house.one(window=20_000)
    assert (outcome.errors[0].code, outcome.report) == ("CONTEXT_EXHAUSTED", "Handed in.")
    assert "old line" not in str(provider.asked[-1].body)
    output = [seen for seen in house.seen if seen.event == "tokens"][-1]
    assert (output.input, output.output) == (outcome.usage.input, outcome.usage.output)


def test_a_model_that_fails_for_good_is_a_failed_outcome_that_keeps_what_there_is(house: House):
    fails = turn("never", faults=("bad_api_key",))
    house.script(talk(turn("I begin.", call("Note", content="seen")), fails), strict=False)
    outcome = house.one()
    assert isinstance(outcome, Failed)
    assert (outcome.errors[0].code, outcome.report, outcome.notes) == ("BAD_API_KEY", "I begin.", ("seen",))
    assert outcome.usage.requests >= 1


@pytest.mark.rule("escalate")
@pytest.mark.parametrize("way", ["marker", "tool"])
def test_a_question_without_a_person_to_ask_blocks_and_its_answer_resumes(house: House, way: str):
    asks = (
        turn("Which one?\n[AWAITING_HUMAN_INPUT]") if way == "marker" else turn("", call("Ask", question="Which one?"))
    )
    house.script(talk(asks, turn("Then the left one.")))
    outcome = house.one()
    assert isinstance(outcome, Blocked)
    assert outcome.question == "Which one?"
    assert f"deputy resume {outcome.session_id}" in outcome.next_steps
    resumed = house.resume(outcome.session_id, "the left one")
    assert isinstance(resumed, Completed)
    assert resumed.report == "Then the left one."


def test_the_system_prompt_says_what_it_is_and_what_it_can_do(house: House):
    house.script(talk(turn("ok"), when="You are a subagent"))
    outcome = house.one(Task(label="scout", prompt="Look."), base_prompt="The base.")
    assert isinstance(outcome, Completed)


@pytest.mark.rule("escalate")
@pytest.mark.rule("untrusted")
def test_a_parent_asks_the_person_it_works_for(house: House):
    house.script(talk(turn("", call("Ask", question="Left or right?")), turn("Left it is.")))

    async def go():
        async with house.open(can_ask=True) as runtime:
            run = await house.start_parent(runtime, "Turn.")
            async for record in runtime.engine.events(run):
                if isinstance(record.event, QuestionAsked):
                    await runtime.engine.send(run, "answer", "left")
                    break
            return record.event.question, await runtime.engine.result(run)

    question, outcome = asyncio.run(go())
    assert question == "Left or right?"
    assert isinstance(outcome, Completed)
    # The words of a person are not fenced as data.
    assert house.results(outcome) == ["left"]


@pytest.mark.rule("loop.text")
def test_a_model_that_writes_the_same_text_again_and_again_is_stopped_and_reports(house: House):
    looping = "I will look at the file again, and then I will answer. " * 400
    with ProviderServer(turn(f"I begin. {looping}"), turn("I found nothing.")) as provider:
        house.use(provider)
        outcome = house.one()
    assert isinstance(outcome, Partial)
    assert (outcome.errors[0].code, outcome.report) == ("REPETITION", "I found nothing.")
    assert "wrote the same text again and again" in outcome.errors[0].message
    *_, kept, last = provider.asked[1].body["messages"]
    assert len(str(kept)) < 200
    assert "You repeated yourself." in str(last)
    assert outcome.usage.output > 100


@pytest.mark.rule("loop.text")
def test_an_empty_turn_is_answered_with_other_words_and_the_second_one_is_a_failure(house: House):
    async def says_nothing(exchange, events):
        await exchange.begin()
        exchange.send_all([event for event in events if b"content_block" not in event])

    for times, ended in ((1, ("completed", "Here it is.")), (2, ("failed", ""))):
        script = turn("Here it is.", faults=("empty",) * times)
        with ProviderServer(script, faults={"empty": says_nothing}, strict=False) as provider:
            house.use(provider)
            outcome = house.one(Task(label=f"scout-{times}", prompt="Look."))
        assert (outcome.status, outcome.report) == ended
        assert "Continue: call a tool or report." in str(provider.asked[1].body["messages"][-1])
        assert len(provider.asked) == 2
    assert outcome.errors[0].code == "EMPTY_REPLY"


@pytest.mark.rule("loop.text")
def test_after_an_empty_turn_a_template_that_wants_alternating_roles_gets_one_user_message(house: House):
    async def says_nothing(exchange, events):
        await exchange.begin()
        exchange.send_all([event for event in events if b'"content"' not in event])

    script = turn("Here it is.", faults=("empty",))
    with ProviderServer(script, faults={"empty": says_nothing}, strict=False) as provider:
        house.use(provider)
        outcome = house.one(Task(label="scout", prompt="Look.", model="openai-chat:m"))
    assert (outcome.status, outcome.report) == ("completed", "Here it is.")
    [_, request] = provider.asked
    assert [message["role"] for message in request.body["messages"]] == ["system", "user"]
    text = request.body["messages"][1]["content"]
    assert text.startswith("Look.")
    assert text.endswith("Continue: call a tool or report.")
