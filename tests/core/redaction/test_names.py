"""Names of secrets, and the values of a process's variables that are hidden wherever they occur."""

import pytest
from tests.support.every_case import every_case

from deputy.core.redaction.names import LEAST_KNOWN, is_known_secret, is_secret_name, known_secrets

pytestmark = pytest.mark.rule("redact.where")


@every_case(
    ("name", "is_secret"),
    [
        ("PASSWORD", True),
        ("db_pass", True),
        ("dbPass2", True),
        ("bypass", False),
        ("compass", False),
        ("api_token", True),
        ("next_token", False),
        ("token", True),
        ("page-token", False),
        ("PWD", False),
        ("OLDPWD", False),
        ("_auth", True),
        ("auth", False),
        ("token_count", False),
        ("", False),
        ("123", False),
    ],
)
def test_a_name_of_a_secret_is_told_from_a_name_of_something_else(name, is_secret):
    assert is_secret_name(name) is is_secret


@every_case(
    ("variables", "secrets"),
    [
        ({"API_TOKEN": "abc"}, ("abc",)),
        ({"DEPLOY_KEY": "abc", "GITHUB_PAT": "def", "NPM_AUTH": "ghi"}, ("abc", "def", "ghi")),
        ({"KEY_FILE": "abc", "HOME": "/root"}, ()),
        ({"API_TOKEN": " Token "}, ()),
        ({"DATABASE_URL": "postgres://me:pass:word@host/db"}, ("pass:word",)),
        ({"URL": "https://host/a@b:c"}, ()),
        ({"URL": "https://me@host/a"}, ()),
        ({"URL": "https://host/"}, ()),
        ({"TEXT": "me:word@host"}, ()),
    ],
)
def test_secret_variables_and_passwords_of_addresses_are_known(variables, secrets):
    assert known_secrets(variables) == secrets


def test_a_known_value_is_hidden_unless_it_is_short_or_common():
    assert is_known_secret("k3" * (LEAST_KNOWN // 2))
    assert not is_known_secret("k3k3k3k")
    assert not is_known_secret("PostgreS")
    assert LEAST_KNOWN == 8
