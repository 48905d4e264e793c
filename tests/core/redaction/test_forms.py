"""Every covered form hides its value whatever it looks like; placeholders and code stay."""

from __future__ import annotations

import json

import pytest
from tests.core.redaction.samples import (
    ALPHABETS,
    BASE64,
    COMMANDS,
    FORMS,
    HEADERS,
    NAMES,
    made_up,
    odd_keys,
    private_key,
    secret_lines,
    vendor_keys,
)
from tests.support.every_case import every_case

from deputy.core.redaction import MARK, Redactor

PLAIN = Redactor()
LENGTHS = (8, 9, 12, 16, 20, 32, 33, 64)


PLACEHOLDERS = [
    "",
    "%s",
    "%(password)s",
    "${PASSWORD}",
    "$PASSWORD",
    "$(cat file)",
    "<password>",
    "{password}",
    "{{ password }}",
    "None",
    "null",
    "****",
    "...",
    "xxxxxxxx",
    "[redacted]",
    "[redacted OPENAI_API_KEY]",
    "password",
    "PASSWORD",
    "your-password",
    "self.password",
    "test_password",
    "{password!r}",
]


def shown(text: str) -> str:
    return PLAIN.redact(text)


@pytest.mark.rule("redact.simple")
@every_case("alphabet", ALPHABETS)
@every_case("form", FORMS)
def test_a_value_beside_a_name_is_hidden_whatever_it_looks_like(form: str, alphabet: str) -> None:
    for name in NAMES:
        for length in LENGTHS:
            value = made_up(length, ALPHABETS[alphabet]).strip("-:=.$%()[]{}?&")
            line = FORMS[form].format(name=name, value=value)
            assert value not in shown(line), line
            assert shown(line).startswith(line[: line.index(value)]), line


@pytest.mark.rule("redact.simple")
@every_case("alphabet", ["letters", "digits", "mixed"])
@every_case("form", [*HEADERS.values(), *COMMANDS.values()])
def test_a_value_in_a_header_a_url_or_a_command_is_hidden(form: str, alphabet: str) -> None:
    for length in LENGTHS:
        value = made_up(length, ALPHABETS[alphabet])
        text = f"first\r\n\t{form.format(value=value)}\nlast"
        assert value not in shown(text)
        # As JSON in a text, and that in JSON again: the line ends before it are escaped.
        assert value not in shown(json.dumps({"content": text}))
        assert value not in shown(json.dumps(json.dumps([text])))


@pytest.mark.rule("redact.simple")
@every_case(
    "place", ["{}", "using {} now", "x={}", '"{}"', "a\\n{}", "https://{}@host.test", "q=1%3D{}", "\x1b[32m{}\x1b[0m"]
)
def test_a_key_of_a_vendor_is_hidden_wherever_it_stands(place: str) -> None:
    for vendor, key in [*vendor_keys(), *odd_keys()]:
        text = place.format(key)
        assert key[len(key) // 3 :] not in shown(text), vendor
        assert MARK in shown(text), vendor


def test_the_table_has_the_vendors_that_are_used_most() -> None:
    assert len({vendor for vendor, _ in [*vendor_keys(), *odd_keys()]}) >= 100


@pytest.mark.rule("redact.simple")
@every_case("kind", ["RSA ", "EC ", "OPENSSH ", "ENCRYPTED ", ""])
@every_case(
    ("prefix", "newline"),
    [
        ("", "\n"),
        ("", "\r\n"),
        ("", "\\n"),
        ("", "\\\\n"),
        ("", " "),
        ("{n:6}\t", "\n"),
        ("{n} ", " "),
        ("keys/server.pem:{n}: ", " "),
        ("{n:6}→", "\n"),
        ("  {n}: ", "\n"),
        ("keys/server.pem:{n}:", "\n"),
        ("src/a.pem-{n}-", "\n"),
        ("{n:6}\tkeys/server.pem:{n}:", "\n"),
        ("{n:6}\\u2192", "\\n"),
        ("    ", "\n"),
        ("", '\\n" +\n  "'),
        ("> ", "\n"),
    ],
)
def test_a_private_key_block_is_hidden_however_a_tool_shows_it(kind: str, prefix: str, newline: str) -> None:
    block, lines = private_key(prefix, newline, kind)
    text = f"before\n{block}\nafter"
    assert not [line for line in lines if line.rstrip("=") in shown(text)]
    assert shown(text).startswith("before\n")
    assert shown(text).endswith(f"{MARK}\nafter")


@pytest.mark.parametrize("prefix", ["", "{n} "])
def test_an_encrypted_key_is_hidden_when_its_line_ends_became_spaces(prefix: str) -> None:
    key = [made_up(64, BASE64, seed=line) for line in range(4)]
    head = ["-----BEGIN RSA PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", f"DEK-Info: AES-256-CBC,{'0A' * 16}"]
    for length in range(64):
        comment = ("x " * 32)[:length]
        block = [*head, f"Comment: {comment}", *key, "-----END RSA PRIVATE KEY-----"]
        text = " ".join(prefix.format(n=number) + line for number, line in enumerate(block, 1))
        assert shown(f"bad input: {text} after") == f"bad input: {prefix.format(n=1)}{MARK} after"


def test_a_private_key_that_is_cut_off_is_hidden_as_far_as_it_goes() -> None:
    block, lines = private_key()
    assert shown(f"{block[:200]} …\nand the next words") == f"{MARK} …\nand the next words"
    assert lines[0] not in shown(block[:200])


@every_case(
    ("text", "hidden"),
    [
        ("?password=hunter2&user=bob", f"?password={MARK}&user=bob"),
        ("?password=hunter2&amp;user=bob", f"?password={MARK}&amp;user=bob"),
        ("Server=x;Password=hunter2;Database=y", f"Server=x;Password={MARK};Database=y"),
        ("f(password=hunter2, user=bob)", f"f(password={MARK}, user=bob)"),
        ("password=ab12cd,ef34;gh56&ij78", f"password={MARK}"),
        ("password='it''s x9 here' x", f"password='{MARK}' x"),
        ("password='it'\\''s x9 here' x", f"password='{MARK}' x"),
        ('password="say \\"hi\\" x9" x', f'password="{MARK}" x'),
        ('{\\"password\\": \\"say \\\\\\"hi\\\\\\" x9\\"} x', f'{{\\"password\\": \\"{MARK}\\"}} x'),
        ('password = """two\nlines""" x', f'password = """{MARK}""" x'),
        ("PASSWORD=abc\\nUSER=bob", f"PASSWORD={MARK}\\nUSER=bob"),
        ('-H "X-Api-Key: abc def" x', f'-H "X-Api-Key: {MARK} def" x'),
        ('Authorization: Digest username="a", response="b"\nx', f"Authorization: Digest {MARK}\nx"),
        ("Cookie: a=b; c=d\nx", f"Cookie: {MARK}\nx"),
        ("tool --token abc --user bob", f"tool --token {MARK} --user bob"),
        ("aws_secret_access_key = " + made_up(40), f"aws_secret_access_key = {MARK}"),
        ('"auths": {"h": {"auth": "dXNlcjpwYXNz"}}', f'"auths": {{"h": {{"auth": "{MARK}"}}}}'),
        ("token: abc-def-123", f"token: {MARK}"),
        ("secret = " + made_up(20) + "1a", f"secret = {MARK}"),
        ("Authorization=Bearer abc x\ny", f"Authorization=Bearer {MARK}\ny"),
        ("--Authorization: Basic ab:c x\ny", f"--Authorization: Basic {MARK}\ny"),
        ("a.sh-12---password hunter2 z", f"a.sh-12---password {MARK} z"),
        ('{"--password": "hunter2"}', f'{{"--password": "{MARK}"}}'),
        ("--client-secret: The one to use", "--client-secret: The one to use"),
        ("form--password {", "form--password {"),
        ("> authorization: abcdefgh\ny", f"> authorization: {MARK}\ny"),
        ("[('authorization', 'Bearer abc')]", f"[('authorization', 'Bearer {MARK}')]"),
        ("(b'x-api-key', b'abc')", f"(b'x-api-key', b'{MARK}')"),
        ("tool --api-key abc", f"tool --api-key {MARK}"),
        ("curl -b 'a=abc; b=c' x", f"curl -b 'a={MARK}' x"),
        ('{"password": ["a b", "c"], "x": ["d"]}', f'{{"password": ["{MARK}"], "x": ["d"]}}'),
        ('{"name": "TOKEN", "value": "a b", "x": 1}', f'{{"name": "TOKEN", "value": "{MARK}", "x": 1}}'),
        ("GITHUB_PAT='a b' x", f"GITHUB_PAT='{MARK}' x"),
        ("http -a bob:abc x", f"http -a bob:{MARK} x"),
        ("?x=1&password%3Dabc", f"?x=1&password%3D{MARK}"),
        ("password\\u003dabc\\u0026x", f"password\\u003d{MARK}\\u0026x"),
        ("password='abc'def x", f"password='{MARK}"),
        ("don't set password='abc'", f"don't set password='{MARK}'"),
        ("password=$'a b' x", f"password=$'{MARK}' x"),
        ('password = @"a b" x', f'password = @"{MARK}" x'),
        ('password = L"a b" x', f'password = L"{MARK}" x'),
        (f"password{' ' * 40}={' ' * 90}'a b' x", f"password{' ' * 40}={' ' * 90}'{MARK}' x"),
        ('let password: &str = "a b";', f'let password: &str = "{MARK}";'),
        ('char password[64] = "a b";', f'char password[64] = "{MARK}";'),
        ('<add key="password" value="a b"/>', f'<add key="password" value="{MARK}"/>'),
        ("- name: TOKEN\n  value: 'a b'\n", f"- name: TOKEN\n  value: '{MARK}'\n"),
        ("pwd=hunter2 x", f"pwd={MARK} x"),
        ("password=/hunter2 x", f"password={MARK} x"),
        ('password="say ""hi"" x9" x', f'password="{MARK}" x'),
        (f"NRJS-{made_up(19, '0123456789abcdef')} x", f"{MARK} x"),
        ("password=mypassword x", f"password={MARK} x"),
        ("C:\\token=abc x", f"C:\\token={MARK} x"),
        ("password=<b>hunter2</b>", f"password={MARK}</b>"),
        ("password=${{ env.X }}hunter2secretA1", f"password={MARK}"),
        ("https://h/x?key=<a b>S3cretValue99", f"https://h/x?key={MARK}"),
        ("mysql -p$(x y)S3cret9", f"mysql -p{MARK}"),
        ("https://bob:p@ss@host.test/", f"https://bob:{MARK}@host.test/"),
        (f"https://api.telegram.org/bot1234567890:AA{made_up(33)}/getMe", f"https://api.telegram.org/bot{MARK}/getMe"),
    ],
)
def test_the_value_is_hidden_and_nothing_else(text: str, hidden: str) -> None:
    assert shown(text) == hidden


@pytest.mark.rule("redact.simple")
@pytest.mark.parametrize(
    "form", ["password={}", 'password="{}"', "password: '{}'", "--password={}", '{{"password": "{}"}}']
)
def test_a_placeholder_or_a_repetition_of_the_name_stays(form: str) -> None:
    for value in PLACEHOLDERS:
        text = form.format(value)
        assert shown(text) == text


@pytest.mark.rule("redact.simple")
@every_case(
    "line",
    [
        "password = getpass()",
        "token = self.lexer.next(1)",
        "token: str",
        "authorization: str",
        "def f(authorization: Header, x): ...",
        "password: |\n",
        "def f(password: str, token: Optional[str] = None) -> bool:",
        "token: dict[str, int] = {}",
        "secret = sha256",
        "token = 15",
        "token = tokens[0]",
        "const token: string;",
        "token := lexer.Next()",
        "if token == 'x':",
        "password: required, at least 8 characters",
        "the password is hunter2",
        "The token is required.",
        "password:",
        "max_tokens=100",
        "next_page_token=abc",
        "PWD=/home/bob",
        "keyword=abc123def456",
        "monkey=abc123def456",
        "first_pass=abc",
        "'password=' + value + '&x=1'",
        'f"token={token}"',
        '"Basic %s" % auth',
        "image: postgres:16",
        "https://host.test:8080/x@y",
        "git@host.test:person/repo1.git",
        "http://user:password@host.test/",
        "docker run -u 1000:1000 image",
        "NUMBER_PAT = re.compile(r'[0-9]+')",
        '{"name": "level", "value": "abc"}',
        "the -menu x:y option",
        "mkdir -p build1/x",
        "mysql -u root -p shop",
        "git push -u origin HEAD:refs/heads/main",
        "task-list-with-many-parts-2024-and-more",
        "sk-learn and hf_hub_download(), npm_config_registry=x",
        "commit 0a1b2c3d4e5f60718293a4b5c6d7e8f901234567",
        '"-----BEGIN PRIVATE KEY-----" marks a key',
        "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ\n-----END CERTIFICATE-----",
    ],
)
def test_code_and_prose_stay(line: str) -> None:
    assert shown(line) == line
    assert shown(f"before {line}\nafter") == f"before {line}\nafter"


def test_a_secret_inside_encoded_data_is_hidden_at_every_depth() -> None:
    for line, secret in secret_lines():
        inner = json.dumps({"role": "tool", "content": line})
        outer = json.dumps({"role": "assistant", "arguments": inner})
        for encoded in (inner, outer, f"[{inner}", f"[{outer}"):
            hidden = PLAIN.redact_json(encoded.encode()).decode()
            assert secret not in hidden
            assert MARK in hidden
