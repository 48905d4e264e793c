"""What all delegations of a process share: models, tools, bounds, counts and purses."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from deputy.core.guard import Policy, Ticket, admit
from deputy.core.limits import Budget, Census
from deputy.core.redact import Redactor
from deputy.engine.desk import Offer
from deputy.engine.purse import Purse, amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deputy.core.outcome import Rejected
    from deputy.core.progress import Progress
    from deputy.core.request import Grant, Request
    from deputy.engine.desk import Approval
    from deputy.engine.ports import Files, FlowTool, Model, RunContext, Tool, Tools, World


_OFFERS = 64


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
        redactor: Redactor | None = None,
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
        self.redactor = redactor or Redactor()
        self.watch = watch
        self.policy = policy or Policy()
        self.base_prompt = base_prompt
        self.approval: Approval = approval
        self.can_ask = can_ask
        self.flow_tools = flow_tools
        self._spawned: dict[str, set[str]] = {}
        """Who was ever admitted, by the root of the tree."""
        self._live: dict[str, str] = {}
        """Who is alive, and on which provider."""
        self._purses: dict[str, Purse] = {}
        self._offers: dict[tuple[int, ...], Offer] = {}

    def window(self, name: str, model: Model) -> int | None:
        """How much a model can hold: what the user says, else what the catalog knows."""
        return self._windows.get(name, model.context_window)

    def offer(self, tools: tuple[Tool | FlowTool, ...]) -> Offer:
        """These tools as models are told of them; who has the same tools shares what is told."""
        # An offer holds its tools, so that no others can have their identities while it is kept.
        key = tuple(map(id, tools))
        if key not in self._offers:
            if len(self._offers) >= _OFFERS:
                self._offers.clear()
            self._offers[key] = Offer(tools)
        return self._offers[key]

    # --- counts -------------------------------------------------------------------------------------------------------

    def admit(self, request: Request, now: float) -> Ticket | Rejected:
        """Admit a request against what is alive now; a ticket is counted as it is handed out."""
        spawned = self._spawned.get(request.caller.root_id, ())
        census = Census(spawned=len(spawned), live=len(self._live), live_by_provider=dict(Counter(self._live.values())))
        decision = admit(request, self.policy, census, now)
        if isinstance(decision, Ticket):
            self.readmit(request)
        return decision

    def readmit(self, request: Request) -> None:
        """Count a delegation that is admitted, be it again in another process or round."""
        self._spawned.setdefault(request.caller.root_id, set()).add(request.session_id)
        self._live[request.session_id] = request.provider

    def leave(self, run: str) -> None:
        """A delegation is over, or was never let in."""
        self._live.pop(run, None)

    # --- purses -------------------------------------------------------------------------------------------------------

    async def open_purse(self, run: RunContext, budget: Budget, parent: str | None) -> Purse:
        """The purse of a run, with what it and the runs below it spent before this process knew of them."""
        below = await run.below() if run.state.counts.children else ()
        above = None if parent is None else self._purses.get(parent)
        purse = self._purses[run.run] = Purse(budget, above)
        purse.count(amount(run.state.usage))
        if above is not None:
            above.count_from(run.run, amount(run.state.usage))
        for state in below:
            purse.count_from(state.run, amount(state.usage))
        if parent is None:
            admitted = {state.run for state in below if state.status != "rejected"}
            self._spawned.setdefault(run.run, set()).update(admitted)
        return purse

    def forget(self, run: str) -> None:
        """A run is over, and its purse with it."""
        self._purses.pop(run, None)
