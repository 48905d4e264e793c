"""The backends of this machine: the native loop, installed programs, and functions of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.fallback import INLINE, NATIVE, SHIPPED_FALLBACK, Candidate, candidates, chain_of, is_function

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from deputy.backends.function_backend import AgentFunction
    from deputy.core.fallback import FallbackTables
    from deputy.core.redaction import Redactor
    from deputy.engine.ports import Backend
    from deputy.engine.ports.backend import OpenTextFiles


class BackendRegistry:
    """Finds backends by name; a program is looked up on first use."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        provider_of: Callable[[str], str],
        missing_key: Callable[[str], str | None],
        full_name: Callable[[str], str],
        native_failures: Callable[[str], Awaitable[int]],
        notice: Callable[[str], str] = lambda _: "",
        redactor: Redactor | None = None,
        open_files: OpenTextFiles | None = None,
        tables: FallbackTables = SHIPPED_FALLBACK,
        functions: Mapping[str, AgentFunction] | None = None,
    ) -> None:
        self._functions: Mapping[str, AgentFunction] = {} if functions is None else functions
        self._environ = environ
        self._provider_of = provider_of
        self._full_name = full_name
        self.notice = notice
        self._redactor = redactor
        self._open_files = open_files
        self._tables = tables
        self._opened: dict[str, Backend | None] = {}
        self._missing_key = missing_key
        self._native_failures = native_failures

    def candidates(self, model: str, *, falls_back: bool) -> tuple[Candidate, ...]:
        """The candidates for a model, best first, without inline; native only if its provider has no program."""
        if is_function(model):
            return (Candidate(backend=model, model=model),)
        if self._provider_of(model) not in self._tables.programs:
            return (Candidate(backend=NATIVE, model=model),)
        chain = chain_of(self._chained(model), self._tables)
        found = candidates(
            model,
            {name: self._provider_of(name) for name in (model, *chain)},
            structs.replace(self._tables, chains={**self._tables.chains, model: chain}),
            falls_back=falls_back,
            allows_inline=False,
        )
        return tuple(
            candidate
            for candidate in found
            if candidate.backend == NATIVE or (candidate.backend != INLINE and self.open(candidate.backend) is not None)
        )

    def _chained(self, model: str) -> str:
        """The name of a model in the table of chains; the model itself if it has no chain."""
        chains = self._tables.chains
        if model in chains:
            return model
        asked = self._identity(model)
        same = (name for name in chains if self._identity(name) == asked)
        # A chain that contains the model belongs to another name of it, with thinking.
        return next((name for name in same if asked not in map(self._identity, chains[name])), model)

    def _identity(self, name: str) -> tuple[str, str]:
        provider = self._provider_of(name)
        return provider, self._full_name(name).removeprefix(f"{provider}:")

    def missing_key(self, model: str) -> str | None:
        """The provider whose key is missing for a model; None when there is a key."""
        return self._missing_key(model)

    async def native_failures(self, root: str) -> int:
        """The number of failures of the native backend in the tree of a root session."""
        return await self._native_failures(root)

    def open(self, backend: str) -> Backend | None:
        """The backend of this name; None when it is unknown."""
        if backend not in self._opened:
            self._opened[backend] = self._found(*backend.split(":", 1))
        return self._opened[backend]

    def _found(self, kind: str, name: str = "") -> Backend | None:
        if kind == "cli":
            from deputy.backends.cli import cli_backend

            return cli_backend(name, self._environ, self._redactor)
        if kind == "acp" and self._open_files is not None:
            from deputy.backends.acp import acp_backend

            return acp_backend(name, self._environ, self._open_files, self._redactor)
        if is_function(f"{kind}:") and name in self._functions:
            from deputy.backends.function_backend import FunctionBackend

            return FunctionBackend(f"{kind}:{name}", self._functions[name])
        return None

    def model_for(self, candidate: Candidate) -> str:
        """The full name of a candidate's model."""
        return self._full_name(candidate.model)

    async def has_program(self, model: str) -> bool:
        """Whether an installed program could run a model."""
        from deputy.engine.ports import Ready

        every = self.candidates(model, falls_back=True)
        programs = [self.open(candidate.backend) for candidate in every if candidate.backend != NATIVE]
        return any([isinstance(await program.check(), Ready) for program in programs if program is not None])
