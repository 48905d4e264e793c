"""The whole of detection: order of the patterns, limits, and that no text whatever breaks it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deputy.core.detect import LIMIT_REQUESTS, SHIPPED, FoundRequest, detect, request_json
from deputy.core.detect.folded_text import is_worded
from deputy.core.detect.found_request import ESCALATION

FRAGMENTS = [
    *(
        "<delegate>",
        "</delegate>",
        '<delegate model="',
        '">',
        "<delegate [model]>",
        "<delegate/>",
        "<prompt>",
        "</prompt>",
    ),
    *("<context>", "</context>", "<output>", "<model>opus</model>", "<!--", "-->", "<![CDATA[", "&lt;"),
    *('"', "“", "”", "«", "»", "'", "`", "```", "~~~\n", "**", "> ", "- ", "1. ", "## ", "| ", "---\n"),
    *("\n", "\n\n", "\r\n", " ", "\t", ".", ":", ". ", "? ", " :**\n", "/", "İ", "ß", "\u2028", "\x00"),
    *("Try to use Task tool", "essayez d’utiliser l’outil Task", " to spawn a subprocess", " avec un sous-agent"),
    *("Graceful degradation", "If no Task tool, ", "(model: ", "[model: {x}]", "opus", "gpt-5.2", ")", "]"),
    *("please ", "can you ", "I want to ", "how ", "not ", "use a subagent", "delegate this", "spawn a sub-\nagent"),
    *("isolated execution", " to ", "fix ", "it", "as JSON", "Return ", "Format:", "with ", "{name}", "{{", "src/a.py"),
]

any_text = st.text(st.characters(codec=None), max_size=400)
near_misses = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=60).map("".join)


def check(text: str) -> None:
    requests = detect(text)
    assert len({request.pattern for request in requests}) <= 1
    assert sum(request.is_unclear for request in requests) <= 1
    for request in requests:
        start, end = request.span
        assert 0 <= start < end <= len(text)
        assert is_worded(request.prompt)
        assert request.prompt == request.prompt.strip()
        assert request.prompt in request.normalized
        assert ESCALATION in request.normalized
        assert request.resolved_model
        assert (request.model is not None) == (request.model_source == "explicit")
        assert all(request.context)
        assert request.output is None or request.output
        assert request.degradation is None or request.degradation
    starts = [request.span[0] for request in requests]
    assert starts == sorted(set(starts))


@pytest.mark.rule("text.xml")
@pytest.mark.rule("text.prose")
@pytest.mark.rule("text.user")
@settings(deadline=None)
@given(any_text)
def test_no_text_breaks_it(text: str) -> None:
    check(text)


@pytest.mark.rule("text.xml")
@pytest.mark.rule("text.prose")
@pytest.mark.rule("text.user")
@settings(deadline=None)
@given(near_misses)
def test_no_text_that_is_almost_a_request_breaks_it(text: str) -> None:
    check(text)


@pytest.mark.rule("text.xml")
@settings(deadline=None)
@given(
    st.text(st.characters(categories=["L", "N", "Po"], exclude_characters="&<>`"), min_size=1).map(lambda t: f"Do {t}")
)
def test_what_a_block_says_comes_out_as_it_is(task: str) -> None:
    (request,) = detect(f"<delegate><prompt>{task}</prompt></delegate>")
    assert request.prompt == task.strip()
    assert request.system is None


@pytest.mark.rule("text.prose")
@settings(deadline=None)
@given(st.lists(st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20), min_size=1, max_size=5))
def test_a_quoted_prompt_comes_out_as_it_is(lines: list[str]) -> None:
    task = "Do\n" + "\n".join(lines)
    (request,) = detect(f'Try to use Task tool to spawn a subprocess:\n\n"{task}"\n\nMore.')
    assert request.prompt == task.strip()


@pytest.mark.rule("exec.grant")
def test_requests_of_all_patterns_are_found_in_the_order_of_the_text() -> None:
    asked = "Please use a subagent to fix the tests.\n\n"
    quoted = 'Try to use Task tool to spawn a subprocess:\n\n"Fix the docs."\n\n'
    block = "<delegate>Fix the build.</delegate>\n\n"
    prompts = {"user": "fix the tests.", "prose": "Fix the docs.", "xml": "Fix the build."}
    for text in (asked + quoted + block, block + asked + quoted, quoted + block + asked):
        found = detect(text)
        assert {request.pattern: request.prompt for request in found} == prompts
        assert [request.span for request in found] == sorted(request.span for request in found)
    assert [request.pattern for request in detect(block + asked + quoted, limit=2)] == ["xml", "user"]


@pytest.mark.rule("exec.grant")
@pytest.mark.parametrize(
    "text",
    [
        "<delegate>Please use a subagent to fix the tests.</delegate>\n",
        'Try to use Task tool to spawn a subprocess:\n\n"Please use a subagent to fix the tests."\n',
        "Please delegate this to opus.\n\n<delegate>Fix the build.</delegate>\n",
    ],
)
def test_a_request_inside_another_or_one_that_only_introduces_it_is_none_of_its_own(text: str) -> None:
    assert len(detect(text)) == 1


@pytest.mark.parametrize(
    "one",
    [
        "<delegate>do it now</delegate>\n",
        'Try to use Task tool with sub-agent:\n"Do it."\n',
        "Use a subagent to fix the roof.\n\n",
    ],
)
def test_requests_beyond_the_limit_are_left_out(one: str) -> None:
    assert len(detect(one * (LIMIT_REQUESTS + 10))) == LIMIT_REQUESTS
    assert len(detect(one * 5, limit=3)) == 3
    assert len(detect(one * 3, limit=5)) == 3


def test_the_form_for_programs_has_the_documented_fields_in_their_order() -> None:
    (request,) = detect("Please use a subagent to fix the roof.")
    assert list(msgspec.to_builtins(request_json(request))) == [
        "pattern", "model", "model_source", "resolved_model", "prompt", "system", "context", "output", "degradation",
        "span", "normalized",
    ]  # fmt: skip


def test_detection_depends_on_nothing_but_its_arguments() -> None:
    text = "Please use a subagent with opus to fix src/a.py.\n"
    first: tuple[FoundRequest, ...] = detect(text)
    assert first == detect(text, SHIPPED) == detect(text)
