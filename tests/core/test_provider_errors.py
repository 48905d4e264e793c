"""Every provider's way of saying what is wrong, told apart."""

import json

import pytest
from tests.support.every_case import every_case

from deputy.core.model_errors import (
    BadKey,
    BadRequest,
    ContextExhausted,
    ModelError,
    ModelNotFound,
    ModelRefused,
    Overloaded,
    QuotaSpent,
    RateLimited,
    ServerFailed,
    ToolsUnsupported,
)
from deputy.core.provider_errors import provider_error, window_in_message

OPENAI_TPM = (
    "Request too large for gpt-5.2 in organization org-x on tokens per min (TPM): Limit 30000, Requested 45000. "
    "The input or output tokens must be reduced in order to run successfully."
)


def body(message, kind="invalid_request_error", code=None):
    return {"error": {"type": kind, "code": code, "message": message}}


EXHAUSTED = {
    "anthropic": (400, body("prompt is too long: 213462 tokens > 200000 maximum"), 200_000),
    "anthropic with output": (
        400,
        body("input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease one"),
        200_000,
    ),
    "anthropic bytes": (413, body("Request exceeds the maximum size", "request_too_large"), None),
    "openai": (
        400,
        body(
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
            code="context_length_exceeded",
        ),
        128_000,
    ),
    "openai responses in a stream": (
        None,
        {"type": "error", "code": "context_length_exceeded", "message": "Your input exceeds the context window."},
        None,
    ),
    "google": (
        400,
        {
            "error": {
                "code": 400,
                "status": "INVALID_ARGUMENT",
                "message": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            }
        },
        1_048_575,
    ),
    "vllm": (
        400,
        {"object": "error", "message": "This model's maximum context length is 4096 tokens.", "code": 400},
        4096,
    ),
    "cerebras": (
        400,
        {"message": "Current length is 9000 while limit is 8192", "code": "context_length_exceeded"},
        None,
    ),
    "mistral": (
        400,
        {"message": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"},
        None,
    ),
    "llama.cpp": (
        400,
        body(
            "the request exceeds the available context size (8192 tokens), try increasing it",
            "exceed_context_size_error",
        ),
        8192,
    ),
    "lm studio": (
        400,
        {"error": "The number of tokens to keep is greater than the context length. Try a larger context length."},
        None,
    ),
    "xai": (
        400,
        {"error": "This model's maximum prompt length is 131072 but the request contains 537812 tokens."},
        131_072,
    ),
    "together": (
        422,
        body("Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000"),
        8193,
    ),
    "ollama": (400, {"error": "prompt too long; exceeded max context length by 512 tokens"}, None),
    "minimax": (400, body("invalid params, context window exceeds limit (2013)"), None),
    "copilot": (400, body("prompt token count of 70000 exceeds the limit of 64000"), 64_000),
    "z.ai": (400, body("Prompt exceeds max length", code="1261"), None),
    "moonshot": (400, body("Invalid request: Your request exceeded model token limit: 131072"), 131_072),
    "openrouter": (
        400,
        body("This endpoint's maximum context length is 163840 tokens. However, you requested about 200000 tokens."),
        163_840,
    ),
    "groq": (
        400,
        body("Please reduce the length of the messages or completion.", code="context_length_exceeded"),
        None,
    ),
}

KINDS = {
    "openai too large for a minute": (429, body(OPENAI_TPM, "tokens", "rate_limit_exceeded"), QuotaSpent),
    "groq too large for a minute": (
        413,
        body(OPENAI_TPM.replace("gpt-5.2", "llama"), "tokens", "rate_limit_exceeded"),
        QuotaSpent,
    ),
    "openai quota": (
        429,
        body("You exceeded your current quota, please check your plan", "insufficient_quota"),
        QuotaSpent,
    ),
    "anthropic credit": (400, body("Your credit balance is too low to access the Anthropic API."), QuotaSpent),
    "payment": (402, body("Insufficient credits"), QuotaSpent),
    "anthropic limit": (
        429,
        body("Number of request tokens has exceeded your per-minute rate limit", "rate_limit_error"),
        RateLimited,
    ),
    "openai limit": (429, body("Rate limit reached for gpt-5.2. Please try again in 1.5s.", "requests"), RateLimited),
    "google limit": (
        429,
        {
            "error": {
                "code": 429,
                "status": "RESOURCE_EXHAUSTED",
                "message": "You exceeded your current quota, please check your plan and billing details.",
                "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}],
            }
        },
        RateLimited,
    ),
    "limit in a stream": (None, body("slow down", "rate_limit_error"), RateLimited),
    "anthropic overload": (529, body("Overloaded", "overloaded_error"), Overloaded),
    "overload in a stream": (None, {"type": "overloaded_error", "message": "Overloaded"}, Overloaded),
    "google overload": (503, [{"error": {"code": 503, "status": "UNAVAILABLE", "message": "overloaded"}}], Overloaded),
    "openrouter overload in a stream": (None, {"error": {"code": 503, "message": "no provider"}}, Overloaded),
    "bad key": (401, body("Incorrect API key provided", code="invalid_api_key"), BadKey),
    "google bad key": (
        400,
        {
            "error": {
                "code": 400,
                "message": "API key not valid. Please pass a valid API key.",
                "status": "INVALID_ARGUMENT",
            }
        },
        BadKey,
    ),
    "forbidden": (403, body("not allowed", "permission_error"), BadKey),
    "no model": (404, body("The model `x` does not exist", code="model_not_found"), ModelNotFound),
    "ollama no model": (404, {"error": "model 'x' not found, try pulling it first"}, ModelNotFound),
    "policy": (400, body("rejected", code="content_policy_violation"), ModelRefused),
    "azure policy": (400, body("The response was filtered due to our content management policy."), ModelRefused),
    "responses policy in a stream": (None, {"code": "invalid_prompt", "message": "flagged"}, ModelRefused),
    "bad request": (400, body("messages: roles must alternate"), BadRequest),
    "bad request in a stream": (None, body("bad field"), BadRequest),
    "unprocessable": (422, {"detail": [{"loc": ["body", "x"], "msg": "field required"}]}, BadRequest),
    "timeout": (408, {}, ServerFailed),
    "broken": (500, body("Internal server error", "api_error"), ServerFailed),
    "unknown in a stream": (None, {"message": "Something went wrong"}, ServerFailed),
}


@pytest.mark.rule("context.window")
@every_case("wording", EXHAUSTED)
def test_an_exhausted_context_is_distinguished_from_every_other_refusal(wording):
    status, content, window = EXHAUSTED[wording]
    error = provider_error(json.dumps(content).encode(), status=status)
    assert type(error) is ContextExhausted
    assert not error.retryable
    assert error.window == window


NO_TOOLS = {
    "ollama": (400, body("registry.ollama.ai/library/gemma3:4b does not support tools", "api_error"), "ollama show"),
    "ollama native": (400, {"error": "registry.ollama.ai/library/gemma3:4b does not support tools"}, "ollama show"),
    "llama.cpp": (500, {"error": {"code": 500, "message": "tools param requires --jinja flag"}}, "--jinja"),
    "llama.cpp of 2024": (500, {"error": {"code": 500, "message": "Unsupported param: tools"}}, "--jinja"),
    "vllm": (
        400,
        {
            "object": "error",
            "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            "code": 400,
        },
        "--enable-auto-tool-choice",
    ),
    "openrouter": (
        404,
        {
            "error": {
                "message": "No endpoints found that support tool use. To learn more about provider routing, visit: …",
                "code": 404,
            }
        },
        "supported_parameters=tools",
    ),
    "google": (400, body("Function calling is not enabled for models/gemma-3-27b-it"), "supports tools"),
}


@every_case("wording", NO_TOOLS)
def test_a_model_without_tools_is_distinguished_from_other_refusals_and_the_remedy_names_its_server(wording):
    status, content, remedy = NO_TOOLS[wording]
    error = provider_error(json.dumps(content).encode(), status=status)
    assert type(error) is ToolsUnsupported
    assert not error.retryable
    assert remedy in error.as_value().recommendation


@every_case("wording", KINDS)
def test_failures_are_distinguished(wording):
    status, content, kind = KINDS[wording]
    assert type(provider_error(json.dumps(content).encode(), status=status)) is kind


def test_a_window_is_read_only_where_it_is_named():
    assert window_in_message("maximum context length is 1,048,576 tokens") == 1_048_576
    assert window_in_message("5 > 3") is None
    assert window_in_message("nothing of the kind") is None


LIMIT = json.dumps(body("slow down", "rate_limit_error")).encode()
GOOGLE = json.dumps(KINDS["google limit"][1]).encode()


@every_case(
    ("headers", "content", "seconds"),
    [
        ({"retry-after": "7"}, LIMIT, 7),
        ({"retry-after": "0.25"}, LIMIT, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "2"}, LIMIT, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, LIMIT, 30),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT"}, LIMIT, 0),
        ({"retry-after": "soon"}, LIMIT, None),
        ({"retry-after": "-5"}, LIMIT, None),
        ({"retry-after": "nan"}, LIMIT, None),
        ({}, GOOGLE, 7.5),
        ({}, json.dumps(body("Please try again in 1m2.5s.", "tokens")).encode(), 62.5),
        ({}, json.dumps(body("Please try again in 120ms.", "tokens")).encode(), 0.12),
        ({}, LIMIT, None),
    ],
)
def test_retry_after_is_understood_in_every_form(headers, content, seconds):
    error = provider_error(content, status=429, headers=headers, now=1792567680.0)
    assert error.retry_after == (pytest.approx(seconds) if seconds is not None else None)


def test_a_provider_that_says_not_to_retry_is_heard():
    assert not provider_error(b"{}", status=500, headers={"x-should-retry": "false"}).retryable


@every_case(
    "content",
    [
        b"",
        b"<html><h1>502 Bad Gateway</h1></html>",
        b"upstream error",
        b"[" * 100_000,
        b"\xff\xfe",
        b"null",
        b"3",
        b"[]",
    ],
)
def test_a_body_that_is_no_error_object_is_still_an_error_with_a_message(content):
    error = provider_error(content, status=502)
    assert type(error) is ServerFailed
    assert isinstance(error, ModelError)
    assert 0 < len(str(error)) < 2100
    assert "<" not in str(error)


def test_every_kind_of_failure_makes_a_value_with_a_code_of_its_own():
    kinds = ModelError.__subclasses__()
    assert len({kind.code for kind in kinds}) == len(kinds) >= 16
    for kind in kinds:
        value = kind("it went wrong", model="a:b").as_value()
        assert value.message == "a:b: it went wrong"
        assert value.code.isupper()
        assert value.recommendation
