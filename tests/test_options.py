from typing import Any

import pytest

from deputy.client import Deputy
from deputy.core.errors import UsageError


def make(*arguments: Any, **options: Any) -> Deputy:
    return Deputy(*arguments, **options)


@pytest.mark.parametrize(
    ("arguments", "options"), [(("offline:scout", "."), {}), ((), {"modl": "offline:scout"})], ids=["place", "name"]
)
def test_only_the_model_has_a_place_and_every_other_option_a_known_name(arguments, options):
    assert isinstance(make("offline:scout"), Deputy)
    with pytest.raises(TypeError):
        make(*arguments, **options)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("workspace", "/nowhere", "give a directory that exists"),
        ("fallback", "no", "give True, False or None"),
        ("allow", "Read", "give the names of tools"),
        ("private", [1], "give a list of paths"),
        ("observer", print, "give a deputy.Observer"),
        ("mcp_servers", {"docs": "my-server"}, "give a dict of names and settings, like {'command': 'my-server'}"),
        ("models", {"mine": object()}, "give a dict of names and models with a `stream`"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_right_before_anything_is_opened(option, value, expected):
    with pytest.raises(UsageError) as raised:
        make(**{option: value})
    assert (raised.value.field, raised.value.found, raised.value.expected) == (option, value, expected)
