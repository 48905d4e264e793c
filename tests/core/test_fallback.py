import pytest
from tests.support.every_case import every_case

from deputy.core.errors import Blame, Error, blame_of
from deputy.core.fallback import (
    SHIPPED_FALLBACK,
    Candidate,
    FailedAttempt,
    candidates,
    chain_of,
    next_candidate,
)

PROVIDERS = {
    "opus-4.6-thinking": "anthropic",
    "sonnet-4.5-thinking": "anthropic",
    "sonnet-4.5": "anthropic",
    "gpt-5.2": "openai",
    "gemini-3-pro": "google",
    "composer-1": "cursor",
}


def names(model: str, **more: bool | int) -> list[str]:
    return [str(candidate) for candidate in candidates(model, PROVIDERS, **more)]  # pyright: ignore


def failed(candidate: Candidate, blame: Blame, *, changed: bool = False) -> FailedAttempt:
    error = Error(type="provider", message="m", recoverable=True, recommendation="r")
    return FailedAttempt(candidate=candidate, error=error, blame=blame, has_changed_something=changed)


@pytest.mark.rule("ladder")
def test_backends_go_from_native_over_the_providers_program_to_any_other_and_inline_last() -> None:
    assert names("gpt-5.2") == [
        "gpt-5.2 on native",
        "gpt-5.2 on acp:codex",
        "gpt-5.2 on cli:codex",
        "gpt-5.2 on cli:cursor-agent",
        "composer-1 on cli:cursor-agent",
        "gpt-5.2 on inline",
    ]
    assert names("gpt-5.2", allows_inline=False)[-1] == "composer-1 on cli:cursor-agent"


@pytest.mark.rule("fallback")
def test_chains_are_data() -> None:
    assert chain_of("opus-4.6-thinking") == ("sonnet-4.5-thinking", "sonnet-4.5")
    assert chain_of("gpt-5.2") == chain_of("gemini-3-pro") == chain_of("whatever") == ("composer-1",)
    assert chain_of("composer-1") == ()
    assert names("opus-4.6-thinking", falls_back=False) == ["opus-4.6-thinking on native"]


@pytest.mark.rule("ladder")
def test_a_model_of_a_program_alone_has_no_native_rung() -> None:
    assert names("composer-1") == ["composer-1 on cli:cursor-agent", "composer-1 on inline"]


@pytest.mark.rule("fallback")
def test_a_failing_backend_leaves_the_model_and_a_failing_model_leaves_its_backends() -> None:
    order = candidates("opus-4.6-thinking", PROVIDERS)
    after_backend = next_candidate(order, [failed(order[0], "backend")])
    assert str(after_backend) == "opus-4.6-thinking on acp:claude"
    after_model = next_candidate(order, [failed(order[0], "model")])
    assert str(after_model) == "sonnet-4.5-thinking on native"


@pytest.mark.rule("fallback")
def test_nothing_follows_a_side_effect_or_an_end_of_the_work_itself() -> None:
    order = candidates("gpt-5.2", PROVIDERS)
    assert next_candidate(order, [failed(order[0], "backend", changed=True)]) is None
    assert next_candidate(order, [failed(order[0], "work")]) is None


@pytest.mark.rule("ladder")
def test_every_rung_is_taken_once_and_the_last_is_inline() -> None:
    order = candidates("opus-4.6-thinking", PROVIDERS)
    steps: list[FailedAttempt] = []
    while (candidate := next_candidate(order, steps)) is not None:
        steps.append(failed(candidate, "backend"))
    assert tuple(step.candidate for step in steps) == order
    assert order[-1].backend == "inline"
    assert len(set(order)) == len(order)


@pytest.mark.rule("fallback")
@every_case(
    ("code", "blame"),
    [
        ("OVERLOADED", "model"),
        ("MODEL_NOT_FOUND", "model"),
        ("REFUSED", "model"),
        ("NO_API_KEY", "backend"),
        ("PROGRAM_NOT_INSTALLED", "backend"),
        ("TIMEOUT", "work"),
        ("INVALID_RETURN", "work"),
        ("", "work"),
    ],
)
def test_an_error_says_what_has_failed(code: str, blame: str) -> None:
    error = Error(type="x", message="m", recoverable=True, recommendation="r", **({"code": code} if code else {}))
    assert blame_of(error) == blame


def test_every_chain_ends() -> None:
    for model in (*SHIPPED_FALLBACK.chains, "unknown"):
        assert model not in chain_of(model)
