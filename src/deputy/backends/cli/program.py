"""The description of a command-line program, and readers for its JSON."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, cast

from msgspec import MsgspecError, Struct, json

from deputy.backends.turn_recorder import TurnRecorder
from deputy.core.limits import exact
from deputy.core.outcome import Usage
from deputy.engine.ports.backend import BackendRequest

READING, WRITING, RUNNING = frozenset({"Read", "Grep", "Glob"}), frozenset({"Edit", "Write"}), frozenset({"Run"})

Fields: TypeAlias = dict[str, Any]

_CONTINUE = "Continue."
_MOST_TOKENS = 10**9
"""A larger count is not plausible and reads as 0."""


class Invocation(Struct, frozen=True, kw_only=True):
    """A request in the terms of one program."""

    program: Program
    request: BackendRequest
    model: str
    """The program's own name of the model; empty is its default."""
    environ: Mapping[str, str]
    place: str = ""
    """The folder that the program is limited to."""

    @property
    def tools(self) -> frozenset[str]:
        """The granted tools, by our names."""
        return self.request.grant.tools

    @property
    def may_write(self) -> bool:
        """Whether the grant allows changes to files; Run implies it."""
        return bool(self.tools & (WRITING | RUNNING))

    @property
    def may_run(self) -> bool:
        """Whether the grant allows commands."""
        return bool(self.tools & RUNNING)

    @property
    def session(self) -> str:
        """The id of the program's session to resume; empty for a new one."""
        resume = self.request.resume
        return "" if resume is None else resume.id

    @property
    def prompt(self) -> str:
        """The whole task, or only the new message when a session is resumed."""
        request = self.request
        if request.resume is not None:
            text = request.message or _CONTINUE
        else:
            text = "\n\n".join(piece for piece in (request.system, request.prompt, request.message) if piece)
        return text.encode("utf-8", "replace").decode()


class ModelCommand(Struct, frozen=True, kw_only=True):
    """The command by which a program lists its models."""

    arguments: tuple[str, ...]
    read: Callable[[str], Iterable[str]]
    """The program's own names in the text that it prints, the best choice first."""
    settings: Mapping[str, str] = {}
    """Variables that Deputy sets for it."""
    proves_login: bool = False
    """Whether it lists models only for a user who is logged in."""


class Program(Struct, frozen=True, kw_only=True):
    """One program."""

    name: str
    install: str
    """How to get it."""
    login: str
    """How to log in."""
    arguments: Callable[[Invocation], list[str]]
    read: Callable[[Fields, TurnRecorder], None] = lambda _fields, _recorder: None
    """Records one event of its output."""
    providers: tuple[str, ...] = ()
    """The providers whose models it has; empty is any."""
    separator: str = ""
    """The separator of provider and model in its own names; empty if they omit the provider."""
    model_names: Mapping[str, str] = {}
    """Its own names of models, where they differ."""
    always: frozenset[str] = frozenset()
    """Tools, by our names, that it always has, so they must be granted."""
    cannot_hold: Callable[[Invocation], str] = lambda _: ""
    """The part of a grant that it cannot be limited to; empty if there is none."""
    package: str = ""
    """Its npm package, whose version can be read without running the program."""
    least_version: tuple[int, ...] = ()
    is_version: Callable[[str], bool] = bool
    """Whether the output of `--version` can come from this program."""
    variables: tuple[str, ...] = ()
    """Patterns of environment variables that it gets."""
    variables_by: Mapping[str, tuple[str, ...]] = {}
    """Further patterns if this variable is set, or if the model is of this provider."""
    settings: Callable[[Invocation], Mapping[str, str]] = lambda _: {}
    """Variables that Deputy sets for it, unless the user has set them."""
    keys: tuple[str, ...] = ()
    """Variables with its key."""
    login_files: tuple[str, ...] = ()
    """Files in the home directory that exist when it is logged in."""
    key_files: tuple[str, ...] = ()
    """Its settings in the home directory, which may have a key as `apiKey`."""
    polite: signal.Signals = signal.SIGTERM
    """The signal that asks it to end."""
    grace_seconds: float = 1.5
    has_sessions: bool = True
    tells_all: bool = True
    """Whether it reports every tool call."""
    logged_out: tuple[str, ...] = ()
    """Lower-case texts of its output that mean: not logged in."""
    session_unknown: tuple[str, ...] = ()
    """Texts that mean: the session is unknown."""
    model_missing: tuple[str, ...] = ()
    """Texts that mean: the model is unknown."""
    refused: tuple[str, ...] = ()
    """Texts that mean: the model refused the task."""
    models: ModelCommand | None = None
    """How it lists its models; None if it has no command for it."""
    status_of_exit: Callable[[int], int | None] = lambda _: None
    """The provider's HTTP status in an exit code, if any."""


def json_object(line: bytes) -> Fields | None:
    """Parse a line; None when it is not a JSON object."""
    if line.lstrip()[:1] != b"{":
        return None
    try:
        return json.decode(line, type=Fields)
    except (MsgspecError, ValueError, RecursionError):
        return None


def part(fields: Fields, *names: str) -> Fields:
    """The nested object at these names; empty when there is none, as the input is untrusted."""
    value: Any = fields
    for name in names:
        value = cast("Fields", value).get(name) if isinstance(value, dict) else None
    return cast("Fields", value) if isinstance(value, dict) else {}


def parts(value: object) -> list[Fields]:
    """The objects in a list."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Fields", item) for item in items if isinstance(item, dict)]


def text_of(value: object) -> str:
    """A text, or the joined texts of a list of texts or blocks; empty for anything else."""
    if isinstance(value, str):
        return value
    items = cast("list[Any]", value) if isinstance(value, list) else []
    found = (cast("Fields", item).get("text") if isinstance(item, dict) else item for item in items)
    return "\n".join(text for text in found if isinstance(text, str))


def number_of(value: object) -> int:
    """A plausible count; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else 0


def cost_of(dollars: object) -> float | None:
    """Dollars; None when the value is not an amount."""
    if isinstance(dollars, bool) or not isinstance(dollars, int | float) or not 0 <= dollars < 1e6:
        return None
    return exact(float(dollars))


def usage_of(fields: Fields, given: str, output: str, cached: str, *beside: str) -> Usage:
    """Usage without a cost from the fields of these names; `beside` name tokens that `given` does not include."""
    return Usage(
        input=sum(number_of(fields.get(name)) for name in (given, *beside)),
        output=number_of(fields.get(output)),
        cached=number_of(fields.get(cached)),
        cost=None,
    )
