"""The ways that this machine has: our own loop where there is a key, and the programs that are installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from deputy.core.fallback import INLINE, NATIVE, SHIPPED_FALLBACK, Candidate, candidates, chain_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from deputy.core.fallback import FallbackTables
    from deputy.core.redaction import Redactor
    from deputy.engine.ports import Backend
    from deputy.engine.ports.text_files import OpenTextFiles


class BackendRegistry:
    """What can carry out work here; programs are looked for when they are first asked for."""

    def __init__(
        self,
        *,
        environ: Mapping[str, str],
        provider_of: Callable[[str], str],
        missing_key: Callable[[str], str | None],
        full_name: Callable[[str], str],
        native_failures: Callable[[str], Awaitable[int]],
        redactor: Redactor | None = None,
        open_files: OpenTextFiles | None = None,
        tables: FallbackTables = SHIPPED_FALLBACK,
    ) -> None:
        self._environ = environ
        self._provider_of = provider_of
        self._full_name = full_name
        self._redactor = redactor
        self._open_files = open_files
        self._tables = tables
        self._opened: dict[str, Backend | None] = {}
        self._missing_key = missing_key
        self._native_failures = native_failures

    def candidates(self, model: str, *, falls_back: bool, native_failures: int) -> tuple[Candidate, ...]:
        """Every way but inline, best first; a model whose provider has no program of its own is only asked by us."""
        if self._provider_of(model) not in self._tables.programs:
            return (Candidate(backend=NATIVE, model=model),)
        chain = chain_of(self._chained(model), self._tables)
        found = candidates(
            model,
            {name: self._provider_of(name) for name in (model, *chain)},
            structs.replace(self._tables, chains={**self._tables.chains, model: chain}),
            falls_back=falls_back,
            native_failures=native_failures,
            allows_inline=False,
        )
        return tuple(
            candidate for candidate in found if candidate.backend != INLINE and self._is_known(candidate.backend)
        )

    def _chained(self, model: str) -> str:
        """The name that the chain of a model goes by, whatever it is called here; its own where it has none."""
        chains = self._tables.chains
        if model in chains:
            return model
        asked = self._identity(model)
        same = (name for name in chains if self._identity(name) == asked)
        # A chain that leads to the model itself is another's, which is the same with thinking.
        return next((name for name in same if asked not in map(self._identity, chains[name])), model)

    def _identity(self, name: str) -> tuple[str, str]:
        provider = self._provider_of(name)
        return provider, self._full_name(name).removeprefix(f"{provider}:")

    def missing_key(self, model: str) -> str | None:
        """The provider whose key is missing for a model; None when it can be asked."""
        return self._missing_key(model)

    async def native_failures(self, root: str) -> int:
        """How often the native backend has failed in the tree of a root session."""
        return await self._native_failures(root)

    def open(self, backend: str) -> Backend | None:
        """The program of this name; None when nothing here speaks to it."""
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
        return None

    def model_for(self, candidate: Candidate) -> str:
        """The model of a rung by its provider's name, which programs have names of their own for."""
        return self._full_name(candidate.model)

    async def has_program(self, model: str) -> bool:
        """Whether a program that is there could carry out what is asked of a model."""
        from deputy.engine.ports import Ready

        ladder = self.candidates(model, falls_back=True, native_failures=0)
        programs = [self.open(candidate.backend) for candidate in ladder if candidate.backend != NATIVE]
        return any([isinstance(await program.check(), Ready) for program in programs if program is not None])

    def _is_known(self, backend: str) -> bool:
        return backend == NATIVE or self.open(backend) is not None
