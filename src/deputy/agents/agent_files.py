"""Find and read the agent definitions for a directory; the nearest definition of a name wins."""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from deputy.agents.definition import AgentDefinition, DefinitionOrigin, DefinitionProblem, Family, Scope
from deputy.agents.read_definition import LIMIT_BYTES, read_content

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDERS: tuple[tuple[Family, str], ...] = (
    ("deputy", ".deputy/agents"),
    ("claude", ".claude/agents"),
    ("opencode", ".opencode/agent"),
    ("opencode", ".opencode/agents"),
)
"""Folders of definitions in a project and in the home directory; an earlier one wins."""

HOME_FOLDERS: tuple[tuple[Family, str], ...] = (
    *FOLDERS,
    ("opencode", ".config/opencode/agent"),
    ("opencode", ".config/opencode/agents"),
)

SHIPPED = Path(__file__).parent / "shipped"
"""The folder of shipped agents."""

LIMIT_ENTRIES = 2_000


class DefinitionFolder(Struct, frozen=True, kw_only=True):
    """A folder with agent definitions."""

    folder: Path
    family: Family
    scope: Scope
    bounds: Path
    """Links must stay below this folder: the project, or the home directory."""


def places(start: Path, home: Path) -> list[DefinitionFolder]:
    """The folders to search, nearest first: from `start` up to the root of its repository, then home."""
    levels = [level for level in levels_of(start) if level != home]
    project = [
        DefinitionFolder(folder=level / folder, family=family, scope="project", bounds=levels[-1])
        for level in levels
        for family, folder in FOLDERS
    ]
    own = [
        DefinitionFolder(folder=home / folder, family=family, scope="user", bounds=home)
        for family, folder in HOME_FOLDERS
    ]
    return [*project, *own]


def shipped_place() -> DefinitionFolder:
    """The folder of the shipped definitions."""
    real = Path(os.path.realpath(SHIPPED))
    return DefinitionFolder(folder=real, family="deputy", scope="shipped", bounds=real)


def levels_of(start: Path) -> list[Path]:
    """The directories from `start` to the root of its repository; outside of a repository only `start`, for safety."""
    levels = [start, *start.parents]
    for depth, level in enumerate(levels, 1):
        if os.path.lexists(level / ".git"):
            return levels[:depth]
    return [start]


def files_in(place: DefinitionFolder) -> Iterator[Path | DefinitionProblem]:
    """The Markdown files of a folder and its subfolders; the files of a folder come before its subfolders."""
    if not os.path.lexists(place.folder):
        return
    real = Path(os.path.realpath(place.folder))
    if not real.is_relative_to(place.bounds):
        yield _problem(place.folder, f"not followed: the link leads out of {shown(place.bounds)}")
        return
    yield from _walk(place.folder, real if place.scope == "project" else place.bounds)


def _walk(top: Path, bounds: Path) -> Iterator[Path | DefinitionProblem]:
    pending = [top]
    entered: set[str] = set()
    left = LIMIT_ENTRIES
    while pending:
        folder = pending.pop()
        if (identity := os.path.realpath(folder)) in entered:
            continue
        entered.add(identity)
        try:
            with os.scandir(folder) as listing:
                entries = sorted(islice(listing, left + 1), key=lambda entry: entry.name)
        except OSError as error:
            yield _problem(folder, f"cannot list the folder: {error.strerror}")
            continue
        left -= len(entries)
        if left < 0:
            yield _problem(folder, f"the folder has more than {LIMIT_ENTRIES} entries; the others are not read")
            return
        found = [_sift(entry, bounds) for entry in entries]
        yield from (item for item in found if item is not None and not isinstance(item, _Folder))
        pending += [item.path for item in reversed(found) if isinstance(item, _Folder)]


class _Folder(Struct, frozen=True):
    """A subfolder to read."""

    path: Path


def _sift(entry: os.DirEntry[str], bounds: Path) -> Path | _Folder | DefinitionProblem | None:
    """A file, a subfolder or a problem; None for an entry to skip."""
    path = Path(entry.path)
    is_markdown, is_folder = path.suffix.lower() == ".md", _is_folder(entry)
    if path.name.startswith(".") or not (is_markdown or is_folder):
        return None
    if entry.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(bounds):
        return _problem(path, f"not followed: the link leads out of {shown(bounds)}; put the file itself here")
    if is_folder and is_markdown:
        return _problem(path, "this is a folder, not a file")
    return _Folder(path) if is_folder else path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def read_file(path: Path, place: DefinitionFolder) -> AgentDefinition | DefinitionProblem:
    """Read one definition; a pipe, a device or a huge file is a problem and does not block."""
    relative = path.relative_to(place.folder).with_suffix("")
    origin = DefinitionOrigin(
        path=shown(path),
        file_name=shown(relative) if place.family == "opencode" else shown(relative.name),
        family=place.family,
        scope=place.scope,
    )
    try:
        content = read_bounded(path)
    except OSError as error:
        return DefinitionProblem(path=origin.path, message=f"cannot read the file: {error.strerror}")
    if content is None:
        return DefinitionProblem(path=origin.path, message="not a regular file")
    return read_content(content, origin)


def read_bounded(path: Path) -> bytes | None:
    """The content, at most one byte more than the limit; None if it is not a regular file."""
    real = Path(os.path.realpath(path))
    # Opening a device can have an effect, and the path may change before it is opened.
    if not stat.S_ISREG(real.stat().st_mode):
        return None
    descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(LIMIT_BYTES + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


def _problem(path: Path, message: str) -> DefinitionProblem:
    return DefinitionProblem(path=shown(path), message=message)


def shown(path: Path | str) -> str:
    """A path as valid Unicode."""
    return os.fsencode(path).decode(errors="replace")


class ShadowedAgent(Struct, frozen=True):
    """A definition that is not used because a nearer one has the same name."""

    definition: AgentDefinition
    by: AgentDefinition


class AgentCatalog(Struct, frozen=True, kw_only=True):
    """The definitions, nearest first, and the problems of other files."""

    agents: tuple[AgentDefinition, ...] = ()
    shadowed: tuple[ShadowedAgent, ...] = ()
    problems: tuple[DefinitionProblem, ...] = ()
    folders: tuple[DefinitionFolder, ...] = ()
    """The folders that were searched."""

    def matching(self, name: str) -> list[AgentDefinition]:
        """The definitions with this name, then those whose file has it; the nearest first."""
        by_name = [agent for agent in self.agents if agent.name == name]
        return by_name + [agent for agent in self.agents if agent.name != name and Path(agent.path).stem == name]


def load_agents(start: Path, home: Path, *, with_shipped: bool = False) -> AgentCatalog:
    """Read the definitions of the project around `start`, of the home directory, and the shipped ones."""
    looked_in = places(Path(os.path.realpath(start)), Path(os.path.realpath(home)))
    if with_shipped:
        looked_in.append(shipped_place())
    agents: dict[str, AgentDefinition] = {}
    shadowed: list[ShadowedAgent] = []
    problems: list[DefinitionProblem] = []
    seen: set[str] = set()
    for place in looked_in:
        # A folder that a link names again is read once.
        if (identity := os.path.realpath(place.folder)) in seen:
            continue
        seen.add(identity)
        for file in files_in(place):
            match file if isinstance(file, DefinitionProblem) else read_file(file, place):
                case DefinitionProblem() as problem:
                    problems.append(problem)
                case AgentDefinition() as agent if agent.name in agents:
                    shadowed.append(ShadowedAgent(agent, agents[agent.name]))
                case AgentDefinition() as agent:
                    agents[agent.name] = agent
    return AgentCatalog(
        agents=tuple(agents.values()), shadowed=tuple(shadowed), problems=tuple(problems), folders=tuple(looked_in)
    )
