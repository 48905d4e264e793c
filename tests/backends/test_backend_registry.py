"""The chain of a model is its own, whatever it is called by."""

from typing import Any

import pytest

from deputy.backends.backend_registry import BackendRegistry
from deputy.models.factory import ModelFactory


async def no_failures(root: str) -> int:
    return 0


def registry(**options: Any) -> BackendRegistry:
    models = ModelFactory(environ={})
    return BackendRegistry(
        environ={},
        provider_of=models.provider_of,
        missing_key=models.missing_key,
        full_name=models.full_name,
        native_failures=no_failures,
        **options,
    )


@pytest.mark.rule("fallback")
@pytest.mark.parametrize(
    ("name", "chain"),
    [
        ("opus-4.6-thinking", ["sonnet-4.5-thinking", "sonnet-4.5"]),
        ("reasoning", ["sonnet-4.5-thinking", "sonnet-4.5"]),
        ("planning", ["sonnet-4.5-thinking", "sonnet-4.5"]),
        ("anthropic:claude-opus-4-6", ["sonnet-4.5-thinking", "sonnet-4.5"]),
        ("analysis", ["composer-1"]),
        ("fast", []),
        ("sonnet-4.5", ["composer-1"]),
        ("sonnet", ["composer-1"]),
    ],
)
def test_a_chain_goes_by_the_model_and_not_by_the_name_it_was_asked_by(name, chain):
    backends = registry()
    taken = dict.fromkeys(candidate.model for candidate in backends.candidates(name, falls_back=True))
    assert list(taken) == [name, *chain]
    assert {candidate.model for candidate in backends.candidates(name, falls_back=False)} == {name}


def test_a_function_is_a_backend_of_its_own_kind_only():
    backends = registry(functions={"mine": no_failures})
    assert backends.open("python:mine") is not None
    assert backends.open("other:mine") is None
