"""Events: everything that can happen has one JSON form, and a newer version's words are kept unread."""

from typing import get_args

import msgspec
import pytest
from msgspec import UNSET, Raw

from deputy.core.errors import Error, UsageError
from deputy.core.events import (
    VERSION,
    AdmissionRefused,
    Known,
    ModelCallEnded,
    Noted,
    QuestionAsked,
    Requested,
    Returned,
    RunOpened,
    Unrecognised,
    decode,
    encode,
    errors_of,
    kinds,
    written,
)
from deputy.core.fallback import do_it_yourself
from deputy.core.outcome import Completed, Failed, Rejected, Usage
from deputy.core.request import Grant, Hop, Lineage, Request

LINEAGE = Lineage.root("sess_1_aaaaaa")
ERROR = Error(type="provider", message="It broke.", recoverable=True, recommendation="Try again.")
SAMPLES: dict[str, dict[str, object]] = {
    "run_opened": {"lineage": LINEAGE, "prompt": "p"},
    "requested": {
        "request": Request(
            session_id="sess_1_bbbbbb", target=Hop("a", "agent"), prompt="p", caller=LINEAGE, caller_grant=Grant()
        )
    },
    "admitted": {"lineage": LINEAGE, "grant": Grant()},
    "admission_refused": {"outcome": Rejected(lineage=LINEAGE, summary="no", errors=(ERROR,))},
    "returned": {"outcome": Failed(lineage=LINEAGE, summary="no", errors=(ERROR,))},
    "fell_back": {"fallback": {"left": "a", "taken": "b", "reason": "c"}},
}
PLAIN = {str: "text", int: 3, float: 1.5, bool: True, Raw: Raw(b'{"x": [1, "\\u00e9"]}')}


def sample(kind: type[msgspec.Struct]) -> msgspec.Struct:
    """An event of this kind with every required field filled."""
    given = SAMPLES.get(str(kind.__struct_config__.tag), {})
    fields: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        if field.name in given:
            fields[field.name] = given[field.name]
        elif field.required:
            fields[field.name] = PLAIN[field.type]
    return msgspec.convert(fields, kind) if "fallback" in given else kind(**fields)


@pytest.mark.parametrize("kind", get_args(Known), ids=lambda kind: kind.__name__)
def test_every_kind_survives_the_way_through_json(kind: type[msgspec.Struct]) -> None:
    event = sample(kind)
    body = encode(event)
    assert body.startswith(b'{"v":%d,"kind":"%b"' % (VERSION, event.kind.encode()))
    assert decode(body) == event
    assert event.kind in kinds()


def test_a_kind_that_a_newer_version_wrote_is_kept_as_it_is() -> None:
    body = b'{"v":1,"kind":"teleported","to":"mars"}'
    event = decode(body)
    assert event == Unrecognised(kind="teleported", version=1, body=Raw(body))
    assert encode(event) == body


def test_an_event_of_a_newer_version_is_not_read_with_the_old_meaning() -> None:
    assert isinstance(decode(b'{"v":2,"kind":"noted","content":"x"}'), Unrecognised)


def test_fields_that_a_newer_version_added_are_passed_over() -> None:
    assert decode(b'{"v":1,"kind":"noted","content":"x","mood":"good"}') == Noted(content="x")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"kind":"noted"}', b'{"v":1,"kind":"noted"}', b"\xff"])
def test_what_is_no_event_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        decode(body)


def test_messages_are_kept_as_the_bytes_they_came_in() -> None:
    message = b'{"role": "assistant",   "parts":[]}'
    event = ModelCallEnded(model="m", message=Raw(message), usage=Usage(input=1))
    assert message in encode(event)
    assert decode(encode(QuestionAsked(topic="t"))) == QuestionAsked(topic="t")


def test_the_errors_of_an_event_are_found_wherever_they_stand() -> None:
    outcome = Failed(lineage=LINEAGE, summary="no", errors=(ERROR,))
    assert errors_of(Returned(outcome=outcome)) == (ERROR,)
    assert errors_of(ModelCallEnded(model="m", error=ERROR)) == (ERROR,)
    assert errors_of(AdmissionRefused(outcome=Rejected(lineage=LINEAGE, summary="no", errors=(ERROR,)))) == (ERROR,)
    assert errors_of(Returned(outcome=Completed(lineage=LINEAGE, summary="yes"))) == ()
    assert errors_of(Noted(content="x")) == ()


def test_a_birth_names_the_session() -> None:
    assert ModelCallEnded(model="m").message is UNSET
    assert isinstance(decode(encode(sample(RunOpened))), RunOpened)
    assert isinstance(decode(encode(sample(Requested))), Requested)


def test_halves_of_characters_do_not_stop_a_record() -> None:
    event, body = written(Noted(content="a\ud800b"))
    assert event == decode(body) == Noted(content="a?b")
    assert written(Noted(content="é")) == (Noted(content="é"), encode(Noted(content="é")))


@pytest.mark.parametrize("message", [b"[" * 100_000 + b"]" * 100_000, b"{"], ids=["deep", "open"])
def test_what_could_not_be_read_back_is_refused(message: bytes) -> None:
    with pytest.raises(UsageError, match="read back"):
        written(ModelCallEnded(model="m", message=Raw(message)))


@pytest.mark.rule("errors.once")
def test_a_task_that_goes_back_to_its_caller_logs_only_the_reasons():
    back = do_it_yourself()
    for errors, logged in (((back, ERROR), (ERROR,)), ((back,), (back,))):
        assert errors_of(Returned(outcome=Failed(lineage=LINEAGE, summary="x", errors=errors))) == logged
