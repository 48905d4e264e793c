"""Requests in a person's words, beyond what the corpus shows."""

from __future__ import annotations

import msgspec
import pytest
from tests.support.every_case import every_case

from deputy.core.detect import SHIPPED, detect

pytestmark = pytest.mark.rule("text.user")

PHRASES = [
    *("spawn a subprocess", "spawn subprocess", "spawn a subagent", "spawn sub-agent"),
    *("delegate this", "delegate task", "delegate to", "isolated execution"),
    *("use a subagent", "use subagent", "use a sub-agent"),
    *("run in isolation", "run in subprocess", "execute in subprocess"),
]
FORMS = ["Please", "please", "Can you", "Could you", "could you please", "I want to", "I need to"]


def prompts(text: str) -> list[str]:
    return [request.prompt for request in detect(text)]


@every_case("phrase", PHRASES)
@every_case("form", FORMS)
def test_a_phrase_in_the_form_of_a_request_is_one(form: str, phrase: str) -> None:
    assert prompts(f"{form} {phrase}: paint the fence green") == ["paint the fence green"]


@every_case("phrase", [phrase for phrase in PHRASES if phrase != "delegate to"])
def test_a_sentence_that_starts_with_a_phrase_is_a_request(phrase: str) -> None:
    assert prompts(f"It is late. {phrase.capitalize()}: paint the fence green.") == ["paint the fence green."]


@every_case("phrase", PHRASES)
@every_case(
    "talk",
    [
        *("They {} all day.", "How do you {}?", "Please do not {} now.", "Never {} here.", "You can {} too."),
        *("As a user, I want to {} now.", "I want to know when to {} at all.", "Can you describe how to {}?"),
        *("The verb “{}” is known.", "`please {}`"),
    ],
)
def test_talk_about_a_phrase_is_no_request(talk: str, phrase: str) -> None:
    assert detect(talk.format(phrase)) == ()


def test_isolated_execution_of_something_is_a_request_and_a_statement_about_it_is_none() -> None:
    assert [request.prompt for request in detect("Isolated execution of the test suite")] == ["the test suite"]
    assert detect("Isolated execution of tests is slow.") == ()


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        ("Please run an isolated execution of the test suite.", "the test suite."),
        ("I want an isolated execution of the test suite.", "the test suite."),
        ("Please check the parser in an isolated execution.", "check the parser"),
    ],
)
def test_the_words_around_isolated_execution_leave_the_prompt(text: str, prompt: str) -> None:
    assert [request.prompt for request in detect(text)] == [prompt]


@pytest.mark.parametrize("name", ["opus", "qwen3:8b", "`my-model.v2`", "gpt-5.2"])
def test_the_name_of_a_model_leaves_the_prompt(name: str) -> None:
    (request,) = detect(f"Use a subagent with model {name} to count the files.")
    assert (request.prompt, request.model) == ("count the files.", name.strip("`"))


def test_an_order_with_a_question_mark_is_a_question() -> None:
    assert detect("Delegate this to opus?") == ()


def test_what_a_colon_announces_is_the_task_and_not_what_stands_before() -> None:
    assert prompts("Hello there, my friend.\n\nDelegate this:\n\nPaint the fence.") == ["Paint the fence."]


def test_form_and_phrase_must_stand_in_one_sentence() -> None:
    assert detect("Please wait. They use a subagent for that.") == ()


def test_a_negation_in_another_sentence_does_not_matter() -> None:
    assert prompts("I do not like it. Please use a subagent to paint the fence.")[0].startswith("paint the fence")


def test_what_was_said_before_in_the_paragraph_is_context() -> None:
    (request,) = detect("Other paragraph.\n\nThe fence is old and grey. Please use a subagent to paint a new one.")
    assert request.prompt == "paint a new one."
    assert request.context == ("The fence is old and grey.",)


def test_what_belongs_to_one_request_is_not_context_of_the_next() -> None:
    first, second = detect(
        "Use a subagent to paint the fence. Take the green paint, please. Use a subagent to mow the lawn."
    )
    assert first.prompt == "paint the fence. Take the green paint, please."
    assert (second.prompt, second.context) == ("mow the lawn.", ())


def test_the_rest_of_the_paragraph_belongs_to_the_task_and_the_next_does_not() -> None:
    assert prompts("Use a subagent to paint the fence. Take green.\n\nThe weather is fine.") == [
        "paint the fence. Take green."
    ]


def test_an_unclear_request_says_so_and_has_all_of_the_text_as_its_prompt() -> None:
    (request,) = detect("  Please delegate this to opus.\n")
    assert request.is_unclear
    assert request.prompt == "Please delegate this to opus."
    assert request.model == "opus"


def test_a_clear_request_is_not_unclear() -> None:
    (request,) = detect("Please use a subagent to paint the fence.")
    assert not request.is_unclear


def test_unclear_requests_are_one_request() -> None:
    assert len(detect("Delegate this. " * 50)) == 1


def test_a_lone_verb_without_surroundings_is_clear_enough() -> None:
    (request,) = detect("Please use a subagent to celebrate.")
    assert (request.prompt, request.is_unclear) == ("celebrate.", False)


def test_the_span_covers_what_the_request_says() -> None:
    text = "Hello.\n\nPlease use a subagent to check:\n- a\n- b\n\nThanks.\n"
    (request,) = detect(text)
    assert text[slice(*request.span)] == "Please use a subagent to check:\n- a\n- b"


def test_line_ends_of_other_systems_are_line_ends() -> None:
    assert prompts("Please use a\r\nsubagent to check:\r\n- a\r\n- b\r\n\r\nThanks.\r\n") == ["check:\n- a\n- b"]


def test_further_phrases_are_a_matter_of_data() -> None:
    tables = msgspec.structs.replace(SHIPPED, delegations=(*SHIPPED.delegations, "call [in] the cavalry"))
    assert detect("Please call the cavalry to paint the fence.") == ()
    (request,) = detect("Please call in the cavalry to paint the fence.", tables)
    assert request.prompt == "paint the fence."
