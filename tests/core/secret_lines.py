"""Lines that hold a made-up secret and lines that only look as if they did; nothing here ever opened a door."""

from __future__ import annotations

import base64
import random

_LETTERS = "qZ7mK2xW9bR4tY6nH3vD8cJ5pL1sF0gAeUiOoEaBhTzXjMwNdPyQrVkCfGuSlI"


def made_up(length: int, alphabet: str = _LETTERS, seed: int = 7) -> str:
    """A fixed text of this length that looks drawn at random."""
    drawn = random.Random(seed)
    return "".join(drawn.choice(alphabet) for _ in range(length))


UPPER = "Q7MK2XW9BR4TY6NH3VD8CJ5PL1SF0GA"
HEX = "0a1b2c3d4e5f6789"
WORD = made_up(24)
FIRST_LINES = (
    "MIIEvQIBADANBgkqhkiG", "MIIEpAIBAAKCAQEA", "MIICXAIBAAKBgQ", "MIIFLTBXBgkqhkiG9w0BBQ0w", "MHcCAQEEI",
    "MIGkAgEBBD", "MIGHAgEAMBMGByqGSM49", "MC4CAQAwBQYDK2VwBCIEI", "b3BlbnNzaC1rZXktdjEAAAAA",
)  # fmt: skip
"""What private keys begin with, whoever they belong to."""
PEM_LINES = [made_up(64, seed=line) for line in range(4)] + [made_up(10) + "=="]


def _pem(kind: str = "RSA ", newline: str = "\n") -> str:
    begin, end = f"-----BEGIN {kind}PRIVATE " + "KEY-----", f"-----END {kind}PRIVATE " + "KEY-----"
    return newline.join([begin, *PEM_LINES, end])


def _within(numbered: str, length: int = 64, count: int = 3) -> tuple[str, str]:
    """Lines from inside a key as a tool shows them, and one of them."""
    lines = [made_up(length, seed=line) for line in range(40, 40 + count)] + [made_up(22, seed=9) + "=="]
    return "\n".join(numbered.format(n=n) + line for n, line in enumerate(lines, 7)), lines[count - 1]


def _jwt() -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(b'{"sub":"made-up","n":1}').decode().rstrip("=")
    return f"{head}.{body}.{made_up(43)}"


def _prefixed(prefix: str, length: int, alphabet: str = _LETTERS) -> tuple[str, str]:
    secret = made_up(length, alphabet)
    return prefix + secret, secret


def secret_lines() -> list[tuple[str, str]]:
    """(line, the part of it that must not be seen)."""
    prefixed = [
        _prefixed("sk-" + "ant-api03-", 90),
        _prefixed("sk-" + "proj-", 48),
        _prefixed("sk-", 48),
        _prefixed("sk-" + "or-v1-", 64, HEX),
        _prefixed("sk-" + "svcacct-", 40),
        _prefixed("sk_" + "live_", 24),
        _prefixed("AK" + "IA", 16, UPPER),
        _prefixed("AS" + "IA", 16, UPPER),
        _prefixed("gh" + "p_", 36),
        _prefixed("gh" + "o_", 36),
        _prefixed("gh" + "s_", 36),
        _prefixed("github" + "_pat_", 60),
        _prefixed("xox" + "b-", 40),
        _prefixed("xox" + "p-", 40),
        _prefixed("xox" + "a-", 30),
        _prefixed("AI" + "za", 35),
        _prefixed("h" + "f_", 34),
        _prefixed("gl" + "pat-", 20),
        _prefixed("np" + "m_", 36),
        _prefixed("gs" + "k_", 40),
        _prefixed("xa" + "i-", 40),
        _prefixed("tv" + "ly-", 32),
        _prefixed("ya" + "29.", 60),
        _prefixed("hv" + "s.", 30),
        _prefixed("pyp" + "i-Ag", 60),
        _prefixed("dop_" + "v1_", 64, HEX),
        _prefixed("r8" + "_", 37),
    ]
    lines = [(f"using {text} from now on", secret) for text, secret in prefixed]
    jwt, pem = _jwt(), _pem()
    body = PEM_LINES[0]
    lines += [
        (f"key={prefixed[0][0]}", prefixed[0][1]),
        (f'{{"key":"{prefixed[0][0]}"}}', prefixed[0][1]),
        (f"a\\n{prefixed[2][0]}\\nb", prefixed[2][1]),
        (f"q=1%3D{prefixed[8][0]}", prefixed[8][1]),
        (f"\x1b[32m{prefixed[8][0]}\x1b[0m", prefixed[8][1]),
        (f"https://{prefixed[8][0]}@host.test/x.git", prefixed[8][1]),
        (f"({prefixed[6][0]})", prefixed[6][1]),
        (f"Cookie: session={jwt}", jwt[12:]),
        (f"{jwt}", jwt[12:]),
        (f"Authorization: Bearer {WORD}", WORD),
        (f"authorization: bearer {WORD}", WORD),
        (f'"Authorization": "Bearer {jwt}"', jwt[12:]),
        (f"-H 'Authorization: token {WORD}'", WORD),
        (f"Authorization: Basic {base64.b64encode(b'person:made-up-pass').decode()}", "cGVyc29u"),
        (f"Proxy-Authorization: Basic {base64.b64encode(b'person:made-up-pass').decode()}", "cGVyc29u"),
        (f"X-Api-Key: {WORD}", WORD),
        (pem, body),
        (_pem("EC "), body),
        (_pem("OPENSSH "), body),
        (_pem(""), body),
        (_pem("ENCRYPTED "), PEM_LINES[-1]),
        (_pem(newline="\\n"), PEM_LINES[-1][:10]),
        (_pem(newline=" "), PEM_LINES[2]),
        (_pem(newline='\\n" +\n  "'), PEM_LINES[3]),
        ("\n".join(_pem().split("\n")[:3]), PEM_LINES[1]),
        _within(""),
        _within("", 70),
        _within("{n}:", count=1),
        (f'{{"output": "{_within("", count=1)[0]}"}}', _within("", count=1)[1]),
        _within("conf/server key.txt:{n}:".replace(" ", "-")),
        _within("conf/notes-{n}-", 70),
        _within("{n:6}\t"),
        _within("  {n}: "),
        _within('    "'),
        (_within("")[0].replace("\n", "\\n"), _within("")[1]),
        (_within("")[0].replace("\n", "\r\n"), _within("")[1]),
        *((f"notes.txt:2:{first}{made_up(64 - len(first))}", made_up(64 - len(first))) for first in FIRST_LINES),
        (f"{FIRST_LINES[0]}{made_up(44)}\n{made_up(64, seed=8)}", made_up(64, seed=8)),
        ("password=hunter2", "hunter2"),
        ("password: Tr0ub4dor&3xyz", "Tr0ub4dor&3xyz"),
        ("password: ab&12345", "ab&12345"),
        ("DB_PASSWORD=ab12cd,ef34;gh56&ij78", "ab12cd,ef34;gh56&ij78"),
        ("password: correct&horse&battery", "correct&horse&battery"),
        ("password=x7$k9Z(q[w3", "x7$k9Z(q[w3"),
        (f"password={made_up(61)}&{made_up(80, seed=3)}", made_up(80, seed=3)),
        ("https://host.test/?password=a1&b2c3d4&user=bob", "a1&b2c3d4"),
        (f"token={WORD}&{WORD}", f"{WORD}&{WORD}"),
        ("password = 'hunter2'", "hunter2"),
        ("passwd: hunter22", "hunter22"),
        ('{"password": "hunter2!"}', "hunter2!"),
        ('{\\"password\\": \\"hunter2!\\"}', "hunter2!"),
        ("DB_PASSWORD=c0rrecthorse", "c0rrecthorse"),
        ('export DB_PASSWORD="correcthorsebattery"', "correcthorsebattery"),
        ("PGPASSWORD=Tr0ub4dor psql", "Tr0ub4dor"),
        ("dbPassword: 'Tr0ub4dor&3'", "Tr0ub4dor&3"),
        ("pwd='Tr0ub4dor&3'", "Tr0ub4dor&3"),
        ("passphrase = 'one two three four'", "one two three four"),
        ("password: str = 'Tr0ub4dor'", "Tr0ub4dor"),
        ("config['password'] = 'Tr0ub4dor'", "Tr0ub4dor"),
        ("mysql --password=Tr0ub4dor -u root", "Tr0ub4dor"),
        ("tool --password Tr0ub4dor!9 run", "Tr0ub4dor!9"),
        (f"tool --api-key {WORD} run", WORD),
        ("<password>Tr0ub4dor9</password>", "Tr0ub4dor9"),
        (f"api_key={WORD}", WORD),
        ("api_key=abcdef123456", "abcdef123456"),
        ("apikey: abcdef123456", "abcdef123456"),
        (f"OPENAI_API_KEY={WORD}", WORD),
        (f'"apiKey": "{WORD}"', WORD),
        (f"secret={WORD}", WORD),
        (f"client_secret: {WORD}", WORD),
        (f"aws_secret_access_key = {made_up(40)}", made_up(40)),
        (f"token={WORD}", WORD),
        (f"https://host.test/hook?token={WORD}&x=1", WORD),
        (f"https://host.test/hook?x=1&access_token={WORD}#y", WORD),
        (f'{{"refresh_token":"{WORD}"}}', WORD),
        (f"const token: string = '{WORD}';", WORD),
        (f"SECRET_KEY_BASE={made_up(64, HEX)}", made_up(64, HEX)),
        (f"AccountKey={made_up(60)}==;Endpoint=x", made_up(60)),
        ("postgres://app:Tr0ub4dor@db.test:5432/x", "Tr0ub4dor"),
        ("redis://:hunter2@cache.test:6379", "hunter2"),
        ("https://person:p@ss@host.test/", "p@ss"),
        (f"https://{made_up(32, HEX)}@errors.test/1", made_up(32, HEX)),
        ("amqp://guest:guest@queue.test", ":guest@"),
        (f'password="{made_up(300)}"', made_up(300)[200:]),
        *_quoted_lines(),
        *_later_lines(),
        *_command_lines(),
        *_told_lines(),
        *_pairs(),
    ]
    return lines


AWS_ID, AWS_SECRET = "AKIA" + "IOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYEXAMPLEKEY"
"""The pair that manuals show: it must be hidden like any other."""


def _quoted_lines() -> list[tuple[str, str]]:
    """Values with spaces and quotes in them."""
    return [
        ('MY_PASSWORD="sp ace x"', "sp ace x"),
        ("password='it''s x9 here'", "s x9 here"),
        ("password='it\\'s x9 here'", "s x9 here"),
        ("password='it'\\''s x9 here'", "s x9 here"),
        ("password='it'\"'\"'s x9 here'", "s x9 here"),
        ('password="say \\"hi\\" x9"', 'hi\\" x9'),
        ('password="say ""hi"" x9"', 'hi"" x9'),
        ('{\\"password\\": \\"sp ace x\\"}', "sp ace x"),
        ('{\\"password\\": \\"say \\\\\\"hi\\\\\\" x9\\"}', " x9"),
        ('password = b"Tr0ub4dor"', "Tr0ub4dor"),
        ('password = """Tr0ub4dor"""', "Tr0ub4dor"),
        ('PASSWORD="secretpw"', "secretpw"),
        ("passphrase: several words to end of line", "several words to end of line"),
        ("passphrase = correct horse battery staple", "correct horse battery staple"),
        ('"passphrase: correct horse battery staple"', "correct horse battery staple"),
        ("Server=x;User Id=sa;Password=hun ter2;Database=y", "hun ter2"),
        (f"password='{made_up(90)} {made_up(90, seed=3)}'", made_up(90, seed=3)),
    ]


def _later_lines() -> list[tuple[str, str]]:
    """Values on the line after their name."""
    return [
        ("password: |\n  hunter2", "hunter2"),
        ("password: |-\n    Tr0ub4dor\n    second9 line\nuser: bob", "second9 line"),
        ("password: >\n  several words", "several words"),
        ("password: >2-  # folded\n  hunter2 x", "hunter2 x"),
        ("password: |\\n  hunter2\\n  more9\\nuser: bob", "more9"),
        ("password=\nhunter2", "hunter2"),
        ("password:\n  hunter2", "hunter2"),
        ("password=\\nhunter2", "hunter2"),
        ("--password \\\n    hunter2", "hunter2"),
        ('"password":\n    "hunter2"', "hunter2"),
        ('"password"\n  : "hunter2"', "hunter2"),
        ('{\\"password\\":\\n  \\"hunter2\\"}', "hunter2"),
        (f"token:\n  {WORD}", WORD),
        (f"secret: >\n  {WORD}", WORD),
    ]


def _command_lines() -> list[tuple[str, str]]:
    """Values that commands are given."""
    return [
        ("curl -u bob:hunter2 https://host.test/", "hunter2"),
        ("curl -ubob:hunter2 https://host.test/", "hunter2"),
        ("curl -s -u 'bob:hun ter2' https://host.test/", "hun ter2"),
        ('curl --user "bob:hunter2" https://host.test/', "hunter2"),
        ("curl --user=bob:swordfish https://host.test/", "swordfish"),
        ("curl --proxy-user bob:hunter2 https://host.test/", "hunter2"),
        ('["curl", "-u", "bob:hunter2"]', "hunter2"),
        ('[\\"curl\\", \\"-u\\", \\"bob:hunter2\\"]', "hunter2"),
        ("mysql -u root -phunter2 shop", "hunter2"),
        ("mysqldump -p'hun ter2' shop", "hun ter2"),
        ("mysql --password hunter2", "hunter2"),
        ("mysql --password=swordfish", "swordfish"),
        ("mysql --password swordfish shop", "swordfish"),
        ('["mysql", "--password", "swordfish"]', "swordfish"),
        ("sshpass -p swordfish ssh host.test", "swordfish"),
        ("sshpass -phunter2 ssh host.test", "hunter2"),
        ("docker login -u bob -p hunter2 host.test", "hunter2"),
        ("redis-cli -a hunter2 ping", "hunter2"),
        ("ldapsearch -x -w hunter2", "hunter2"),
        ("openssl rsa -passin pass:hunter2", "hunter2"),
        ("CONFIG SET requirepass hunter2", "hunter2"),
        ("ALTER ROLE bob WITH PASSWORD 'swordfish'", "swordfish"),
        ("CREATE USER bob IDENTIFIED BY 'hunter2'", "hunter2"),
        (f"aws configure set aws_secret_access_key {AWS_SECRET}", AWS_SECRET),
        (f"npm config set //host.test/:_authToken {WORD}", WORD),
    ]


def _told_lines() -> list[tuple[str, str]]:
    """Values that sentences tell."""
    return [
        ("password is hunter2", "hunter2"),
        ("The password is: hunter2.", "hunter2"),
        ("the password is: swordfish", "swordfish"),
        ("the old password was hunter2, I think", "hunter2"),
        ('The password is "correct horse"', "correct horse"),
        ("the password for the database is hunter2", "hunter2"),
        (f"The API key is {WORD}", WORD),
        (f"api key: {WORD}", WORD),
        (f"the token is {WORD}.", WORD),
    ]


def _pairs() -> list[tuple[str, str]]:
    """Names and values as files and headers have them."""
    login = base64.b64encode(b"person:made-up-pass").decode()
    return [
        (AWS_ID, AWS_ID[4:]),
        (f"AWS_SECRET_ACCESS_KEY={AWS_SECRET}", AWS_SECRET),
        (f"[default]\naws_access_key_id = {AWS_ID}\naws_secret_access_key = {AWS_SECRET}", AWS_SECRET),
        (f'{{"AccessKeyId": "{AWS_ID}", "SecretAccessKey": "{AWS_SECRET}"}}', AWS_SECRET),
        (f'{{\\"SecretAccessKey\\": \\"{AWS_SECRET}\\"}}', AWS_SECRET),
        ("PGPASSWORD=swordfish psql", "swordfish"),
        ("DB_PASS=swordfish", "swordfish"),
        ("pass: hunter2", "hunter2"),
        ('"db_pass": "hunter2!"', "hunter2!"),
        ("machine host.test login bob password hunter2", "hunter2"),
        ("machine host.test\n  login bob\n  password swordfish", "swordfish"),
        (f"//host.test/:_authToken={WORD}", WORD),
        (f"_auth={login}", login),
        (f'{{"auths": {{"host.test": {{"auth": "{login}"}}}}}}', login),
        (f"X-Auth: Basic {login}", login),
        ("https://host.test/?user=bob&password=swordfish", "swordfish"),
        (f"https://hooks.slack.com/services/{made_up(9, UPPER)}/{made_up(11, UPPER)}/{WORD}", WORD),
        (f"https://discord.com/api/webhooks/{made_up(18, '123456789')}/{made_up(68)}", made_up(68)),
        *(
            (f"using {prefix}{made_up(40)} now", made_up(40))
            for prefix in ("glptt-", "glsa_", "figd_", "sntrys_", "dp.pt.", "ATATT3", "ghr_", "whsec_")
        ),
    ]


def innocent_lines() -> list[str]:
    """Lines that must come through unchanged."""
    sha1, sha256, uuid = made_up(40, HEX), made_up(64, HEX), "123e4567-e89b-12d3-a456-426614174000"
    hashes = "\n".join(made_up(64, HEX, seed=line) for line in range(4))
    pixels = base64.b64encode(random.Random(3).randbytes(600)).decode()
    wrapped = {width: "\n".join(pixels[at : at + width] for at in range(0, 600, width)) for width in (64, 76)}
    image = base64.b64encode(bytes(range(256)) * 8).decode()
    return [
        f"commit {sha1}",
        f"sha256:{sha256}",
        f"id: {uuid}",
        f"{sha1[:12]} Fix the thing",
        f"index {sha1[:7]}..{sha1[7:14]}",
        f"data:image/png;base64,{image}",
        image,
        f"integrity sha512-{image[:86]}==",
        hashes,
        hashes.upper(),
        "\n".join(f"{sha}  file{n}.txt" for n, sha in enumerate(hashes.split("\n"))),
        wrapped[76],
        f"-----BEGIN CERTIFICATE-----\n{wrapped[64]}\n-----END CERTIFICATE-----",
        f"{'':6}1\t-----BEGIN CERTIFICATE-----\n{'':6}2\tMIIDdzCCAl+gAwIBAgIE{made_up(44)}\n{'':6}3\t{made_up(64)}",
        f"a picture:\niVBORw0KGgo{made_up(53)}\n{wrapped[64]}",
        f"one line alone\n{made_up(64)}\nand another\n{made_up(64, seed=8)}\nof these",
        f"{made_up(63)}\n{made_up(63, seed=8)}",
        f"{made_up(65)}\n{made_up(65, seed=8)}",
        "\n".join(["/".join(["internationalization"] * 3) + "/x"] * 3),
        f"MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A{made_up(32)}",
        f"MIIDdzCCAl+gAwIBAgIE{made_up(44)}",
        "a key begins with MIIEpAIBAAKCAQEA or b3BlbnNzaC1rZXktdjE",
        f"ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ{made_up(300)}",
        "x = 0xdeadbeefcafebabe",
        "f(password=password,user)",
        "https://host.test/?password=&user=bob",
        "password = getpass()",
        "password = getpass.getpass('Password: ')",
        "password = input()",
        "password: str",
        "password: Optional[str] = None",
        "token: str",
        "token = tokens[i + 1]",
        "token = next(stream)",
        "token=None",
        "token: str | None = None",
        "token = self.token",
        "api_key=api_key",
        "api_key=os.environ['API_KEY']",
        'api_key = os.getenv("OPENAI_API_KEY")',
        "password=$DB_PASSWORD",
        "password=${DB_PASSWORD}",
        "password={{ password }}",
        "password=<your password>",
        'api_key="YOUR_API_KEY"',
        "api_key=your-api-key-1234",
        'password: ""',
        '"password": null',
        '"token": {"type": "string"}',
        "max_tokens=4096",
        "max_token: 4096",
        '"input_tokens": 45000',
        "tokens: 123456",
        '"nextPageToken": "CAUQAB1234xyz9"',
        "if token == 'abc123def456':",
        "token != 'abc123def456'",
        "token_count = 5",
        "the password: please ask",
        "A secret: nobody knows",
        "Bearer tokens are sent in a header",
        "Bearer $TOKEN",
        "Authorization: Bearer ${TOKEN}",
        "Authorization: Bearer <token>",
        "authorization: required",
        "passwd: files systemd",
        "PWD=/home/person/project1",
        "secret: /run/secrets/db_1",
        "https://host.test/a:b@c",
        "http://localhost:8080/x@y",
        "git@host.test:person/repo1.git",
        "ssh://git@host.test/person/repo.git",
        "https://person@host.test/",
        "a://b:c d@e",
        "task-list-with-many-parts-2024-and-more",
        "risk-adjusted-return-2024-09-30-final",
        "the disk-usage-report-20240930-1",
        "sk-learn",
        "sk-folding-cube-container-wrapper",
        "class='sk-circle-fade-dot'",
        "npm_config_registry=x",
        "hf_hub_download()",
        "from hf_transfer import x",
        "ghp_",
        "AKIA",
        "xoxo-gossip-girl",
        "pip install pypi-simple",
        "eyJ is how JSON starts",
        '"-----BEGIN PRIVATE KEY-----" marks a key',
        "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZI\n-----END PUBLIC KEY-----",
        "def check_password(password: str, hash: str) -> bool:",
        "secret = hmac.new(key, digestmod=sha256)",
        "secret = sha256(data)",
        "token = base64.b64encode(raw)",
        "secret: Uint8Array",
        "secret: base64-encoded string",
        "token: gpt-4-turbo",
        "type='password'",
        "<label for='password'>Password</label>",
        'errors: {"password": "must be at least 8 characters"}',
        '"password": "Password"',
        '"password": "string"',
        "credentials: include",
        "secretName: db-credentials-v2",
        '"secret": "db-password-2024"',
        "access_key: Optional[AccessKey2]",
        "token := lexer.Next()",
        'PASSWORD = "CHANGE_PASSWORD"',
        "NOPASSWORD = 'no-password-required'",
        "https://user:pass@host.test:8080/path",
        "socks5h://<username>:<password>@proxy-host",
        "keyword=abc123def456",
        "monkey=abc123def456",
        "v1.2.3-rc4+build.5678",
        "2024-11-05T12:34:56.789012Z",
        "std::token::Kind2x4y8",
        *_innocent_code(),
        *_innocent_prose(),
    ]


def _innocent_code() -> list[str]:
    """Code and configuration that speaks of secrets and has none."""
    return [
        "if password:\n    hashed1",
        "if not self.password:\n    return None",
        "while token:\n    x2y4z6a8 = 1",
        "DB_PASSWORD=\nDB_HOST=localhost1",
        "password:\n  secretKeyRef:\n    name: db-pass1",
        "password: |\n  {{ .Values.password }}",
        "password: |\n  The password that is used for the database.",
        "password:\n    | string\n    | null",
        'password = ""',
        "password = ''",
        "password='',user=''",
        "password=None, token=None",
        "password=password",
        "PASSWORD=None",
        "PASSWORD=DB_PASSWORD",
        "PASSWORD = 'Password'",
        'password="Enter your password: "',
        'password="Forgot your password?"',
        '"password": "The passwords do not match"',
        '"password": "Mot de passe"',
        "getpass('Password: ')",
        "first_pass = v2beta1",
        "bypass=hunter2",
        "pass: bool",
        "def f(pass_: str) -> None:\n    pass",
        'headers["Authorization"] = f"Bearer {token}"',
        "auth=(user, password)",
        "auth: basic",
        '"auth": "none"',
        "auth = HTTPBasicAuth('user', secret)",
        "docker run -u 1000:1000 image",
        "docker run --user node:node image",
        "docker run --user=$(id -u):$(id -g) image",
        "curl -u $USER:$PASS https://host.test/",
        "curl -u USER:PASSWORD https://host.test/",
        "git push -u origin HEAD:refs/heads/main",
        "sudo -u bob ls",
        "date -u +%H:%M:%S",
        "mkdir -p build1/x && cp -p a b",
        "mysql -u root -p shop",
        "mysql -p$PASS shop",
        "docker run -p 8080:80 image",
        "ssh -p 2222 host.test",
        "tool --password PASSWORD --token TOKEN",
        "tool --password <password>",
        "--password TEXT  The password.",
        "the --password option is new",
        "SELECT password FROM users1",
        "Depends on: token, secret, password",
    ]


def _innocent_prose() -> list[str]:
    """Sentences and headings about secrets."""
    return [
        "password is required",
        "The password is wrong.",
        "the password is base64-encoded",
        "the password is sha256 hashed",
        "password was changed in 2024-11",
        "the password is at least 8 characters long",
        "the password is never stored",
        "the password for the user is asked for",
        "Password: ********",
        "Passphrase: leave empty for none",
        "passphrase: optional",
        "Enter passphrase for key '/home/bob/.ssh/id_rsa1':",
        "## Password: how it is stored",
        "the token is valid until 2024-11-05",
        "the secret is out",
        "a secret of the trade: patience",
        "Basic authentication is off",
        "Basic dGhpc2lzbm90",
        "Set the password to something long",
        "machine learning and password managers2go",
        "API key: required",
        "your password is: (see below)",
    ]
