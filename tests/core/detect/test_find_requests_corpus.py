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


def cases() -> list[object]:
    return [
        pytest.param(path, id=f"{path.parent.name}/{path.stem}", marks=[pytest.mark.rule(rule) for rule in rules])
        for path in TEXTS
        for rules in [RULES[path.parent.name]]
    ]


@pytest.mark.parametrize("path", cases())
def test_a_text_holds_the_requests_that_stand_beside_it(path: Path) -> None:
    text = path.read_bytes().decode()
    expected = msgspec.json.decode(path.with_suffix(".json").read_bytes())
    for request in expected["requests"]:
        request["normalized"] = request["normalized"].replace("{ESCALATION}", ESCALATION)
    found = msgspec.json.encode({"requests": [request_json(request) for request in detect(text)]})
    assert msgspec.json.decode(found) == expected


def test_the_corpus_is_large_and_says_no_often_enough() -> None:
    counts = {name: len(list((CORPUS / name).glob("*.md"))) for name in RULES}
    assert sum(counts.values()) >= 70
    assert counts["none"] >= 28
    assert min(counts["context"], counts["output"], counts["model"]) >= 8
    assert len(TEXTS) == len(list(CORPUS.glob("*/*.json")))


def test_what_must_not_match_expects_no_request() -> None:
    for path in (CORPUS / "none").glob("*.json"):
        assert msgspec.json.decode(path.read_bytes()) == {"requests": []}, path.name
