"""The local engine with the tools of its flow, as simulations are played on it."""

from typing import TYPE_CHECKING

from deputy.core.approval import PriceBounds
from deputy.runtime.engine import LocalEngine
from deputy.runtime.suspension import SUSPEND_SECONDS
from deputy.tools.ask import AskTool
from deputy.tools.delegate import DelegateTool
from deputy.tools.note import NoteTool

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.engine.ports import Files, FlowTool, Workflow, World
    from deputy.testing.memory_journal import MemoryJournal


class LocalStage:
    def __init__(self, engine: type[LocalEngine] = LocalEngine) -> None:
        self._engine = engine

    def open_engine(
        self,
        journal: "MemoryJournal",
        workflow: "Workflow",
        world: "World",
        *,
        is_over: "Callable[[str], None]",
        is_suspending: bool = False,
    ) -> LocalEngine:
        seconds = 0.0 if is_suspending else SUSPEND_SECONDS
        return self._engine(journal, workflow, world, is_over=is_over, suspend_seconds=seconds)

    def flow_tools(self, files: "Files") -> "tuple[FlowTool, ...]":
        return (
            NoteTool(files),
            AskTool(),
            DelegateTool(lambda _: None, lambda _: PriceBounds(lambda given, taken: None)),
        )
