import asyncio
from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from deputy import tool
from deputy.core.errors import UsageError
from deputy.engine.ports import ToolContext, ToolTraits


class Point(Struct):
    x: int
    y: int = 0


@tool
def distance(
    place: Point,
    unit: Literal["m", "km"] = "m",
    times: Annotated[int, Meta(ge=1, description="How often.")] = 1,
) -> dict[str, object]:
    """How far a place is away."""
    return {"far": place.x * times, "unit": unit}


def run(made, **arguments):
    return asyncio.run(made.run(arguments, ToolContext()))


def test_the_signature_is_the_schema_and_the_docstring_the_description():
    assert (distance.name, distance.description) == ("distance", "How far a place is away.")
    schema = distance.schema
    assert schema["required"] == ["place"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["unit"] == {"enum": ["km", "m"], "default": "m"}
    assert schema["properties"]["times"] == {"type": "integer", "minimum": 1, "description": "How often.", "default": 1}
    assert schema["$defs"]["Point"]["properties"]["x"] == {"type": "integer"}


def test_a_model_gets_json_and_a_program_the_function():
    assert run(distance, place={"x": 2}, unit="km", times=3).text == '{"far":6,"unit":"km"}'
    assert distance(Point(x=2)) == {"far": 2, "unit": "m"}


def test_bad_arguments_name_every_field_and_call_nothing():
    output = run(distance, place={"x": "far"}, times=0, colour="red")
    assert output.is_error
    assert all(word in output.text for word in ("place", "times", "colour"))


def test_a_function_may_wait_and_may_fail():
    @tool(name="Wait", traits=ToolTraits(reads_only=True))
    async def wait(seconds: float) -> str:
        await asyncio.sleep(0)
        if seconds < 0:
            raise ValueError("time goes on")
        return "waited"

    assert wait.name == "Wait"
    assert wait.traits.reads_only
    assert run(wait, seconds=1).text == "waited"
    failed = run(wait, seconds=-1)
    assert (failed.is_error, failed.text) == (True, "Wait failed: ValueError: time goes on")


def test_what_is_not_said_is_taken_for_the_worst():
    assert distance.traits == ToolTraits()
    assert distance.traits.needs_approval


def test_a_long_answer_is_cut():
    @tool
    def shout() -> str:
        return "a" * 100_000

    output = asyncio.run(shout.run({}, ToolContext(output_bytes=1000)))
    assert len(output.text) < 1200
    assert "cut here" in output.text


def test_a_signature_that_is_no_schema_is_reported_at_once():
    def untyped(x):
        return x

    def starred(*args: int) -> None:
        return None

    def odd(x: "Nowhere") -> None:  # noqa: F821  the point of the test
        return None

    for function in (untyped, starred, odd):
        with pytest.raises(UsageError, match=function.__name__):
            tool(function)
