"""Made-up secrets in every covered form, and lines that hold none; nothing here ever opened a door."""

from __future__ import annotations

import base64
import random

from deputy.core.redaction.vendors import SHAPES

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
DIGITS = "0123456789"
SYMBOLS = "!#$%*+-./:=?@^_|~(){}[]"
ALPHABETS = {
    "letters": LETTERS,
    "digits": DIGITS,
    "mixed": LETTERS + DIGITS,
    "symbols": LETTERS + DIGITS + SYMBOLS,
}
BASE64 = LETTERS + DIGITS + "+/"


def made_up(length: int, alphabet: str = LETTERS + DIGITS, seed: int = 7) -> str:
    """A text of this length, the same for the same seed."""
    drawn = random.Random(f"{seed}-{length}-{alphabet}")
    return "".join(drawn.choice(alphabet) for _ in range(length))


FORMS: dict[str, str] = {
    "name=value": "{name}={value}",
    "name=value in a query": "https://host.test/?a=1&{name}={value}&b=2",
    'name="value"': '{name}="{value}"',
    "name='value'": "export {name}='{value}'",
    'name = "value"': '{name} = "{value}"',
    "name: 'value'": "{name}: '{value}'",
    '"name": "value"': '{{"a": 1, "{name}": "{value}", "b": 2}}',
    "escaped once": '{{\\"{name}\\": \\"{value}\\"}}',
    "escaped twice": '{{\\\\\\"{name}\\\\\\": \\\\\\"{value}\\\\\\"}}',
    "'name' => 'value'": "'{name}' => '{value}',",
    "x['name'] = 'value'": "x['{name}'] = '{value}'",
    "name=`value`": "set {name}=`{value}` first",
    "`name=value`": "set `{name}={value}` first",
    "annotated": '{name}: str = "{value}"',
    "--name=value": "tool --{name}={value} run",
    "--name value": "tool --{name} {value} run",
    '--name "value"': 'tool --{name} "{value}" run',
    '"--name", "value"': '["tool", "--{name}", "{value}"]',
    '"name": ["value"]': '{{"{name}": ["{value}", "{value}"], "b": 2}}',
    "name and value as a pair": '[{{"name": "{name}", "value": "{value}"}}]',
    "an escaped pair": '{{\\"name\\": \\"{name}\\",\\n  \\"value\\": \\"{value}\\"}}',
    "a no-break space": "{name}:\u00a0'{value}'",
}
"""Forms of a value beside a name: all of them hide it whatever it looks like."""

NAMES = (
    "password",
    "DB_PASSWORD",
    "dbPassword",
    "PGPASSWORD",
    "token",
    "access_token",
    "api_key",
    "apiKey",
    "client_secret",
    "SECRET_KEY",
    "passphrase",
    "db_pass",
    "aws_secret_access_key",
    "credentials",
    "private-key",
)

HEADERS: dict[str, str] = {
    "Authorization: value": "Authorization: {value}",
    "Authorization: Bearer": "> Authorization: Bearer {value}",
    "authorization: bearer": "authorization: bearer {value}",
    "Authorization: Basic": "-H 'Authorization: Basic {value}'",
    "Proxy-Authorization": "Proxy-Authorization: Basic {value}",
    "Authorization in JSON": '{{"Authorization": "Bearer {value}"}}',
    "x-api-key": "x-api-key: {value}",
    "X-Auth-Token": 'curl -H "X-Auth-Token: {value}" host.test',
    "Private-Token": "PRIVATE-TOKEN: {value}",
    "Cookie": "Cookie: a=b; session={value}",
    "Set-Cookie": "Set-Cookie: sid={value}; Path=/",
}
COMMANDS: dict[str, str] = {
    "curl -u": "curl -s -u bob:{value} https://host.test/",
    "curl --user": 'curl --user "bob:{value}" https://host.test/',
    "curl -u as Grep shows it": "deploy.sh:12:curl -s -u bob:{value} https://host.test/",
    "curl -u in a diff": "+curl -s -u bob:{value} https://host.test/",
    "curl -u in a Makefile": "\t@curl -s -u bob:{value} https://host.test/",
    "curl -u beside a match of Grep": "deploy.sh-12-curl -s -u bob:{value} https://host.test/",
    "curl -u in a list": '["curl", "-s", "-u", "bob:{value}", "https://host.test/"]',
    "curl -sSu": "curl -sSu bob:{value} https://host.test/",
    "curl -sSu in a list": '["curl", "-sSu", "bob:{value}", "https://host.test/"]',
    "curl -u on the next line": "curl -s \\\n  -u bob:{value} \\\n  https://host.test/",
    "mysql -p in a diff": "-mysql -u root -p{value} shop",
    "a variable beside a match of Grep": "deploy.sh-12-DEPLOY_KEY={value}",
    "mysql -p": "mysql -u root -p{value} shop",
    "sshpass -p": "sshpass -p {value} ssh host.test",
    "docker login -p": "docker login -u bob -p {value} host.test",
    "redis-cli -a": "redis-cli -a {value} ping",
    "url": "postgres://app:{value}@db.test:5432/x",
    "url with escaped slashes": "postgres:\\/\\/app:{value}@db.test:5432\\/x",
    "url without a user": "redis://:{value}@cache.test",
    "?key=": "https://host.test/v1?key={value}",
    "&sig=": "https://host.test/v1?se=1&sig={value}&x=1",
    "url in JSON": r"postgres:\/\/app:{value}@db.test\/x",
    "_KEY=": "STRIPE_KEY={value}",
    "_PAT=": "export GITHUB_PAT={value}",
    "a no-break space": "password:\u00a0{value}",
    "smtp_pass=": "smtp_pass={value}",
    "dbpass=": "dbpass={value}",
    "--token": "--token {value}",
    "_auth=": "//host.test/:_auth={value}",
}


def vendor_keys() -> list[tuple[str, str]]:
    """One made-up key of each shape of the table that its literal, alphabet and length describe, by vendor."""
    return [
        (shape.vendor, shape.literal + made_up(max(shape.least, 24), _alphabet(shape.alphabet)))
        for shape in SHAPES
        if not shape.rest and not shape.before and shape.least
    ]


def _alphabet(characters: str) -> str:
    plain = characters.replace(r"\w", "A-Za-z0-9_").replace("\\", "")
    for span in ("A-Z", "a-z", "0-9", "a-f", "A-F"):
        if span in plain:
            plain = plain.replace(span, "".join(map(chr, range(ord(span[0]), ord(span[2]) + 1))))
    return plain.replace("-", "").replace("=", "").replace(".", "").replace("|", "").replace("@", "")


def odd_keys() -> list[tuple[str, str]]:
    """Keys that more than a literal and a length describe."""
    jwt = ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"made-up","n":1}', made_up(30).encode())
    )
    hexadecimal = "0123456789abcdef"
    return [
        ("JSON web token", jwt),
        *(("Telegram", f"{made_up(digits, DIGITS)}:AA{made_up(33)}") for digits in (8, 9, 10)),
        ("Mailchimp", made_up(32, hexadecimal) + "-us12"),
        ("Discord", f"M{made_up(23)}.{made_up(6)}.{made_up(30)}"),
        ("Azure", f"{made_up(3)}8Q~{made_up(34)}"),
        ("Terraform", f"{made_up(14)}.atlasv1.{made_up(60)}"),
        ("MaxMind", f"{made_up(6)}_{made_up(29)}_mmk"),
        ("Airtable", f"pat{made_up(14)}.{made_up(64, hexadecimal)}"),
        ("1Password", f"A3-{made_up(6, 'ABC123')}-{made_up(11, 'ABC123')}-ABC12-ABC12-ABC12"),
    ]


def private_key(prefix: str = "", newline: str = "\n", kind: str = "RSA ") -> tuple[str, list[str]]:
    """A private key block as a tool shows it, and its lines."""
    lines = [made_up(64, BASE64, seed=line) for line in range(4)] + [made_up(10, BASE64) + "=="]
    block = [f"-----BEGIN {kind}PRIVATE " + "KEY-----", *lines, f"-----END {kind}PRIVATE " + "KEY-----"]
    return newline.join(prefix.format(n=number) + line for number, line in enumerate(block, 1)), lines


def secret_lines() -> list[tuple[str, str]]:
    """Lines that hold a secret, with that secret: one of each form, header, command and vendor."""
    value = made_up(24)
    named = [(form.format(name=name, value=value), value) for form in FORMS.values() for name in NAMES[:6]]
    others = [(form.format(value=value), value) for form in (*HEADERS.values(), *COMMANDS.values())]
    keys = [(f"using {key} now", key[8:]) for _, key in (*vendor_keys(), *odd_keys())]
    block, lines = private_key()
    return [*named, *others, *keys, (block, lines[1])]
