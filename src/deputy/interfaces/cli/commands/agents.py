"""`deputy agents`: list the agent definitions that apply to a directory, with warnings."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import NOTHING_FOUND, Console, counted, with_console
from deputy.interfaces.text_lines import one_line, page_width, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deputy.agents.agent_files import AgentCatalog, ShadowedAgent
    from deputy.agents.definition import AgentDefinition

INHERITED = "the caller's"

EXAMPLE = """\
To define one, write .deputy/agents/reviewer.md:

    ---
    name: reviewer
    description: Reviews a change and reports what is wrong with it.
    tools: Read, Grep, Glob
    ---
    You review code. Read what changed, then report what is wrong, worst first."""


with_dir = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    default=".",
    type=click.Path(exists=True, file_okay=False),
    help="Start in DIR instead of the current directory.",
)


@click.command("agents")
@with_dir
@click.option("--shipped", "with_shipped", is_flag=True, help="Also list the definitions that come with Deputy.")
@with_console()
def command(console: Console, directory: str, with_shipped: bool) -> int:
    """List agent definitions, with warnings.

    An agent definition is a Markdown file with front matter (name, description, tools, model …) and the agent's
    instructions below it. Deputy looks in .deputy/agents, .claude/agents and .opencode/agent(s): in DIR and above
    it up to the root of the repository, then in your home directory. Of two definitions with one name the nearer
    one is used. Any of them replaces a definition of that name that comes with Deputy.

    A file with small mistakes is still read; a warning names the line and the correction.

    \b
    Examples:
      deputy agents                     agents for this directory
      deputy agents --dir ../service    agents for another project
      deputy agents --json | jq -r '.agents[].name'

    \b
    Exit codes:
      0 found some   2 usage   3 found none
    """
    from deputy.agents.agent_files import load_agents

    catalogue = load_agents(start_folder(directory), home(), with_shipped=with_shipped)
    console.show(catalog_dict(catalogue), _as_text(catalogue))
    return 0 if catalogue.agents else NOTHING_FOUND


def start_folder(directory: str) -> Path:
    """The absolute path of --dir."""
    try:
        return Path(directory).resolve(strict=True)
    except OSError as error:
        raise UsageError("--dir", directory, f"cannot look from there: {error.strerror}; give a directory") from error


def home() -> Path:
    """The user's home directory."""
    try:
        return Path.home()
    except RuntimeError:
        # A user without HOME and without a passwd entry, as in many containers.
        return Path("/")


def catalog_dict(catalogue: AgentCatalog) -> dict[str, Any]:
    """The catalog as JSON."""
    shadowed = [(item.definition.path, 1, _shadow(item)) for item in catalogue.shadowed]
    problems = [(problem.path, problem.line, problem.message) for problem in catalogue.problems]
    return {
        "agents": [_agent_as_data(agent) for agent in catalogue.agents],
        "problems": [_remark_as_data(*problem) for problem in (*problems, *shadowed)],
    }


def _agent_as_data(agent: AgentDefinition) -> dict[str, Any]:
    return {
        "name": plain(agent.name),
        "description": plain(agent.description),
        "tools": None if agent.tools is None else [plain(tool) for tool in agent.tools],
        "model": None if agent.model is None else plain(agent.model),
        "path": _near(agent.path),
        "source": agent.source,
        "warnings": [_remark_as_data(agent.path, line, message) for line, message in _warnings(agent)],
    }


def _remark_as_data(path: str, line: int | None, message: str) -> dict[str, Any]:
    return {"path": _near(path), "line": line, "message": plain(message)}


def _as_text(catalogue: AgentCatalog) -> Iterator[str]:
    for agent in catalogue.agents:
        yield from _describe(agent)
    if catalogue.shadowed:
        yield "Not used:"
        for item in catalogue.shadowed:
            yield from _item(f"{_short(item.definition.path)}: {_shadow(item)}")
        yield ""
    if catalogue.problems:
        yield "Problems:"
        for problem in catalogue.problems:
            yield from _item(f"{_short(problem.path)}{_at(problem.line)}: {problem.message}")
        yield ""
    if catalogue.agents:
        warnings = [warning for agent in catalogue.agents for warning in _warnings(agent)]
        counts = {"agent": catalogue.agents, "warning": warnings, "problem": catalogue.problems}
        yield ", ".join(counted(len(things), word) for word, things in counts.items())
    else:
        yield from _nothing_found(catalogue)


def _describe(agent: AgentDefinition) -> Iterator[str]:
    width = page_width()
    name = one_line(agent.name, width - len(agent.source) - 2)
    yield f"{name}{agent.source:>{width - len(name)}}"
    if agent.description:
        yield f"  {one_line(_first_sentence(agent.description), width - 2)}"
    yield f"  {one_line(f'model: {agent.model or INHERITED} · tools: {_tools(agent)}', width - 2)}"
    yield f"  {_short(agent.path)}"
    for line, message in _warnings(agent):
        yield from _item(f"line {line}: {message}" if line else message)
    yield ""


def _warnings(agent: AgentDefinition) -> list[tuple[int | None, str]]:
    """The remarks of the reader, and the tools that do not exist."""
    from deputy.agents.resolve_role import unknown_tools

    found: list[tuple[int | None, str]] = [(remark.line, remark.message) for remark in agent.warnings]
    if missing := unknown_tools(agent):
        found.append((None, f"no such tools, so they are not granted: {', '.join(missing)}"))
    return found


def _tools(agent: AgentDefinition) -> str:
    granted = INHERITED if agent.tools is None else ", ".join(agent.tools) or "none"
    return f"{granted}, without {', '.join(agent.disallowed_tools)}" if agent.disallowed_tools else granted


def _first_sentence(text: str) -> str:
    line = text.partition("\n")[0]
    sentence, stop, _ = line.partition(". ")
    return sentence + stop.rstrip()


def _shadow(item: ShadowedAgent) -> str:
    return f"shadowed by {_near(item.by.path)} ({item.by.source}), which is nearer and also defines {item.by.name!r}"


def _nothing_found(catalogue: AgentCatalog) -> Iterator[str]:
    from deputy.agents.agent_files import shown

    yield "No agent definitions found. Looked in:"
    yield from (f"  {_short(shown(place.folder))}" for place in catalogue.folders)
    yield ""
    yield EXAMPLE


def _item(text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(plain(text).split()),
        page_width(),
        initial_indent="  ! ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _at(line: int | None) -> str:
    return "" if line is None else f", line {line}"


def _short(path: str) -> str:
    """A path relative to here or to the home directory."""
    near, above = _near(path), f"{home()}/"
    return f"~/{near.removeprefix(above)}" if near.startswith(above) else near


def _near(path: str) -> str:
    """A path relative to here when it is below, else unchanged."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return plain(path)
    return plain(path).removeprefix(f"{here}/")
