"""Fallback: which model and backend to try first, and which next when one fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

from deputy.core.errors import HOW_TO_CHOOSE_MODEL, Blame, CannotSpawn, Error, new_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SCRIPT = "script:"
SCOUT = "offline:scout"
UNCHOSEN_SCOUT = f"{SCOUT} (no model is configured)"
"""The scout when it was not chosen: it only searches, so its tasks end as partial."""
ONLY_A_PERSON = "only the person who runs Deputy may name a script, not a caller, a text or a project's file"
NATIVE = "native"
INLINE = "inline"
FUNCTION = "python:"
"""The start of the names of functions, as models and as backends."""
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


class FallbackTables(Struct, frozen=True, kw_only=True):
    """Chains of models and orders of backends; the user's config overrides them."""

    chains: Mapping[str, tuple[str, ...]]
    """By model name, the models to try after it, in order."""
    unknown: tuple[str, ...]
    programs: Mapping[str, tuple[str, ...]]
    """By provider, the backends for its models, best first."""
    any_provider: tuple[str, ...]


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


LOGIN_FILES: Mapping[str, tuple[str, ...]] = {
    "claude": (".claude/.credentials.json",),
    "codex": (".codex/auth.json",),
    "copilot": (),
    "cursor-agent": (".config/cursor/auth.json",),
    "gemini": (".gemini/oauth_creds.json",),
    "opencode": (".local/share/opencode/auth.json",),
    "qwen": (".qwen/oauth_creds.json",),
}
"""Files that exist when a program is logged in."""

OTHER_CREDENTIAL_FILES = (
    ".config/deputy/config.toml",
    ".copilot/config.json",
    ".cursor/cli-config.json",
    ".config/github-copilot/hosts.json",
    ".config/github-copilot/apps.json",
    ".gemini/google_accounts.json",
    ".local/share/opencode/mcp-auth.json",
)
"""Other files with keys or tokens, which do not show a login; Deputy's configuration is one."""


class Candidate(Struct, frozen=True, kw_only=True):
    """A model and a backend that can execute a delegation."""

    backend: str
    model: str

    def __str__(self) -> str:
        return f"{self.model} on {self.backend}"


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
) -> tuple[Candidate, ...]:
    """All candidates for a model, best first: its backends, those of its chain, then inline.

    `provider_of` maps the model names of the tables to providers.
    """
    models = (model, *chain_of(model, tables)) if falls_back else (model,)
    found = dict.fromkeys(
        Candidate(backend=backend, model=name)
        for name in dict.fromkeys(models)
        for backend in _backends(provider_of.get(name, ""), tables)
    )
    # Without fallback there is only the first candidate, and no inline.
    ordered = tuple(found) if falls_back else tuple(found)[:1]
    inline = (Candidate(backend=INLINE, model=model),) if allows_inline and falls_back else ()
    return (*ordered, *inline)


def is_script(name: str) -> bool:
    """Whether a name stands for a file; such a name can make Deputy read any file."""
    return name.startswith(SCRIPT)


def is_function(name: str) -> bool:
    """Whether a name stands for a function of the program."""
    return name.startswith(FUNCTION)


def chain_of(model: str, tables: FallbackTables = SHIPPED_FALLBACK) -> tuple[str, ...]:
    """The models to try after this one."""
    chain = tables.chains.get(model, tables.unknown)
    return tuple(name for name in chain if name != model)


def _backends(provider: str, tables: FallbackTables) -> Iterator[str]:
    own = tables.programs.get(provider, ())
    # Some models are only available through a program.
    if provider not in PROGRAMS_ONLY:
        yield NATIVE
    yield from own
    yield from tables.any_provider


PROGRAMS_ONLY: Mapping[str, str] = {
    "cursor": "cursor-agent", "opencode": "opencode", "copilot": "copilot", "qwen": "qwen",
}  # fmt: skip
"""Providers without an API, and the program that has their models."""


def no_model() -> CannotSpawn:
    """The error when no model is configured."""
    return CannotSpawn("Cannot spawn subagents: no model is configured", HOW_TO_CHOOSE_MODEL)


def cannot_spawn(model: str, provider: str) -> str:
    """The error when neither a key nor a program for a model is available."""
    program = PROGRAMS_ONLY.get(provider)
    if program is None:
        return f"Cannot spawn subagents: no API key for provider {provider}"
    if ":" in model or model in SHIPPED_FALLBACK.chains:
        return f"Cannot spawn subagents: only {program} has the model {model!r:.100}, and it is not available here"
    # A program may know names that no catalog has.
    unknown = f"no provider lists the model {model!r:.100}, and {program}, which may have it, is not available here"
    return f"Cannot spawn subagents: {unknown}"


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
DO_IT_YOURSELF = "DO_IT_YOURSELF"


# --- candidates that cannot be used -----------------------------------------------------------------------------------


def no_key(provider: str) -> Error:
    """The native backend has no key for the provider."""
    return new_error("NO_API_KEY", f"No API key for provider {provider}.")


def native_skipped() -> Error:
    """The native backend has failed too often in this root session."""
    return new_error("NATIVE_SKIPPED", f"Native is skipped: it failed {NATIVE_FAILURES} times in this session.")


def not_installed(backend: str) -> Error:
    """No installed adapter can run the backend."""
    return new_error("PROGRAM_NOT_INSTALLED", f"Backend {backend!r} is not installed.")


def not_inline(model: str) -> Error:
    """The session's own model has failed already."""
    message = f"Inline execution is not possible: the session's own model {model} has just failed."
    return new_error("MODEL_FAILED", message, "Try again later, or with another model.", recoverable=True)


def do_it_yourself() -> Error:
    """The task goes back to its caller."""
    return new_error(DO_IT_YOURSELF, "No subagent is available for this task.")


def not_agreed(backend: str, tools: str) -> Error:
    """The backend's program would use writing tools without approval."""
    return new_error("GRANT_NOT_HELD", f"{backend} would use {tools} without asking, and this was not approved.")
