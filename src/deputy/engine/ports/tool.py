"""What a tool is to the engine, and what it is given and gives back."""

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
    """What the engine must know of a tool before it runs it; what is not said is taken for the worst."""

    reads_only: bool = False
    """It changes nothing, so that several of one turn may run at once."""
    repeatable: bool = False
    """A call that was under way when a process died may be made again."""
    is_local: bool = False
    """It asks nobody beyond this machine, and so costs nothing and tells nobody anything."""
    needs_approval: bool = True
    risk: Risk = "high"
    limit_seconds: float = TOOL_SECONDS
    """How long a call may take; until then it counts as activity."""


class ToolContext(Struct, frozen=True, kw_only=True):
    """What one call is given beside its arguments."""

    call_id: str = ""
    """The call's id; child processes carry it, so that what a dead process left running can be found."""
    output_bytes: int = 50_000
    """The most text that goes back to the model; what is longer is cut, and says so."""
    base: FileDigest | None = None
    """The file or directory that the call was approved for; the call is refused where it leads to another one."""


class Preview(Struct, frozen=True, kw_only=True):
    """What a person is shown of a call before they approve it: every argument, and what it would change."""

    parts: tuple[ApprovalPart, ...]
    base: FileDigest | None = None
    """The file that it would change, or the directory that it would run in, as it is now."""


class ToolOutput(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a call came to. A failure that the model can act on is an output too."""

    text: str
    is_error: bool = False
    changed: tuple[str, ...] = ()
    """Files of the workspace that the call wrote."""


class Advertised(Protocol):
    """What a model is told of a tool, and the engine must know of it."""

    @property
    def name(self) -> str:
        """What models call it."""
        ...

    @property
    def description(self) -> str:
        """What it does and when to use it, in words for models."""
        ...

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, which allows no others."""
        ...

    @property
    def traits(self) -> ToolTraits:
        """What the engine must know of it."""
        ...


class Tool(Advertised, Protocol):
    """Something a model can call."""

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Carry out one call. Bad arguments are an output that names every field, and nothing is done."""
        ...


@runtime_checkable
class PreviewedTool(Protocol):
    """A tool that shows itself what a call would do; of any other tool every argument is shown."""

    async def preview(self, arguments: Mapping[str, Any]) -> Preview:
        """What a call would do, as things are now; nothing is changed."""
        ...


class Tools(Protocol):
    """The tools that one agent has. Advertising fewer is no permission: the check is where they run."""

    def definitions(self) -> tuple[Tool, ...]:
        """The tools that are granted, in their order."""
        ...

    def find(self, name: str) -> Tool | None:
        """The tool of this name, if it is granted."""
        ...

    async def run(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run a tool that is granted, within its limit; anything else is refused, and nothing runs."""
        ...


class FlowTool(Advertised, Protocol):
    """A tool that is part of the flow itself: it notes, asks or delegates through the run."""

    @property
    def is_granted(self) -> bool:
        """Whether an agent needs a grant for it; those that touch nothing need none."""
        ...

    async def run(self, call: ToolCall, key: str, run: RunContext, agent: AgentContext) -> ToolOutput:
        """Carry out one call; every operation on the run has a key that begins with this one."""
        ...


class Agents(Protocol):
    """The agents whose definitions can be seen from the workspace."""

    def names(self) -> Sequence[str]:
        """The names to choose from, a bounded number of them."""
        ...

    async def find(self, name: str) -> Role | NoRole:
        """What a definition says now, in words that tools and models have here; or why it cannot be used."""
        ...


class Files(Protocol):
    """Scratchpads and the workspace, as the flow of a delegation needs them."""

    def scratchpad(self, label: str, session_id: str) -> str:
        """Where a subagent's notes are kept."""
        ...

    async def note(self, scratchpad: str, content: str) -> None:
        """Add a note to a scratchpad."""
        ...

    def open(self, grant: Grant, root: str = "") -> Folder:
        """What a grant gives of a directory, which is the workspace unless another is named."""
        ...


class TaskFiles(Struct, frozen=True, kw_only=True):
    """The files that a task names, as text before its prompt, and what could not be had of them."""

    text: str = ""
    warnings: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    """The files that are not as a person approved them."""


class Folder(Protocol):
    """The directory that one agent works in, as much of it as it is granted."""

    @property
    def root(self) -> str:
        """Its absolute path."""
        ...

    async def before_prompt(self, paths: Sequence[str], approved: Mapping[str, str] | None = None) -> TaskFiles:
        """The files that a task names, each under its path, within a bound; what cannot be read is named in place.

        Those in `approved` must have these digests; what differs is in `changed`.
        """
        ...

    async def named(self, paths: Sequence[str]) -> Sequence[PassedFile]:
        """The files that a subtask is always given: each with its text, or with why it cannot be had."""
        ...

    async def candidates(self) -> Sequence[PassedFile]:
        """The text files that may match a subtask, a bounded part of them; what ignore files leave out is left out."""
        ...

    async def digests(self, paths: Sequence[str]) -> Sequence[FileDigest]:
        """The files that a task names, as a person approves them."""
        ...

    async def facts(self, paths: Sequence[str]) -> Sequence[FileFact]:
        """What is on disk where artifacts are said to be; what cannot be looked at is not there."""
        ...

    async def changed_in(self, folder: str, since: float) -> Sequence[str]:
        """The files of a folder that were written since a moment, a bounded number of them."""
        ...
