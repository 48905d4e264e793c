"""Load all templates for a directory; the nearest template of a name wins."""

from __future__ import annotations

import asyncio
import os
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.agents.agent_files import levels_of, read_bounded, shown
from deputy.agents.front_matter_yaml import YamlRefusal
from deputy.agents.read_definition import LIMIT_BYTES
from deputy.agents.templates.build_template import TEMPLATE, TemplateProblem, make_template
from deputy.agents.templates.template_formats import read_markdown, read_xml
from deputy.core.subtask.template import Template
from deputy.core.subtask.template_match import TemplateIndex

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = ".deputy/templates"
LIMIT_FILES = 20_000


class Templates(Struct, frozen=True, kw_only=True):
    """The templates by name, and the errors and warnings of all files."""

    templates: tuple[Template, ...] = ()
    findings: tuple[TemplateProblem, ...] = ()
    folders: tuple[str, ...] = ()
    """The folders that were searched."""


def load_templates(start: Path, home: Path) -> Templates:
    """Read the templates from `start` up to the root of its repository, and of the home directory."""
    found: dict[str, Template] = {}
    findings: list[TemplateProblem] = []
    folders = dict.fromkeys(level / FOLDER for level in (*levels_of(Path(os.path.realpath(start))), home))
    for folder in folders:
        for path in _files_in(folder, findings):
            template, remarks = read_template(path)
            findings += remarks
            if template is None:
                continue
            if template.name in found:
                nearer = found[template.name].path
                findings.append(_finding(path, 1, f"not used: {nearer} has the same name {template.name!r}"))
            else:
                found[template.name] = template
    ordered = tuple(found[name] for name in sorted(found))
    return Templates(templates=ordered, findings=tuple(findings), folders=tuple(map(shown, folders)))


def read_template(path: Path) -> tuple[Template | None, tuple[TemplateProblem, ...]]:
    """Read one template; a pipe, a device, a huge or a binary file is a problem and does not block."""
    try:
        content = read_bounded(path)
    except OSError as error:
        return None, (_fatal(path, 1, f"cannot read the file: {error.strerror}"),)
    if content is None or len(content) > LIMIT_BYTES:
        what = (
            "not a regular file" if content is None else f"the file is larger than {LIMIT_BYTES // 1024} KiB, the limit"
        )
        return None, (_fatal(path, 1, what),)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return None, (_fatal(path, content.count(b"\n", 0, error.start) + 1, "the file is not UTF-8 text"),)
    if "\0" in text:
        return None, (_fatal(path, text.count("\n", 0, text.index("\0")) + 1, "this is a binary file"),)
    read = (read_xml if path.suffix.lower() == ".xml" else read_markdown)(text.replace("\r\n", "\n"))
    if isinstance(read, YamlRefusal):
        return None, (_fatal(path, read.line, read.reason),)
    return make_template(read, shown(path.stem), shown(path))


def _files_in(folder: Path, findings: list[TemplateProblem]) -> Iterator[Path]:
    """The template files of a folder by name; a link is followed only inside the folder."""
    try:
        with os.scandir(folder) as listing:
            entries = sorted(islice(listing, LIMIT_FILES + 1), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        findings.append(_fatal(folder, 1, f"cannot list the folder: {error.strerror}"))
        return
    if len(entries) > LIMIT_FILES:
        findings.append(_fatal(folder, 1, f"the folder has more than {LIMIT_FILES:,} entries; the others are not read"))
    real = os.path.realpath(folder)
    for entry in entries[:LIMIT_FILES]:
        path = Path(entry.path)
        if path.suffix.lower() not in (".xml", ".md") or path.name.startswith("."):
            continue
        if entry.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(real):
            findings.append(_fatal(path, 1, "not followed: the link leads out of the folder"))
            continue
        yield path


def _fatal(path: Path, line: int, message: str) -> TemplateProblem:
    return TemplateProblem(path=shown(path), line=line, rule=TEMPLATE, message=message)


def _finding(path: Path, line: int, message: str) -> TemplateProblem:
    return TemplateProblem(path=shown(path), line=line, rule=TEMPLATE, message=message, is_fatal=False)


class WorkspaceTemplates:
    """The templates of a workspace, read in a thread on first use."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._reading = asyncio.Lock()
        self._read: TemplateIndex | None = None

    async def load(self) -> TemplateIndex:
        """The index of the templates."""
        async with self._reading:
            if self._read is None:
                self._read = await asyncio.to_thread(_index, self._workspace)
        return self._read


def _index(workspace: Path) -> TemplateIndex:
    return TemplateIndex(load_templates(workspace, Path.home()).templates)
