"""The ports for tools, agents, workspace files and git worktrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from deputy.core.approval import ApprovalPart, FileDigest, Risk
from deputy.core.limits import TOOL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deputy.core.contract import FileFact
    from deputy.core.conversation import ToolCall
    from deputy.core.request import Grant
    from deputy.core.subtask.context_passing import PassedFile
    from deputy.core.task import NoRole, Role
    from deputy.engine.agent_context import AgentContext
    from deputy.engine.ports.durable import RunContext

# --- tools ------------------------------------------------------------------------------------------------------------


class ToolTraits(Struct, frozen=True, kw_only=True):
    """What the engine must know about a tool before a call; the defaults assume the worst."""

    reads_only: bool = False
    """It changes nothing; such calls of one turn run concurrently."""
    repeatable: bool = False
    """An interrupted call may be repeated."""
    is_local: bool = False
    """It contacts no other machine, so it costs and discloses nothing."""
    needs_approval: bool = True
    risk: Risk = "high"
    limit_seconds: float = TOOL_SECONDS
    """The timeout of a call; until then it counts as activity."""
    is_offered: bool = True
    """Whether models get its definition; a call of another tool only says what is missing."""


class ToolContext(Struct, frozen=True, kw_only=True):
    """The context of one tool call."""

    call_id: str = ""
    """The call's id; child processes carry it so that orphans can be found."""
    output_bytes: int = 50_000
    """The output limit; longer output is cut and marked."""
    base: FileDigest | None = None
    """The approved file or directory; a call that resolves to another one is refused."""
    held: tuple[str, ...] = ()
    """The names of all tools that the caller has."""


class Preview(Struct, frozen=True, kw_only=True):
    """What a person sees before approving a call: every argument, and what it would change."""

    parts: tuple[ApprovalPart, ...]
    base: FileDigest | None = None
    """The file to change or the directory to run in, as it is now."""


class ToolOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The output of a call. A failure that the model can act on is an output too."""

    text: str
    is_error: bool = False
    reason: str = ""
    """Why it failed, for views, where the text begins with something else."""
    changed: tuple[str, ...] = ()
    is_our_own: bool = False
    """Whether the text is words of Deputy, such as an error; any other text is untrusted data."""
    data: str = ""
    """Untrusted data after words of our own, such as the names of the files that exist."""
    trace: str = ""
    """The stack trace of an exception, for the error log; the model does not get it."""


class Advertised(Protocol):
    """The definition of a tool."""

    @property
    def name(self) -> str:
        """The name by which models call it."""
        ...

    @property
    def description(self) -> str:
        """What it does and when to use it, for models."""
        ...

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, without additional properties."""
        ...

    @property
    def traits(self) -> ToolTraits:
        """What the engine must know about it."""
        ...


class Tool(Advertised, Protocol):
    """A tool that models can call."""

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run one call. Invalid arguments return an output that names every field, and nothing runs."""
        ...


@runtime_checkable
class PreviewedTool(Protocol):
    """A tool with a preview of its own; for other tools every argument is shown."""

    def refusal(self, arguments: Mapping[str, Any]) -> str:
        """Why a call with these arguments can never run; empty if it can."""
        ...

    async def preview(self, arguments: Mapping[str, Any]) -> Preview:
        """What a call would do now; changes nothing."""
        ...


class Tools(Protocol):
    """The tools granted to one agent. The grant is checked where tools run, not where they are advertised."""

    def definitions(self) -> tuple[Tool, ...]:
        """The granted tools, in order."""
        ...

    def find(self, name: str) -> Tool | None:
        """The granted tool of this name."""
        ...

    async def run(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run a granted tool within its timeout; any other tool is refused."""
        ...


class FlowTool(Advertised, Protocol):
    """A tool that is part of the flow: it notes, asks or delegates through the run."""

    @property
    def is_granted(self) -> bool:
        """Whether an agent needs a grant for it; tools without side effects need none."""
        ...

    async def run(self, call: ToolCall, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Run one call; every key it uses on the run begins with `key`."""
        ...


class Agents(Protocol):
    """The agent definitions that are visible in the workspace."""

    def names(self) -> Sequence[str]:
        """The available names, up to a bound."""
        ...

    async def find(self, name: str) -> Role | NoRole:
        """The current definition, with resolved tool and model names; or why it cannot be used."""
        ...


class Files(Protocol):
    """Scratchpads and the workspace."""

    async def begin_scratchpad(self, label: str, session_id: str) -> str:
        """The path of a subagent's scratchpad, which exists from then on."""
        ...

    async def note(self, scratchpad: str, content: str) -> None:
        """Append a note to a scratchpad."""
        ...

    def open(self, grant: Grant, root: str = "") -> Folder:
        """A directory within a grant; by default the workspace."""
        ...


class TaskFiles(Struct, frozen=True, kw_only=True):
    """A task's context files as text before the prompt."""

    text: str = ""
    warnings: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """Files that differ from the approved version."""


class Folder(Protocol):
    """The working directory of one agent, within its grant."""

    @property
    def root(self) -> str:
        """Its absolute path."""
        ...

    def approval_id(self) -> tuple[str, str]:
        """Its name for a person who approves, and what tells it from another directory of that name."""
        ...

    async def before_prompt(self, paths: Sequence[str], approved: Mapping[str, str] | None = None) -> TaskFiles:
        """The context files, each under its path, within a bound; an unreadable file is named in place.

        Files in `approved` must have these digests; others are listed in `changed`.
        """
        ...

    async def named(self, paths: Sequence[str]) -> Sequence[PassedFile]:
        """The fixed files of a subtask: each with its text, or with the reason why it cannot be read."""
        ...

    async def candidates(self) -> Sequence[PassedFile]:
        """Text files that may match a subtask, up to a bound; ignored files are left out."""
        ...

    async def digests(self, paths: Sequence[str]) -> Sequence[FileDigest]:
        """The digests of the context files, for approval."""
        ...

    async def facts(self, paths: Sequence[str]) -> Sequence[FileFact]:
        """The state of artifact files on disk; an unreadable file counts as missing."""
        ...

    async def changed_in(self, folder: str, since: float) -> Sequence[str]:
        """The files of a folder changed since a time, up to a bound."""
        ...


# --- worktrees --------------------------------------------------------------------------------------------------------


class Worktree(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The git worktree of one run, on its own branch."""

    root: str
    """The root of the tools: the counterpart of the directory it was made from."""
    folder: str
    branch: str
    base: str
    is_behind: bool = False
    """Whether the source directory had uncommitted changes, which the worktree lacks."""


class NoWorktree(Struct, frozen=True, kw_only=True):
    """The reason why no worktree can be made."""

    reason: str


class WorktreeChanges(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a worktree: changed files and the branch that holds them."""

    changed: tuple[str, ...] = ()
    branch: str = ""
    warning: str = ""
    """What could not be committed."""


class Worktrees(Protocol):
    """Opens and closes worktrees."""

    @property
    def must_isolate(self) -> bool:
        """Whether a run that writes needs a worktree, because its workspace is a copy."""
        ...

    async def open(self, run: str, label: str, root: str, base: str = "") -> Worktree | NoWorktree:
        """Make a run's worktree from a directory, at a commit or at HEAD; a second call returns the same one."""
        ...

    async def locate(self, root: str) -> str:
        """The folder of a caller, as it was recorded, on this machine."""
        ...

    async def restore(self, run: str, place: Worktree) -> Worktree:
        """A recorded worktree on this machine; on another one it is made anew, with the work that is stored of it."""
        ...

    async def close(self, place: Worktree, title: str, named: Sequence[str] = ()) -> WorktreeChanges:
        """Commit the changes to the branch, including `named` files that git ignores.

        A worktree without changes is removed.
        """
        ...
