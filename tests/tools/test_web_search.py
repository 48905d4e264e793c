import asyncio
import json
from urllib.parse import parse_qs

import pytest

from deputy.engine.ports import ToolContext
from deputy.tools.web_search import Brave, SearXNG, Tavily, choose_provider, web_search_tool

KEY = "sk-CANARY-2718281828"

BRAVE = {
    "type": "search",
    "query": {"original": "rust async", "more_results_available": True, "country": "us"},
    "mixed": {"type": "mixed", "main": [{"type": "web", "index": 0, "all": False}]},
    "web": {
        "type": "search",
        "family_friendly": True,
        "results": [
            {
                "title": "Async <strong>Rust</strong> &amp; you",
                "url": "https://example.com/async",
                "is_source_local": False,
                "description": "How <strong>async</strong> works.",
                "page_age": "2026-01-01T00:00:00",
                "profile": {"name": "Example", "long_name": "example.com"},
                "language": "en",
                "meta_url": {"scheme": "https", "hostname": "example.com", "path": "› async"},
            },
            {"title": "Second", "url": "https://example.org/"},
        ],
    },
}
TAVILY = {
    "query": "rust async",
    "follow_up_questions": None,
    "answer": None,
    "images": [],
    "results": [
        {
            "title": "Async Rust & you",
            "url": "https://example.com/async",
            "content": "How async works.",
            "score": 0.98,
            "raw_content": None,
        },
        {"title": "Second", "url": "https://example.org/", "content": "", "score": 0.5},
    ],
    "response_time": 1.09,
    "request_id": "123e4567",
}
SEARXNG = {
    "query": "rust async",
    "number_of_results": 0,
    "results": [
        {
            "url": "https://example.com/async",
            "title": "Async Rust & you",
            "content": "How async works.",
            "thumbnail": None,
            "engine": "duckduckgo",
            "template": "default.html",
            "parsed_url": ["https", "example.com", "/async", "", "", ""],
            "engines": ["duckduckgo"],
            "positions": [1],
            "score": 1.0,
            "category": "general",
        },
        {"url": "https://example.org/", "title": "Second", "content": None},
    ],
    "answers": [],
    "corrections": [],
    "infoboxes": [],
    "suggestions": ["rust tokio"],
    "unresponsive_engines": [["google", "timeout"]],
}
FOUND = "1. Async Rust & you\n   https://example.com/async\n   How async works.\n\n2. Second\n   https://example.org/"


def make(name, address):
    return {"Brave": Brave(KEY, address), "Tavily": Tavily(KEY, address), "SearXNG": SearXNG(address)}[name]


def searched(serve, name, answer, **arguments):
    """What WebSearch makes of a provider that answers like this, and the requests it sent."""
    requests = []

    async def keep(request, writer):
        requests.append(request)
        writer.write(answer)

    async def search():
        async with serve(keep) as server:
            tool = web_search_tool(make(name, server))
            return await tool.run({"query": "rust async", **arguments}, ToolContext())

    return asyncio.run(search()), requests


def reply(body, status="200 OK", extra=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body


@pytest.mark.rule("web")
@pytest.mark.parametrize(("name", "body"), [("Brave", BRAVE), ("Tavily", TAVILY), ("SearXNG", SEARXNG)])
def test_each_provider_is_read_as_it_answers(serve, name, body):
    output, requests = searched(serve, name, reply(body))
    assert output.text == FOUND
    assert len(requests) == 1
    assert searched(serve, name, reply(body), count=1)[0].text == FOUND.partition("\n\n")[0]


def test_each_provider_is_asked_as_it_wants(serve):
    brave = searched(serve, "Brave", reply(BRAVE), count=5)[1][0].decode()
    assert brave.startswith("GET /res/v1/web/search?")
    assert parse_qs(brave.split(" ")[1].partition("?")[2]) == {"q": ["rust async"], "count": ["5"]}
    assert f"X-Subscription-Token: {KEY}\r\n" in brave
    tavily = searched(serve, "Tavily", reply(TAVILY))[1][0].decode()
    assert tavily.startswith("POST /search HTTP/1.1")
    assert f"Authorization: Bearer {KEY}\r\n" in tavily
    assert "Content-Type: application/json\r\n" in tavily
    searxng = searched(serve, "SearXNG", reply(SEARXNG))[1][0].decode()
    assert searxng.startswith("GET /search?")
    assert parse_qs(searxng.split(" ")[1].partition("?")[2]) == {"q": ["rust async"], "format": ["json"]}


@pytest.mark.parametrize("name", ["Brave", "Tavily", "SearXNG"])
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (reply({"detail": {"error": KEY}}, "401 Unauthorized"), "answered 401: the key was refused"),
        (reply({}, "429 Too Many Requests"), "answered 429: too many requests"),
        (reply({}, "500 Oops"), "answered 500: try again later"),
        (reply(b"", "302 Found", "Location: http://127.0.0.1/\r\n"), "answered 302"),
        (reply(b"<html>"), "not JSON"),
        (reply(b'{"a":' * 100_000), "not JSON"),
        (reply(b"[]"), "an unknown form"),
        (reply({"results": 1, "web": 1}), "an unknown form"),
        (reply({"results": [{"url": 1}], "web": {"results": [{"url": 1}]}}), "an unknown form"),
        (reply(b"x", extra="Content-Encoding: br\r\n"), "not requested"),
        (b"nonsense", "could not be reached"),
        (b"", "could not be reached"),
    ],
)
def test_whatever_goes_wrong_is_reported_without_the_key(serve, name, answer, told):
    output, _ = searched(serve, name, answer)
    assert output.is_error
    assert told in output.text
    assert KEY not in output.text


def test_a_searxng_that_does_not_allow_json_is_explained(serve):
    output, _ = searched(serve, "SearXNG", reply(b"", "403 Forbidden"))
    assert "its settings must allow the format json" in output.text


def test_no_results_are_not_an_error(serve):
    output, _ = searched(serve, "SearXNG", reply({"results": []}))
    assert (output.text, output.is_error) == ("No results.", False)


@pytest.mark.rule("web")
def test_without_a_provider_it_says_what_to_set_up(call):
    output = call(web_search_tool(choose_provider({})), query="anything")
    assert output.is_error
    assert all(name in output.text for name in ("BRAVE_API_KEY", "TAVILY_API_KEY", "SEARXNG_URL"))


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"BRAVE_API_KEY": "k", "TAVILY_API_KEY": "k"}, "Brave"),
        ({"TAVILY_API_KEY": "k", "SEARXNG_URL": "http://x"}, "Tavily"),
        ({"SEARXNG_URL": "http://localhost:8888/"}, "SearXNG"),
        ({"BRAVE_API_KEY": "", "SEARXNG_URL": "http://x"}, "SearXNG"),
    ],
)
def test_the_provider_is_chosen_by_key_or_address(environment, name):
    provider = choose_provider(environment)
    assert provider.name == name
