"""Deputy's own provider keys: masked by name wherever they stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json
from tests.support.every_case import every_case

from deputy.core.events import Noted
from deputy.core.provider_keys import ProviderKeys

KEY = "sk-" + "proj-4fJ2kQ9xTz7Lw1"
NAMES = ("OPENAI_API_KEY", "GROQ_API_KEY")
KEYS = ProviderKeys(NAMES, {"OPENAI_API_KEY": KEY, "GROQ_API_KEY": f"{KEY}-longer", "OTHER": "not-a-provider-key-1"})

pytestmark = pytest.mark.rule("redact.where")


@given(st.text(), st.text())
def test_no_text_and_no_json_keeps_a_key(before: str, after: str) -> None:
    text = f"{before}{KEY}{after}"
    assert KEY not in KEYS.mask(text)
    assert json.decode(KEYS.mask_json(json.encode({"text": text}))) == {"text": KEYS.mask(text)}


@given(st.text().filter(lambda text: KEY not in text))
def test_text_without_a_key_stays_exactly_as_it_is(text: str) -> None:
    assert KEYS.mask(text) == text
    body = json.encode(text)
    assert KEYS.mask_json(body) is body
    assert KEYS.mask_event(Noted(content=text)) == Noted(content=text)


def test_the_mark_names_the_variable_and_the_longer_key_wins() -> None:
    assert KEYS.mask(f"{KEY} {KEY}-longer") == "[redacted OPENAI_API_KEY] [redacted GROQ_API_KEY]"


def test_a_mark_is_found_whether_or_not_its_variable_is_set() -> None:
    assert KEYS.marked("x [redacted GROQ_API_KEY] y") == "GROQ_API_KEY"
    assert ProviderKeys(NAMES, {}).marked('{"a":"[redacted OPENAI_API_KEY]"}') == "OPENAI_API_KEY"
    assert KEYS.marked("[redacted KEY_NAME] and [redacted]") == ""


@every_case("value", ["", "k", "key-1", "not-needed", "ollama", "completed", "model_call_ended", "12345678"])
def test_a_word_that_stands_in_ordinary_text_is_not_masked(value: str) -> None:
    keys = ProviderKeys(["OPENAI_API_KEY"], {"OPENAI_API_KEY": value})
    assert keys.mask(f"a {value} b") == f"a {value} b"


def test_a_key_in_a_value_with_quotes_is_masked_in_json() -> None:
    keys = ProviderKeys(["OPENAI_API_KEY"], {"OPENAI_API_KEY": 'odd"key\\1234'})
    assert json.decode(keys.mask_json(json.encode(['odd"key\\1234']))) == ["[redacted OPENAI_API_KEY]"]


@every_case("before", ["\n", "\t", "\u00e9\x01", "\\", "\\\\", '"'])
def test_an_escape_in_json_is_never_cut_to_make_a_key(before: str) -> None:
    """The escape of a line end before `vapi-…` ends in the letter that the key begins with."""
    value = json.encode(before)[-2:-1].decode() + "vapi-4fJ2kQ9xTz7Lw1"
    keys = ProviderKeys(["NVIDIA_API_KEY"], {"NVIDIA_API_KEY": value})
    for text in (f"{before}vapi-4fJ2kQ9xTz7Lw1", f"{before}{value}"):
        assert json.decode(keys.mask_json(json.encode([text]))) == [keys.mask(text)]
