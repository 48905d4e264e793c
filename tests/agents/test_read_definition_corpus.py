"""Every file of the corpus, with the definition or the problem that a careful reader would expect of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.support.every_case import every_case

from deputy.agents.definition import AgentDefinition, DefinitionLimits, DefinitionOrigin, DefinitionProblem
from deputy.agents.read_definition import read_content

CORPUS = Path(__file__).parent.parent / "corpus" / "agents"
FILES = sorted(CORPUS.rglob("*.md"))
ALWAYS_SHOWN = {"name", "description", "prompt", "tools", "model"}
UNMENTIONED = {"path", "source"}


def read_case(path: Path) -> AgentDefinition | DefinitionProblem:
    family = path.parent.name if path.parent.name in {"deputy", "opencode"} else "claude"
    return read_content(path.read_bytes(), DefinitionOrigin(path=path.name, file_name=path.stem, family=family))


def form(found: AgentDefinition | DefinitionProblem) -> dict[str, Any]:
    """What the JSON beside a file says of it: defaults are left out."""
    data = json.loads(msgspec.json.encode(found))
    if isinstance(found, DefinitionProblem):
        return {"problem": {"line": data["line"], "message": data["message"]}}
    data["limits"] = (
        {} if found.limits == DefinitionLimits() else {k: v for k, v in data["limits"].items() if v is not None}
    )
    return {"agent": {k: v for k, v in data.items() if k in ALWAYS_SHOWN or (v and k not in UNMENTIONED)}}


def ids(path: Path) -> str:
    return str(path.relative_to(CORPUS).with_suffix(""))


@pytest.mark.rule("agents")
@every_case("path", FILES, ids=ids)
def test_a_file_of_the_corpus_is_read_as_expected(path: Path) -> None:
    assert form(read_case(path)) == json.loads(path.with_suffix(".json").read_text())


@every_case("path", FILES, ids=ids)
def test_without_libyaml_the_same_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = read_case(path)
    with monkeypatch.context() as patch:
        patch.delattr(yaml, "CBaseLoader")
        slow = read_case(path)

    def essence(found: AgentDefinition | DefinitionProblem) -> Any:
        return msgspec.structs.replace(found, warnings=()) if isinstance(found, AgentDefinition) else found

    assert essence(slow) == essence(fast)


@pytest.mark.rule("agents")
@every_case("path", FILES, ids=ids)
def test_whatever_was_forgiven_has_a_line_of_the_file(path: Path) -> None:
    found = read_case(path)
    lines = path.read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n") + 1
    remarks = found.warnings if isinstance(found, AgentDefinition) else [found]
    assert all(1 <= (remark.line or 0) <= lines and remark.message for remark in remarks)


def test_the_corpus_is_whole() -> None:
    assert len(FILES) >= 70
    assert {path.with_suffix("") for path in FILES} == {path.with_suffix("") for path in CORPUS.rglob("*.json")}


def test_the_corpus_keeps_its_bytes() -> None:
    assert b"\r\n" in (CORPUS / "claude/crlf.md").read_bytes()
    assert (CORPUS / "claude/bom.md").read_bytes().startswith(b"\xef\xbb\xbf")
    assert b"\n" not in (CORPUS / "claude/old-mac-line-ends.md").read_bytes()
    assert b"\0" in (CORPUS / "problems/binary.md").read_bytes()
