"""Every text of the corpus holds exactly the requests that stand beside it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deputy.core.detect import detect, request_json
from deputy.core.detect.found_request import ESCALATION

CORPUS = Path(__file__).parents[2] / "corpus" / "text"
TEXTS = sorted(CORPUS.glob("*/*.md"))
RULES = {
    "xml": ["text.xml"],
    "prose": ["text.prose", "text.degradation"],
    "user": ["text.user"],
    "none": ["text.xml", "text.prose", "text.user"],
    "context": ["text.context"],
    "output": ["text.output"],
    "model": ["text.model"],
}


def expected(path: Path) -> object:
    """What the JSON beside a text says of it."""
    data = msgspec.json.decode(path.with_suffix(".json").read_bytes())
    for request in data["requests"]:
        request["normalized"] = request["normalized"].replace("{ESCALATION}", ESCALATION)
    return data


def found(path: Path) -> object:
    requests = [request_json(request) for request in detect(path.read_bytes().decode())]
    return msgspec.json.decode(msgspec.json.encode({"requests": requests}))


@pytest.mark.parametrize(
    "folder",
    [pytest.param(name, marks=[pytest.mark.rule(rule) for rule in rules]) for name, rules in RULES.items()],
)
def test_a_text_holds_the_requests_that_stand_beside_it(folder: str) -> None:
    texts = [path for path in TEXTS if path.parent.name == folder]
    assert {path.stem: found(path) for path in texts} == {path.stem: expected(path) for path in texts}
    assert texts


def test_the_corpus_is_large_and_says_no_often_enough() -> None:
    counts = {name: len(list((CORPUS / name).glob("*.md"))) for name in RULES}
    assert sum(counts.values()) >= 70
    assert counts["none"] >= 28
    assert min(counts["context"], counts["output"], counts["model"]) >= 8
    assert len(TEXTS) == len(list(CORPUS.glob("*/*.json")))


def test_what_must_not_match_expects_no_request() -> None:
    for path in (CORPUS / "none").glob("*.json"):
        assert msgspec.json.decode(path.read_bytes()) == {"requests": []}, path.name
