import tomllib

import pytest
from tests.support.every_case import every_case

from deputy.config.toml_edit import CannotEdit, with_values, without_table

FILE = """\
# mine
[models]
default = "old"   # keep me

[models.aliases]
fast = "x:y"
[limits]
concurrency = 2
"""


def test_a_value_is_replaced_and_everything_else_stays():
    assert with_values(FILE, ["models"], {"default": "new"}) == FILE.replace('"old"', '"new"')


def test_a_missing_key_is_added_to_its_table():
    changed = with_values(FILE, ["limits"], {"repairs": 1})
    assert changed == FILE.replace("[limits]\n", "[limits]\nrepairs = 1\n")


def test_a_missing_table_is_added_with_its_comment():
    added = '\n[providers."my box"]\n# A server.\nbase_url = "http://x/v1"\nis_free = true\n'
    table = {"base_url": "http://x/v1", "is_free": True}
    assert with_values(FILE, ["providers", "my box"], table, "A server.") == FILE + added
    assert with_values("", ["a"], {"b": 'q"\\\n'}) == '[a]\nb = "q\\"\\\\\\n"\n'
    assert with_values("x = 1", ["a"], {"b": ["c"]}) == 'x = 1\n\n[a]\nb = ["c"]\n'


def test_the_last_header_may_lack_its_newline():
    assert with_values("[a]", ["a"], {"b": 1}) == "[a]\nb = 1\n"


@every_case(
    "text",
    [
        'models.default = "old"\n',
        'models = { default = "old" }\n',
        "models = 3\n",
        "[models\n",
        '[models]\ndefault = """\nold\n"""\n',
        'text = """\n[models]\n"""\n[[models.routes]]\nwords = []\n[models]\n',
        "x = " + "1" * 5000,
    ],
)
def test_a_spelling_that_text_cannot_follow_is_refused(text):
    with pytest.raises(CannotEdit):
        with_values(text, ["models"], {"default": "new"})


def test_a_table_is_removed_with_what_is_below_it():
    text = f'{FILE}\n[mcp.servers.deputy]\ncommand = "x"\n[mcp.servers.deputy.env]\nA = "b"\n'
    assert without_table(text, ["mcp", "servers", "deputy"]) == FILE
    assert without_table(FILE, ["mcp", "servers", "deputy"]) == FILE
    more = f"{text}[other]\nx = 1\n"
    assert tomllib.loads(without_table(more, ["mcp", "servers", "deputy"])) == {
        **tomllib.loads(FILE),
        "other": {"x": 1},
    }
