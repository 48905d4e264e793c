"""Secrets are hidden in texts, data and streams; ordinary text comes through."""

from __future__ import annotations

import base64
import json
import re
import time
from itertools import pairwise
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.secret_lines import innocent_lines, made_up, secret_lines

from deputy.core.redact import MARK, Redactor
from deputy.core.secret_look import may_start_secret
from deputy.core.secret_shapes import FOLLOW_NAME, finder, hint, names, shapes

SECRETS = secret_lines()
INNOCENT = innocent_lines()
KNOWN = [f'made up/{made_up(12, seed=1)}+"ü😀"', made_up(40, seed=2), made_up(9, seed=3)]
PLAIN = Redactor()
KNOWING = Redactor(KNOWN)
A_FILE = made_up(100_000, seed=6)
KNOWING_A_FILE = Redactor([A_FILE])


def streamed(redactor: Redactor, chunks: list[str]) -> str:
    stream = redactor.stream()
    return "".join([*map(stream.feed, chunks), stream.flush()])


def test_the_corpora_are_not_small() -> None:
    assert len(SECRETS) >= 60
    assert len(INNOCENT) >= 60


@pytest.mark.parametrize(("line", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_a_line_with_a_secret_loses_it_and_nothing_else_of_value(line: str, secret: str) -> None:
    for text in (line, f"before {line}\nafter", f"é {line}"):
        shown = PLAIN.redact(text)
        assert secret not in shown
        assert MARK in shown
        assert not any(secret[at : at + 6] in shown for at in range(4, len(secret) - 6))


@pytest.mark.parametrize("line", INNOCENT, ids=range(len(INNOCENT)))
def test_a_line_without_a_secret_is_left_alone(line: str) -> None:
    for text in (line, f"before {line}\nafter"):
        assert PLAIN.redact(text) == text
        assert KNOWING.redact(text) == text


@pytest.mark.parametrize(("line", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_redacting_twice_changes_nothing_more(line: str, secret: str) -> None:
    once = PLAIN.redact(line)
    assert PLAIN.redact(once) == once


@pytest.mark.parametrize(("line", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_a_secret_cut_at_any_place_is_still_hidden(line: str, secret: str) -> None:
    text = f"see {line} and on"
    whole = PLAIN.redact(text)
    assert streamed(PLAIN, list(text)) == whole
    for cut in range(len(text)):
        assert streamed(PLAIN, [text[:cut], text[cut:]]) == whole


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
    ]
    for spelling in spellings:
        assert KNOWING.redact(f"<{spelling}>") == f"<{MARK}>", spelling
        assert streamed(KNOWING, list(f"<{spelling}>")) == f"<{MARK}>"


@pytest.mark.parametrize("value", KNOWN)
def test_a_known_value_is_hidden_inside_base64(value: str) -> None:
    spellings = [
        *(base64.b64encode(b"x" * lead + value.encode() + b"tail").decode()[3:-6] for lead in (3, 4, 5)),
        base64.urlsafe_b64encode(b"person:" + value.encode()).decode(),
    ]
    for spelling in spellings:
        text = f"<{spelling}>"
        shown = KNOWING.redact(text)
        assert MARK in shown, spelling
        assert streamed(KNOWING, list(text)) == shown


def test_a_known_value_that_cannot_be_encoded_is_hidden_as_it_is() -> None:
    value = "\udcff" + made_up(12)
    assert Redactor([value]).redact(f"<{value}>") == f"<{MARK}>"


def test_a_known_value_that_is_short_does_not_shred_text() -> None:
    assert Redactor(["k", "", "ollama"]).redact("skills of ollama") == "skills of ollama"


def test_a_known_value_shows_no_more_than_the_public_prefix_of_its_kind() -> None:
    value = "sk-" + "ant-" + "abcdefgh"
    assert Redactor([value]).redact(f"key {value}!") == "key sk-ant-[redacted]!"


def test_one_known_value_inside_another_hides_both() -> None:
    redactor = Redactor(["abcdefgh", "abcdefghijkl", "ijklmnop"])
    assert redactor.redact("(abcdefghijklmnop)") == f"({MARK})"
    assert streamed(redactor, list("(abcdefghijklmnop)")) == f"({MARK})"


def test_nested_data_is_redacted_by_name_and_by_shape() -> None:
    secret = SECRETS[0][0]
    value = {
        "a": [{"password": "hunter2", "n": 1.5}, (secret, None)],
        "token": made_up(20),
        "note": "fine",
        secret: True,
    }
    shown = PLAIN.redact_value(value)
    assert shown["a"][0] == {"password": MARK, "n": 1.5}
    assert shown["token"] == MARK
    assert shown["note"] == "fine"
    assert SECRETS[0][1] not in repr(shown)
    assert value["token"] == made_up(20)


@pytest.mark.parametrize(
    ("value", "hidden"),
    [
        (["mysql", "--password", "swordfish"], ["mysql", "--password", MARK]),
        (["mysql", "-pswordfish", "shop"], ["mysql", f"-p{MARK}", "shop"]),
        (["sshpass", "-p", "sword fish", "ssh"], ["sshpass", "-p", MARK, "ssh"]),
        (["curl", "-s", "-u", "bob:swordfish"], ["curl", "-s", "-u", f"bob:{MARK}"]),
        (["docker", "login", "-p", "swordfish"], ["docker", "login", "-p", MARK]),
        (["mkdir", "-p", "build", "-u", 5, None], ["mkdir", "-p", "build", "-u", 5, None]),
        ({"name": "DB_PASSWORD", "value": "swordfish"}, {"name": "DB_PASSWORD", "value": MARK}),
        ({"name": "LOG_LEVEL", "value": "swordfish"}, {"name": "LOG_LEVEL", "value": "swordfish"}),
        ({"MY_PASSWORD": "sp ace x"}, {"MY_PASSWORD": MARK}),
    ],
    ids=str,
)
def test_arguments_and_pairs_are_read_as_what_they_are(value: object, hidden: object) -> None:
    assert PLAIN.redact_value(value) == hidden


@pytest.mark.parametrize(("line", "secret"), SECRETS, ids=range(len(SECRETS)))
def test_a_secret_inside_encoded_data_is_hidden_at_every_depth(line: str, secret: str) -> None:
    inner = json.dumps({"role": "tool", "content": line})
    outer = json.dumps({"role": "assistant", "arguments": inner})
    for encoded, depth in ((inner, 1), (outer, 2)):
        for shown in (PLAIN.redact_json(encoded.encode()).decode(), PLAIN.redact_json(f"[{encoded}".encode()).decode()):
            spelling = secret
            for _ in range(depth):
                spelling = json.dumps(spelling)[1:-1]
            assert spelling not in shown
            assert MARK in shown


def test_encoded_data_stays_encoded_data() -> None:
    data = json.dumps(
        {"args": json.dumps({"password": "hunter2!"}), "text": f"a\n{SECRETS[2][0]}", "n": 2**63}
    ).encode()
    shown = PLAIN.redact_json(data)
    assert json.loads(json.loads(shown)["args"]) == {"password": MARK}
    assert SECRETS[2][1].encode() not in shown
    assert json.loads(shown)["n"] == 2**63
    innocent = b'{ "z": 1.0, "text": "a\\nb \\u0061" }'
    assert PLAIN.redact_json(innocent) is innocent
    hidden = b'{"text": "pass\\u0077ord=hunter2"}'
    assert b"hunter2" not in PLAIN.redact_json(hidden)


@pytest.mark.parametrize("broken", [b'{"password": "hunter2!"', b"\xff password=hunter2 \xfe", b"[" * 100_000])
def test_what_is_not_json_is_redacted_as_text(broken: bytes) -> None:
    shown = PLAIN.redact_json(broken)
    assert b"hunter2" not in shown
    assert shown[:1] == broken[:1]


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


PIECES = st.one_of(
    st.sampled_from([line for line, _ in SECRETS if len(line) < 400]),
    st.sampled_from([line for line in INNOCENT if len(line) < 400]),
    st.sampled_from(KNOWN),
    st.sampled_from(
        [
            *"=: \n\"'\\-_.@/&,;",
            made_up(64),
            made_up(70),
            "\n" + made_up(64, seed=8) + "\n",
            "&amp;",
            "MIIEpAIBAAKCAQEA",
            "token",
            "password=",
            "sk-",
            "Bearer ",
            "://",
            "-----BEGIN ",
            "eyJ",
            "İ",
            "1",
            *(
                " is ",
                "password",
                " -u ",
                "mysql -p",
                "|\n  ",
                ">\n ",
                "\\n",
                '\\"',
                "''",
                "passphrase: ",
                "--password ",
            ),
            *("login a password ", "PASSWORD=", ";Password=", "pass=", 'auth": "', "Basic ", "a:b", "hunter2"),
        ]
    ),
    st.text(max_size=8),
)


@given(st.lists(PIECES, max_size=8), st.lists(st.integers(0, 400), max_size=6))
@settings(max_examples=400, deadline=None)
@example(["token", ": str", " = ", "'", made_up(20), "'"], [6, 9])
def test_chunks_make_no_difference(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    chunks = [text[a:b] for a, b in pairwise(edges)]
    assert streamed(KNOWING, chunks) == KNOWING.redact(text)


ALONE = [(line, secret) for line, secret in SECRETS if len(line) < 400 and len(secret) >= 7]


@given(st.sampled_from(ALONE), st.text(max_size=30), st.text(max_size=30), st.lists(st.integers(0, 500), max_size=8))
@settings(max_examples=400, deadline=None)
def test_no_planted_secret_survives_any_chunking(
    planted: tuple[str, str], before: str, after: str, cuts: list[int]
) -> None:
    line, secret = planted
    text = f"{before}\n{line}\n{after}"
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    shown = streamed(PLAIN, [text[a:b] for a, b in pairwise(edges)])
    assert shown == PLAIN.redact(text)
    assert secret not in shown.replace(before, "").replace(after, "")


@given(st.lists(PIECES, max_size=8))
@settings(max_examples=400, deadline=None)
def test_redacting_what_was_redacted_changes_nothing(pieces: list[str]) -> None:
    once = KNOWING.redact("".join(pieces))
    assert KNOWING.redact(once) == once


@given(st.lists(PIECES, max_size=6))
@settings(max_examples=200, deadline=None)
def test_what_is_held_back_is_bounded_and_known_values_never_show(pieces: list[str]) -> None:
    text = "".join(pieces)
    shown = KNOWING.redact(text)
    assert not any(value in shown for value in KNOWN)
    stream = KNOWING.stream()
    for character in text:
        stream.feed(character)
        assert stream.held <= 1_400


def test_ordinary_text_is_hardly_held_back() -> None:
    stream = KNOWING.stream()
    for character in "The report says that nothing was found, and that is that. " * 20:
        stream.feed(character)
        assert stream.held <= 4


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
    made_up(40)[:39],
    "İ",
    "--token-",
    "password=a&",
    "password=a1b2c3,",
    made_up(64) + "\n",
    made_up(64) + "\nx\n",
    "src/a-1-" + made_up(70) + "\n",
    made_up(63) + " ",
    "MII",
    "-1-2",
    "password is ",
    "password for a b ",
    "passphrase: a ",
    "password: |\n  ",
    "password: |\\n  a",
    "password=\n",
    "mysql -p",
    " -u a:",
    "password='it''",
    "password='a\\\\'",
    "login a password ",
    ";Password=a ",
    "auth=",
    "Basic QUJD",
]


@pytest.mark.parametrize("piece", HOSTILE, ids=range(len(HOSTILE)))
def test_work_grows_with_the_text_and_no_faster(piece: str) -> None:
    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        start = time.thread_time()
        KNOWING.redact(text)
        return time.thread_time() - start

    cost(1_000)
    small = min(cost(20_000) for _ in range(3))
    assert min(cost(160_000) for _ in range(2)) <= 40 * max(small, 0.001)


@pytest.mark.parametrize("prefix", ["", "{n:6}\t", "notes.txt:{n}:", "src/a.pem-{n}-"])
def test_a_private_key_is_hidden_however_a_tool_shows_its_lines(prefix):
    lines = ["MIIE" + "aB3" * 20, "Qk9" * 21, "zZ0" * 21, "9xY="]
    block = ["-----BEGIN PRIVATE KEY-----", *lines, "-----END PRIVATE KEY-----"]
    shown = "".join(f"{prefix.format(n=number)}{line}\n" for number, line in enumerate(block, 1))
    assert not [line for line in lines[:3] if line in Redactor().redact(shown)]


@given(st.lists(st.sampled_from([*sorted(finder()[1]), "to", "ke", "n", "_", "-", "s", "pass", " "]), max_size=8))
def test_the_quick_look_and_the_thorough_one_agree_on_whether_anything_is_there(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert (hint().search(text) is None) == (finder()[0].search(text) is None)


@given(
    st.lists(
        st.sampled_from(
            [
                *sorted({trigger for shape in shapes() for trigger in shape.triggers}),
                *(
                    "PASSWORD",
                    "Secret",
                    "\u212a",
                    "\u0130",
                    "\u017f",
                    "\udc80",
                    "\n",
                    "ä",
                    "=",
                    ":",
                    " ",
                    "key",
                    "to",
                    "ap",
                ),
            ]
        ),
        max_size=6,
    )
)
@example(["to", "\u212a", "en="])
@example(["ap", "\u0130", "key="])
def test_the_first_look_misses_nothing_that_may_start_a_secret(pieces: list[str]) -> None:
    text = "".join(pieces)
    folded = text.replace("\u0130", "I").lower()
    starts = [
        trigger
        for shape in shapes()
        for trigger in shape.triggers
        if re.search(
            re.escape(trigger) + (rf"(?![^{FOLLOW_NAME}])" if trigger in names() else ""),
            folded if shape.folded else text,
        )
    ]
    assert may_start_secret(text) or not starts


@pytest.mark.parametrize("text", ["token: x", "A TOKEN", "ghp_", "\\u0074oken", "\udc80"])
def test_the_first_look_stops_at_what_may_start_a_secret(text: str) -> None:
    assert may_start_secret(text)


@pytest.mark.parametrize("text", ["The report says that nothing was found in src/a.py.", "tokens: x", "GHP_", ""])
def test_the_first_look_passes_other_texts_by(text: str) -> None:
    assert not may_start_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        *(f"key{before}sk-proj-{made_up(40, seed=3)}" for before in ("\\u003d", "\\x3d", "\\u003D", "\\\\u003d")),
        *(f"{before}sk-ant-api03-{made_up(40, seed=4)}" for before in ("x", "9", "apiKey")),
        *(f"token{prefix}{made_up(36, seed=5)}" for prefix in ("ghp_", "ghs_", "github_pat_", "glpat-", "xoxb-")),
    ],
)
def test_a_token_is_hidden_that_stands_right_behind_an_escape_or_a_letter(text: str) -> None:
    shown = PLAIN.redact(text)
    assert shown.endswith(MARK)
    assert text.startswith(shown.removesuffix(MARK))
    for cut in range(len(text)):
        assert streamed(PLAIN, [text[:cut], text[cut:]]) == shown


@pytest.mark.parametrize(
    "text",
    [
        "task-admin-dashboard-v2-of-2024",
        "desk-proj-alpha-2024-planning",
        "risk-ant-colony-optimization-v2",
        "xghp_Short1",
    ],
)
def test_a_word_that_ends_as_a_prefix_begins_is_no_token(text: str) -> None:
    assert PLAIN.redact(text) == text


@pytest.mark.parametrize("name", ["SECRET_KEY", "SECRET-KEY", "SECRETKEY", "CREDENTIALS", "API_KEY", "PASSWORD"])
@pytest.mark.parametrize("length", range(3, 15))
def test_a_name_is_seen_whole_however_near_it_stands_to_the_one_before(name: str, length: int) -> None:
    value = made_up(16, seed=8)
    text = f"DB_PASS={made_up(length, seed=9)}\n{name}={value}\n"
    assert value not in PLAIN.redact(text)
    assert streamed(PLAIN, list(text)) == PLAIN.redact(text)


@given(st.integers(0, 99_000), st.integers(1, 3_000), st.integers(0, 40))
@settings(max_examples=60)
def test_a_known_value_may_be_a_whole_file(start: int, length: int, before: int) -> None:
    chunks = ["x" * before + A_FILE[:start], A_FILE[start : start + length], A_FILE[start + length :]]
    assert streamed(KNOWING_A_FILE, chunks) == "x" * before + MARK


@pytest.mark.parametrize("joint", ["&", "&amp;", ";", ","])
def test_the_next_name_ends_a_value_and_is_shown(joint: str) -> None:
    text = f"?password=hunter2{joint}user=bob&x=1"
    assert PLAIN.redact(text) == f"?password={MARK}{joint}user=bob&x=1"
    for cut in range(len(text)):
        assert streamed(PLAIN, [text[:cut], text[cut:]]) == PLAIN.redact(text)


def test_around_lines_from_inside_a_key_all_is_shown() -> None:
    lines = [made_up(64, seed=line) for line in range(20, 23)]
    text = "".join(["a.txt:1:before\n", *(f"a.txt:{n}:{line}\n" for n, line in enumerate(lines, 2)), "b.txt:9:after"])
    assert PLAIN.redact(text) == f"a.txt:1:before\na.txt:2:{MARK}\nb.txt:9:after"
