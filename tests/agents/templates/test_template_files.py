import os
from pathlib import Path

import pytest

from deputy.agents.templates.template_files import load_templates, read_template
from deputy.core.subtask.context_settings import PartialContextSettings
from deputy.core.subtask.template import Template, TemplateInput

XML = """<task type="verification" subtype="subtask">
  <description>Verify generated code.</description>
  <inputs>
    <input name="code" type="string">What to verify.</input>
    <input name="depth" type="integer" required="false"/>
  </inputs>
  <template_hints><hint>testing</hint></template_hints>
  <context_management>
    <inherit_context>full</inherit_context>
    <accumulate_data>true</accumulate_data>
  </context_management>
  <model>anthropic:some-model</model>
  <prompt>Verify this: {{code}}</prompt>
</task>
"""
MARKDOWN = """---
type: verification
subtype: subtask
description: Verify generated code.
inputs:
  - name: code
    type: string
    description: What to verify.
  - name: depth
    type: integer
    required: false
template_hints: [testing]
context_management:
  inherit_context: full
  accumulate_data: true
model: anthropic:some-model
---
Verify this: {{code}}
"""


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / ".deputy" / "templates" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.rule("subtask.template")
@pytest.mark.parametrize(("name", "text"), [("check.xml", XML), ("check.md", MARKDOWN)])
def test_both_kinds_of_file_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    path = write(tmp_path, name, text)
    loaded = load_templates(tmp_path, tmp_path / "home")
    assert loaded.findings == ()
    assert loaded.templates == (
        Template(
            name="check",
            type="verification",
            subtype="subtask",
            description="Verify generated code.",
            prompt="Verify this: {{code}}",
            hints=("testing",),
            inputs=(
                TemplateInput(name="code", type="string", description="What to verify."),
                TemplateInput(name="depth", type="integer", is_required=False),
            ),
            context_management=PartialContextSettings(inherit_context="full", accumulate_data=True),
            model="anthropic:some-model",
            path=str(path),
        ),
    )


@pytest.mark.rule("subtask.template")
@pytest.mark.parametrize(
    ("name", "text", "line", "rule", "words"),
    [
        ("a.xml", "<task>\n<description>", 2, "subtask.template", "not well-formed"),
        ("a.xml", "<plan/>", 1, "subtask.template", "root is <plan>"),
        ("a.xml", '<!DOCTYPE a [<!ENTITY b "c">]>\n<task/>', 1, "subtask.template", "document type"),
        ("a.xml", "<a>" * 9 + "</a>" * 9, 1, "subtask.template", "nested too deeply"),
        ("a.md", "no front matter", 1, "subtask.template", "no front matter"),
        ("a.md", "---\ntype: x\n", 1, "subtask.template", "closes the front matter"),
        ("a.md", "---\ntype: &a x\ndescription: d\n---\n", 2, "subtask.template", "anchor"),
        ("a.md", "---\ntype: x\n---\n", 1, "subtask.template", "description is missing"),
        (
            "a.md",
            "---\ntype: x\ndescription: d\nmodel: script:/x\n---\n",
            4,
            "subtask.template",
            "model is 'script:/x'",
        ),
        ("a.md", "---\ntype: x\ndescription: d\ncolour: red\n---\n", 4, "subtask.template", "unknown field 'colour'"),
        (
            "a.md",
            "---\ntype: x\ndescription: d\ninputs:\n  n: text\n---\n",
            4,
            "subtask.template",
            "type 'text' must be one of",
        ),
        ("a.md", "---\ntype: x\ndescription: d\ninputs: [a, a]\n---\n", 4, "subtask.template", "declared twice"),
        (
            "a.md",
            "---\ntype: x\ndescription: d\ninputs:\n  a: string\n  a: integer\n---\n",
            6,
            "subtask.template",
            "'a' is repeated in inputs",
        ),
        (
            "a.md",
            "---\ntype: x\ndescription: d\ncontext_management: {inherit_context: full, fresh_context: enabled}\n---\n",
            4,
            "subtask.context",
            "exclude each other",
        ),
        (
            "a.md",
            "---\ntype: x\ndescription: d\ncontext_management:\n  # as much\n  inherit_context: some\n---\n",
            6,
            "subtask.context",
            "one of full, subset, none",
        ),
        (
            "a.xml",
            "<task type='x'>\n<description>d</description>\n<context_management>\n\n<fresh_context>on</fresh_context>\n"
            "</context_management>\n</task>",
            5,
            "subtask.context",
            "one of enabled, disabled",
        ),
        (
            "a.md",
            "\n\n---\ntype: x\ndescription: d\ncontext_management:\n  colour: red\n---\n",
            7,
            "subtask.context",
            "colour",
        ),
        (
            "a.md",
            "---\ntype: x\ndescription: d\nreturns: '{\"type\": 7}'\n---\n",
            4,
            "subtask.template",
            "not a valid JSON Schema",
        ),
    ],
)
def test_what_is_wrong_is_reported_with_file_line_and_rule(
    tmp_path: Path, name: str, text: str, line: int, rule: str, words: str
) -> None:
    path = write(tmp_path, name, text)
    template, findings = read_template(path)
    assert template is None
    found = next(finding for finding in findings if words in finding.message)
    assert (found.path, found.line, found.rule) == (str(path), line, rule)


def test_a_place_that_no_input_fills_is_warned_of(tmp_path: Path) -> None:
    template, findings = read_template(write(tmp_path, "a.md", "---\ntype: x\ndescription: d\n---\nDo {{it}}.\n"))
    assert template is not None
    assert [(finding.is_fatal, "'it'" in finding.message) for finding in findings] == [(False, True)]


@pytest.mark.rule("subtask.type")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", "---\ndescription: d\n---\n \n"),
        ("a.md", "---\ndescription: d\ntype: ''\nprompt: ''\n---\n"),
        ("a.xml", "<task>\n<description>d</description>\n<prompt> </prompt></task>"),
    ],
)
def test_a_template_without_a_type_is_atomic_and_it_may_have_no_prompt(tmp_path: Path, name: str, text: str) -> None:
    template, findings = read_template(write(tmp_path, name, text))
    assert findings == ()
    assert template is not None
    assert (template.type, template.prompt, template.is_atomic) == ("atomic", "", True)


@pytest.mark.rule("subtask.template")
@pytest.mark.parametrize(
    ("name", "text", "line", "words"),
    [
        ("a.md", "---\ntype: x\ndescription: d\nsubtype: subtsk\n---\nDo it.\n", 4, "subtype 'subtsk' has no effect"),
    ],
)
def test_what_is_hardly_meant_is_warned_of_with_its_line(
    tmp_path: Path, name: str, text: str, line: int, words: str
) -> None:
    path = write(tmp_path, name, text)
    template, (finding,) = read_template(path)
    assert template is not None
    assert words in finding.message
    assert (finding.path, finding.line, finding.rule) == (str(path), line, "subtask.template")


def test_a_template_made_of_others_needs_no_prompt(tmp_path: Path) -> None:
    template, findings = read_template(write(tmp_path, "a.md", "---\ntype: sequential\ndescription: d\n---\n"))
    assert template is not None
    assert findings == ()


def test_the_nearer_template_of_a_name_wins(tmp_path: Path) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    inner = tmp_path / "project" / "inner"
    near = write(inner, "a.md", "---\ntype: near\ndescription: d\n---\nDo it.\n")
    write(tmp_path / "project", "a.md", "---\ntype: far\ndescription: d\n---\nDo it.\n")
    write(tmp_path / "home", "b.md", "---\ntype: own\ndescription: d\n---\nDo it.\n")
    loaded = load_templates(inner, tmp_path / "home")
    assert [template.type for template in loaded.templates] == ["near", "own"]
    assert str(near) in loaded.findings[0].message


@pytest.mark.rule("subtask.context")
def test_a_template_that_passes_nothing_on_can_be_used_and_warns(tmp_path: Path) -> None:
    matter = "type: x\ndescription: d\ncontext_management:\n  fresh_context: disabled\n"
    template, (finding,) = read_template(write(tmp_path, "a.md", f"---\n{matter}---\nDo it.\n"))
    assert template is not None
    assert (finding.is_fatal, finding.line, finding.rule) == (False, 4, "subtask.context")
    assert finding.message.startswith("This subtask gets only its inputs")
    _, findings = read_template(write(tmp_path, "b.md", f"---\n{matter}file_paths: a.py\n---\nDo it.\n"))
    assert findings == ()


def test_pipes_links_and_binaries_are_findings_and_never_waits(tmp_path: Path) -> None:
    folder = write(tmp_path, "ok.md", MARKDOWN).parent
    os.mkfifo(folder / "pipe.md")
    (folder / "out.md").symlink_to("/etc/hostname")
    (folder / "loop.md").symlink_to(folder / "loop.md")
    (folder / "binary.xml").write_bytes(b"\0\1\2")
    (folder / "latin.md").write_bytes(b"---\ntype: \xff\n---\n")
    (folder / "big.xml").write_bytes(b" " * 300_000)
    (folder / "dir.md").mkdir()
    loaded = load_templates(tmp_path, tmp_path / "home")
    assert [template.name for template in loaded.templates] == ["ok"]
    assert len(loaded.findings) == 7
