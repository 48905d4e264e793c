"""What all delegations of a process share: models, tools, bounds, counts and purses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.guard import Policy, Ticket, admit
from deputy.core.limits import Budget, Census
from deputy.engine.purse import Purse, amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deputy.core.outcome import Rejected
    from deputy.core.progress import Progress
    from deputy.core.request import Grant, Request
    from deputy.engine.desk import Approval
    from deputy.engine.ports import Files, FlowTool, Model, RunContext, Tools, World


class Workshop:
    """The ports that delegations are carried out with, and what they have taken of the common bounds."""

    def __init__(
        self,
        *,
        world: World,
        open_model: Callable[[str], Model],
        open_tools: Callable[[Grant], Tools],
        ceiling: Callable[[str, int, int], int | None],
        windows: Mapping[str, int],
        files: Files,
        watch: Callable[[Progress], None],
        policy: Policy | None = None,
        base_prompt: str = "",
        approval: Approval = "granted",
        can_ask: bool = False,
        flow_tools: tuple[FlowTool, ...] = (),
    ) -> None:
        self.world = world
        self.open_model = open_model
        self.open_tools = open_tools
        self.ceiling = ceiling
        self._windows = windows
        self.files = files
        self.watch = watch
        self.policy = policy or Policy()
        self.base_prompt = base_prompt
        self.approval: Approval = approval
        self.can_ask = can_ask
        self.flow_tools = flow_tools
        self._spawned: dict[str, int] = {}
        self._live: dict[str, int] = {}
        self._purses: dict[str, Purse] = {}

    def window(self, name: str, model: Model) -> int | None:
        """How much a model can hold: what the user says, else what the catalog knows."""
        return self._windows.get(name, model.context_window)

    # --- counts -------------------------------------------------------------------------------------------------------

    def admit(self, request: Request, now: float) -> Ticket | Rejected:
        """Admit a request against what is alive now; a ticket is counted as it is handed out."""
        root = request.caller.root_id
        census = Census(
            spawned=self._spawned.get(root, 0), live=sum(self._live.values()), live_by_provider=dict(self._live)
        )
        decision = admit(request, self.policy, census, now)
        if isinstance(decision, Ticket):
            self._spawned[root] = decision.census.spawned
            self._live = decision.census.live_by_provider
        return decision

    def readmit(self, request: Request) -> None:
        """Count a delegation that was admitted before, in another process or round."""
        root = request.caller.root_id
        self._spawned[root] = self._spawned.get(root, 0) + 1
        self._live[request.provider] = self._live.get(request.provider, 0) + 1

    def leave(self, request: Request) -> None:
        """A delegation is over."""
        self._live[request.provider] -= 1

    # --- purses -------------------------------------------------------------------------------------------------------

    def purse(self, run: RunContext, budget: Budget, parent: str | None) -> Purse:
        """The purse of a run, with what it spent before this process knew of it."""
        above = None if parent is None else self._purses.get(parent)
        purse = self._purses[run.run] = Purse(budget, above)
        purse.spend(amount(run.state.usage))
        return purse

    def forget(self, run: str) -> None:
        """A run is over, and its purse with it."""
        self._purses.pop(run, None)
