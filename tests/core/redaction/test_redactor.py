"""Known values, data and encoded JSON."""

from __future__ import annotations

import base64
import json
import re
import time
from urllib.parse import quote, quote_plus

import pytest
from tests.core.redaction.samples import FORMS, made_up, vendor_keys
from tests.support.every_case import every_case

from deputy.core.redaction import MARK, Redactor, known_secrets
from deputy.core.visible_text import escaped_invisible

PLAIN = Redactor()
KNOWN = [f'made up/{made_up(12, seed=1)}+"ü😀"', made_up(40, seed=2), made_up(9, seed=3)]
KNOWING = Redactor(KNOWN)


@pytest.mark.rule("redact.simple")
def test_values_of_variables_whose_names_say_secret_are_known() -> None:
    environ = {
        "OPENAI_API_KEY": "made-up-one",
        "GITHUB_TOKEN": "made-up-two",
        "PGPASSWORD": "made-up-three",
        "DB_PASS": "made-up-four",
        "POSTGRES_PASSWORD": "postgres",
        "LOG_LEVEL": "verbosely",
        "PWD": "/home/somewhere",
        "MAX_TOKENS": "100000000",
        "PASSWORD_FILE": "/run/secrets/file",
    }
    assert set(known_secrets(environ)) == {"made-up-one", "made-up-two", "made-up-three", "made-up-four"}


@pytest.mark.rule("redact.simple")
@every_case("value", ["", "short", "changeme", "Password", "localhost", "development"])
def test_a_known_value_that_is_short_or_a_common_word_is_not_hidden(value: str) -> None:
    assert Redactor([value]).redact(f"image: {value}:16") == f"image: {value}:16"


@pytest.mark.rule("redact.simple")
@pytest.mark.parametrize("value", KNOWN)
def test_a_known_value_is_hidden_in_every_spelling(value: str) -> None:
    spellings = [
        value,
        json.dumps(value)[1:-1],
        json.dumps(json.dumps(value))[3:-3],
        json.dumps(value, ensure_ascii=False)[1:-1],
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        re.sub("%..", lambda escape: escape.group().lower(), quote(value, safe="")),
        value.encode().hex(),
        value.encode().hex().upper(),
    ]
    for spelling in spellings:
        assert KNOWING.redact(f"<{spelling}>") == f"<{MARK}>", spelling


@pytest.mark.rule("redact.simple")
@every_case("value", KNOWN)
@every_case("offset", [3, 4, 5])
@every_case("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_known_value_is_hidden_inside_base64(value: str, offset: int, encode: type) -> None:
    text = encode(b"x" * offset + value.encode() + b"tail").decode()
    shown = KNOWING.redact(text)
    assert MARK in shown
    assert len(shown) - len(MARK) < 18


def test_a_known_value_that_cannot_be_encoded_is_hidden_as_it_is() -> None:
    value = "\udcff" + made_up(12)
    assert Redactor([value]).redact(f"<{value}>") == f"<{MARK}>"


def test_overlapping_known_values_have_one_mark() -> None:
    assert Redactor(["abcdefgh1", "abcdefgh1jkl", "1jklmnop"]).redact("(abcdefgh1jklmnop)") == f"({MARK})"


@pytest.mark.rule("redact.simple")
@every_case(
    ("value", "hidden"),
    [
        ({"password": "hunter2", "n": 1}, {"password": MARK, "n": 1}),
        ({"password": ["one two", "three"]}, {"password": [MARK, MARK]}),
        ({"password": "${PASSWORD}", "token": None}, {"password": "${PASSWORD}", "token": None}),
        ({"token": "password=password", "x": "token=abcdefg"}, {"token": MARK, "x": f"token={MARK}"}),
        ({"headers": {"Authorization": "Bearer abc"}}, {"headers": {"Authorization": f"Bearer {MARK}"}}),
        ({"name": "DB_PASSWORD", "value": "swordfish"}, {"name": "DB_PASSWORD", "value": MARK}),
        ({"name": "LOG_LEVEL", "value": "swordfish"}, {"name": "LOG_LEVEL", "value": "swordfish"}),
        (["mysql", "--password", "sword fish"], ["mysql", "--password", MARK]),
        (["mysql", "-pswordfish", "shop"], ["mysql", f"-p{MARK}", "shop"]),
        (["sshpass", "-p", "sword fish", "ssh"], ["sshpass", "-p", MARK, "ssh"]),
        (["curl", "-s", "-u", "bob:swordfish"], ["curl", "-s", "-u", f"bob:{MARK}"]),
        (["curl", "-sSu", "bob:swordfish", None], ["curl", "-sSu", f"bob:{MARK}", None]),
        (["docker", "login", "-p", "swordfish"], ["docker", "login", "-p", MARK]),
        (["mkdir", "-p", "build", "-u", 5, None], ["mkdir", "-p", "build", "-u", 5, None]),
        ({vendor_keys()[0][1]: 1}, {MARK: 1}),
        # Values without a secret beside one with a secret, on either side.
        ([{"password": "hunter2"}, {"n": 1}], [{"password": MARK}, {"n": 1}]),
        ([{"n": 1}, {"password": "hunter2"}], [{"n": 1}, {"password": MARK}]),
        ({"Cookie": "a=b; c=d", "set-cookie": "sid=abc"}, {"Cookie": MARK, "set-cookie": MARK}),
        ({"cookie": "accepted"}, {"cookie": "accepted"}),
    ],
    ids=str,
)
def test_data_is_judged_by_the_names_in_it(value: object, hidden: object) -> None:
    before = repr(value)
    assert PLAIN.redact_value(value) == hidden
    assert repr(value) == before


def test_deep_data_does_not_exhaust_the_stack() -> None:
    value: object = "password=hunter2"
    for _ in range(20_000):
        value = [value]
    shown = PLAIN.redact_value(value)
    for _ in range(20_000):
        shown = shown[0]
    assert shown == f"password={MARK}"
    while isinstance(value, list):
        value = value.pop()


@pytest.mark.rule("redact.simple")
@pytest.mark.parametrize(
    "data", [b'{ "z": 1.0, "text": "a\\nb \\u0061" }', b'{"token": null,  "password": "<password>"}', b"[ ]"]
)
def test_encoded_data_without_a_secret_is_the_same_bytes(data: bytes) -> None:
    assert PLAIN.redact_json(data) is data


@pytest.mark.parametrize(
    "data",
    [
        b'{"text": "pass\\u0077ord=hunter2"}',
        b'{"password": "hunter2", "password": "<password>"}',
        b'{"args": "{\\"password\\": \\"hunter2\\"}"}',
        b'{"password": "hunter2!"',
        b"\xff password=hunter2 \xfe",
    ],
)
def test_encoded_data_loses_its_secrets_also_where_it_is_broken(data: bytes) -> None:
    shown = PLAIN.redact_json(data)
    assert b"hunter2" not in shown
    assert shown[:1] == data[:1]


@pytest.mark.rule("redact.where")
@every_case("hidden", ["\u200b", "\u202e", "\xad", "\x00", "\x85", "\U000e0041", "\x1b[1m", "\u2028", "\r"])
def test_an_invisible_character_does_not_split_a_secret(hidden: str) -> None:
    for _, key in vendor_keys():
        data = json.dumps({"text": f"{key[:9]}{hidden}{key[9:]}"}, ensure_ascii=False).encode()
        assert key[9:].encode() not in PLAIN.redact_json(data)
    for value in ({"text": f"pass{hidden}word=hunter2"}, {f"pass{hidden}word": "hunter2"}):
        assert "hunter2" not in str(PLAIN.redact_value(value))
    # One beside a secret, or in a text without any, stays.
    assert PLAIN.redact_value(f"a{hidden}b password=hunter2") == f"a{hidden}b password={MARK}"
    assert PLAIN.redact_value({"text": f"a{hidden}b"}) == {"text": f"a{hidden}b"}


@pytest.mark.rule("redact.where")
@every_case(
    "hidden", ["\u200b", "\u202e", "\xad", "\x00", "\x85", "\U000e0041", "\x1b[1m", "\u200d", "\u3164", "\U0001d159"]
)
def test_an_escaped_invisible_character_does_not_split_a_secret(hidden: str) -> None:
    """An error quotes an argument with its invisible characters escaped."""
    escapes = [escaped_invisible(hidden), json.dumps(hidden)[1:-1], json.dumps(json.dumps(hidden))[3:-3]]
    for escaped in (hidden, *escapes):
        quoted = f"'pass{escaped}word=hunter2'"
        shown = {PLAIN.redact(quoted), *PLAIN.redact_value([quoted]), PLAIN.redact_json(f"{quoted}!".encode()).decode()}
        shown |= {str(PLAIN.redact_value({f"pass{escaped}word": "hunter2"}))}
        assert not [text for text in shown if "hunter2" in text]
        assert PLAIN.redact(f"password=hun{escaped}ter2 x") in (f"password={MARK} x", f"password={MARK}")
        # Half of a secret at the place of a cut is not shown.
        assert "hun" not in PLAIN.redact(f"pass{escaped}word=hun", is_cut=True)
        assert PLAIN.redact(f"a{escaped}b password=hunter2") == f"a{escaped}b password={MARK}"
        assert PLAIN.redact(f"a{escaped}b") == f"a{escaped}b"


@pytest.mark.parametrize("value", ["made\u200bup value", "made\\u200bup value", "made\u200dup value"])
def test_a_known_value_with_an_invisible_character_is_hidden(value: str) -> None:
    for text in (value, f"to\u200dken {value}", f"to\\u200bken {value}"):
        assert "up value" not in Redactor([value]).redact(text)
        assert "up value" not in str(Redactor([value]).redact_value({"text": text}))


def test_encoded_data_stays_encoded_data() -> None:
    data = json.dumps({"args": json.dumps({"password": "hunter2!"}), "n": 2**63}).encode()
    shown = json.loads(PLAIN.redact_json(data))
    assert shown["n"] == 2**63
    assert json.loads(shown["args"]) == {"password": MARK}


HOSTILE = [
    "sk-",
    "eyJ-",
    "eyJ" + "a" * 20 + ".",
    "password=",
    'password: \\"',
    "token ",
    "://a:",
    "://a@",
    "Bearer ",
    "-----BEGIN ",
    "-----BEGIN RSA PRIVATE KEY-----\n",
    "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n",
    "a",
    "\\",
    "token: a | ",
    "'\"",
    "=",
    "secret = '",
    "AKIA",
    "xox",
    made_up(39),
    "İ",
    "--token-",
    "password=a&",
    "password=a,",
    "password: a[",
    "password=)",
    "-us",
    ":AA",
    ".a23456.",
    "mysql -p",
    " -u a:",
    "password='it''",
    "password='a\\\\'",
    "curl ",
    'Cookie: a="',
    "?key=",
    "authorization: basic ",
    "password: a, | ",
    "Proc-Type: ",
    "-----BEGIN PRIVATE KEY-----\n1\t",
    "{{{{",
    "password={{",
    f"{KNOWN[1]} ",
    f"password='{KNOWN[1]}",
    "a\u200b",
    "\\u200b",
    "\x1b]",
    "\\x1b]a",
    "$(",
]


@pytest.mark.parametrize("piece", HOSTILE, ids=range(len(HOSTILE)))
def test_work_grows_with_the_text_and_no_faster(piece: str) -> None:
    """Eight times the text may take 24 times the processor time: far less than the 64 times of quadratic work."""

    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        start = time.thread_time()
        KNOWING.redact(text)
        return time.thread_time() - start

    cost(1_000)
    small = min(cost(4_000) for _ in range(3))
    assert min(cost(32_000) for _ in range(2)) <= 24 * max(small, 0.001)


def test_a_placeholder_of_many_letters_takes_no_longer_than_its_length() -> None:
    def cost(length: int) -> float:
        start = time.thread_time()
        PLAIN.redact(f"password={'x' * length}!")
        return time.thread_time() - start

    cost(8)
    assert min(cost(120) for _ in range(2)) <= 24 * max(min(cost(30) for _ in range(3)), 0.001)


@pytest.mark.rule("redact.simple")
def test_after_no_some_and_much_text_the_same_is_hidden() -> None:
    busy = Redactor()
    busy.redact("many words " * 30_000)
    texts = [
        *(key for _, key in vendor_keys()),
        *(form.format(name="password", value=made_up(16)) for form in FORMS.values()),
    ]
    texts += ["curl -su me:made-up-word x", "no secret here", "pass", "sub-agent", "caf\u00e9 token=made-up-word"]
    used = Redactor()
    used.redact("some words " * 500)
    assert [busy.redact(text) for text in texts] == [used.redact(text) for text in texts]
    assert [Redactor().redact(text) for text in texts] == [used.redact(text) for text in texts]
    assert MARK in busy.redact(texts[0])
    stream = busy.stream()
    assert (
        stream.feed("Bear") + stream.feed("er made-up-word-1234567 and more") + stream.flush()
        == f"Bearer {MARK} and more"
    )
