import json
from typing import Any

from tests.support.every_case import every_case
from tests.support.programs.json_text import dumps, loads

VALUES: list[Any] = [
    *(None, True, 0, -1, 10**30, 1.5, 1e300, "", 'é\n"\\\u2028😀\x00/', [], {}),
    {"a": [1, {"b": [None, "c"]}], "": {}},
]


@every_case("value", VALUES)
def test_json_is_written_and_read_as_the_library_does_it(value: Any) -> None:
    assert dumps(value) == json.dumps(value)
    assert loads(f" {json.dumps(value, indent=2)}\n") == value
