"""Fallback: which model and backend to try first, and which next when one fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import UNSET, Struct

from deputy.core.errors import Error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NATIVE = "native"
INLINE = "inline"
NATIVE_FAILURES = 2
"""Failures of the native backend after which the root session skips it."""
RESUMES = 2
"""How often a program that timed out is resumed by its own session before the next candidate."""


InlineBy: TypeAlias = Literal["session", "parent", "never"]
"""Who does the work if no backend can: the session's own model, or the parent agent."""


class Routing(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which fallbacks are allowed when the first candidate fails."""

    falls_back: bool = True
    inline: InlineBy = "session"
    session_model: str = ""
    """The default model of the session."""


class FallbackTables(Struct, frozen=True, kw_only=True):
    """Chains of models and orders of backends; the user's config overrides them."""

    chains: Mapping[str, tuple[str, ...]]
    """By model name, the models to try after it, in order."""
    unknown: tuple[str, ...]
    """The chain of a model without an own one."""
    programs: Mapping[str, tuple[str, ...]]
    """By provider, the backends for its models, best first."""
    any_provider: tuple[str, ...]
    """Backends for models of any provider."""


SHIPPED_FALLBACK = FallbackTables(
    chains={
        "opus-4.6-thinking": ("sonnet-4.5-thinking", "sonnet-4.5"),
        "sonnet-4.5-thinking": ("sonnet-4.5",),
        "gpt-5.2": ("composer-1",),
        "gemini-3-pro": ("composer-1",),
        "composer-1": (),
    },
    unknown=("composer-1",),
    programs={
        "anthropic": ("acp:claude", "cli:claude"),
        "openai": ("acp:codex", "cli:codex"),
        "google": ("acp:gemini", "cli:gemini"),
        "opencode": ("acp:opencode", "cli:opencode"),
        "copilot": ("acp:copilot",),
        "qwen": ("acp:qwen",),
        "cursor": ("cli:cursor-agent",),
    },
    any_provider=("cli:cursor-agent",),
)


class Candidate(Struct, frozen=True, kw_only=True):
    """A model and a backend that can execute a delegation."""

    backend: str
    model: str

    def __str__(self) -> str:
        return f"{self.model} on {self.backend}"


Blame: TypeAlias = Literal["backend", "model", "work"]
"""What failed: the backend (try the model elsewhere), the model (try another one), or the work itself (no fallback)."""


class FailedAttempt(Struct, frozen=True, kw_only=True):
    """A candidate that was tried or skipped, and its error."""

    candidate: Candidate
    error: Error
    blame: Blame
    has_changed_something: bool = False
    """Whether it may have had an effect, so that the work must not start again."""


def candidates(
    model: str,
    provider_of: Mapping[str, str],
    tables: FallbackTables = SHIPPED_FALLBACK,
    *,
    falls_back: bool = True,
    allows_inline: bool = True,
    native_failures: int = 0,
) -> tuple[Candidate, ...]:
    """All candidates for a model, best first: its backends, those of its chain, then inline.

    `provider_of` maps the model names of the tables to providers.
    """
    models = (model, *chain_of(model, tables)) if falls_back else (model,)
    found = dict.fromkeys(
        Candidate(backend=backend, model=name)
        for name in dict.fromkeys(models)
        for backend in _backends(provider_of.get(name, ""), tables, native_failures)
    )
    # Without fallback there is only the first candidate, and no inline.
    ordered = tuple(found) if falls_back else tuple(found)[:1]
    inline = (Candidate(backend=INLINE, model=model),) if allows_inline and falls_back else ()
    return (*ordered, *inline)


def chain_of(model: str, tables: FallbackTables = SHIPPED_FALLBACK) -> tuple[str, ...]:
    """The models to try after this one."""
    chain = tables.chains.get(model, tables.unknown)
    return tuple(name for name in chain if name != model)


def _backends(provider: str, tables: FallbackTables, native_failures: int) -> Iterator[str]:
    own = tables.programs.get(provider, ())
    # Some models are only available through a program.
    if native_failures < NATIVE_FAILURES and provider not in PROGRAMS_ONLY:
        yield NATIVE
    yield from own
    yield from tables.any_provider


PROGRAMS_ONLY: Mapping[str, str] = {
    "cursor": "cursor-agent", "opencode": "opencode", "copilot": "copilot", "qwen": "qwen",
}  # fmt: skip
"""Providers without an API, and the program that has their models."""


def cannot_spawn(model: str, provider: str) -> str:
    """The error when neither a key nor a program for a model is available."""
    program = PROGRAMS_ONLY.get(provider)
    if program is None:
        return f"Cannot spawn subagents: no API key for provider {provider}"
    return f"Cannot spawn subagents: only {program} has the model {model!r:.100}, and it is not available here"


def next_candidate(candidates: Sequence[Candidate], steps: Sequence[FailedAttempt]) -> Candidate | None:
    """The candidate to try after these attempts; None if there is none, or a fallback is not allowed."""
    if not steps:
        return candidates[0] if candidates else None
    last = steps[-1]
    if last.blame == "work" or last.has_changed_something:
        return None
    gone = {step.candidate for step in steps}
    blamed = {step.candidate.model for step in steps if step.blame == "model"}
    at = candidates.index(last.candidate) if last.candidate in candidates else -1
    left = (candidate for candidate in candidates[at + 1 :] if candidate not in gone)
    return next((candidate for candidate in left if candidate.backend == INLINE or candidate.model not in blamed), None)


SILENT = "SILENT"
"""The code for no progress within the idle limit."""
_MODEL_CODES = frozenset({"MODEL_NOT_FOUND", "OVERLOADED", "REFUSED", "QUOTA_SPENT", "RATE_LIMITED"})
_BACKEND_CODES = frozenset(
    {
        "NO_API_KEY",
        "BAD_API_KEY",
        "MODEL_FAILED",
        "NETWORK_FAILED",
        "PROVIDER_FAILED",
        "STREAM_CUT",
        SILENT,
        "BAD_REPLY",
        "EMPTY_REPLY",
        "REPLY_TOO_LARGE",
        "BAD_REQUEST",
        "PROGRAM_NOT_INSTALLED",
        "PROGRAM_NOT_LOGGED_IN",
        "PROGRAM_WRONG_VERSION",
        "PROGRAM_CRASHED",
        "GRANT_NOT_HELD",
        "SESSION_GONE",
        "NO_ANSWER",
    }
)


def blame_of(error: Error) -> Blame:
    """What failed, by the error's code; unknown codes blame the work."""
    code = "" if error.code is UNSET else error.code
    if code in _MODEL_CODES:
        return "model"
    return "backend" if code in _BACKEND_CODES else "work"
