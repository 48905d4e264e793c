"""`script:FILE` answers from a file, without a network, and is as strict as the provider."""

import json

import pytest

from deputy.core.conversation import RetryNotice, TextDelta
from deputy.core.errors import UsageError
from deputy.core.model_errors import BadRequest, Overloaded
from deputy.models.factory import ModelFactory
from deputy.testing.model_suite import asking, heard


def write(folder, content):
    path = folder / "script.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return f"script:{path}"


async def test_a_script_is_read_from_a_file_and_retried_like_any_model(tmp_path):
    turns = [{"text": "Hello.", "faults": ["stream_cut"], "usage": {"input_tokens": 3}}]
    async with ModelFactory(environ={}) as models:
        model = models.open(write(tmp_path, {"turns": turns}))
        events, stop = await heard(model, asking())
    assert [event.code for event in events if isinstance(event, RetryNotice)] == ["STREAM_CUT"]
    assert stop.message.text == "Hello."


async def test_paced_text_comes_word_by_word_and_whole(tmp_path):
    text = "one two\nthree  four "
    async with ModelFactory(environ={}) as models:
        model = models.open(write(tmp_path, {"turns": [{"text": text, "pace_seconds": 0.001}]}))
        events, stop = await heard(model, asking())
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(deltas) == text == stop.message.text
    assert len(deltas) > 2


async def test_asking_beyond_the_script_fails_for_good(tmp_path):
    async with ModelFactory(environ={}) as models:
        model = models.open(write(tmp_path, {"turns": [{"text": "Once."}]}))
        await heard(model, asking())
        assert model._model.unasked() == []
        with pytest.raises(BadRequest, match="was requested too often"):
            await heard(model, asking())


async def test_a_fault_of_a_script_is_a_typed_error(tmp_path):
    async with ModelFactory(environ={}) as models:
        model = models.open(write(tmp_path, {"turns": [{"text": "x", "faults": ["overloaded", "sparkle"]}]}))._model
        with pytest.raises(Overloaded):
            await heard(model, asking())
        with pytest.raises(UsageError, match="sparkle"):
            await heard(model, asking())


@pytest.mark.parametrize("content", ["", "{oops", "[]", '{"turns": [{"txt": "x"}]}', '{"conversations": 3}'])
def test_a_script_that_makes_no_sense_is_a_usage_error(tmp_path, content):
    with pytest.raises(UsageError):
        ModelFactory(environ={}).open(write(tmp_path, content))


def test_a_script_that_is_not_there_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        ModelFactory(environ={}).open(f"script:{tmp_path}/none.json")
    with pytest.raises(UsageError):
        ModelFactory(environ={}).open(f"script:{tmp_path}")


async def test_a_script_can_answer_with_the_session_id_that_it_was_told(tmp_path):
    output = 'You stand here: {"session_id":"sess_1_abcdef","delegation_depth":1}'
    async with ModelFactory(environ={}) as models:
        model = models.open(write(tmp_path, {"turns": [{"text": "I am {session_id}."}]}))
        _, stop = await heard(model, asking(output))
    assert stop.message.text == "I am sess_1_abcdef."
