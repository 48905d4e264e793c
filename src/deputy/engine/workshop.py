"""What all delegations of a process share: models, tools, bounds, counts and purses."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from deputy.core.guard import Policy, Ticket, admit
from deputy.core.limits import Budget, Census
from deputy.core.redact import Redactor
from deputy.engine.purse import Purse, amount

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deputy.core.conversation import ThinkingLevel
    from deputy.core.outcome import Rejected
    from deputy.core.progress import Progress
    from deputy.core.request import Grant, Request
    from deputy.engine.desk import Approval
    from deputy.engine.ports import Files, FlowTool, Model, RunContext, Tools, World
    from deputy.engine.ports.scripts import Scripts
    from deputy.engine.ports.subtasks import Subtasks


class Workshop:
    """The ports that delegations are carried out with, and what they have taken of the common bounds."""

    def __init__(
        self,
        *,
        world: World,
        open_model: Callable[[str], Model],
        open_tools: Callable[[Grant], Tools],
        ceiling: Callable[[str, int, int], int | None],
        thinking: Callable[[str], ThinkingLevel | None] = lambda _: None,
        windows: Mapping[str, int],
        files: Files,
        watch: Callable[[Progress], None],
        policy: Policy | None = None,
        redactor: Redactor | None = None,
        base_prompt: str = "",
        approval: Approval = "granted",
        can_ask: bool = False,
        flow_tools: tuple[FlowTool, ...] = (),
        subtasks: Subtasks | None = None,
        scripts: Scripts | None = None,
    ) -> None:
        self.world = world
        self.open_model = open_model
        self.open_tools = open_tools
        self.ceiling = ceiling
        self.thinking = thinking
        self._windows = windows
        self.files = files
        self.redactor = redactor or Redactor()
        self.watch = watch
        self.policy = policy or Policy()
        self.base_prompt = base_prompt
        self.approval: Approval = approval
        self.can_ask = can_ask
        self.flow_tools = flow_tools
        self.subtasks = subtasks
        self.scripts = scripts
        self._spawned: dict[str, set[str]] = {}
        """Who was ever admitted, by the root of the tree."""
        self._live: dict[str, str] = {}
        """Who is alive, and on which provider."""
        self._purses: dict[str, Purse] = {}
        self._told: dict[str, int] = {}
        """The round of each run that watchers know of."""

    def window(self, name: str, model: Model) -> int | None:
        """How much a model can hold: what the user says, else what the catalog knows."""
        return self._windows.get(name, model.context_window)

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
        if parent is None:
            admitted = {state.run for state in below if state.status != "rejected"}
            self._spawned.setdefault(run.run, set()).update(admitted)
        kept = self._purses.get(run.run)
        if kept is not None:
            return kept
        above = None if parent is None else self._purses.get(parent)
        purse = self._purses[run.run] = Purse(budget, above)
        purse.count(amount(run.state.usage))
        if above is not None:
            above.count_from(run.run, amount(run.state.usage))
        for state in below:
            purse.count_from(state.run, amount(state.usage))
        return purse

    def put_aside(self, run: str) -> None:
        """A run stopped that may go on: while it does not, others may still pay from its purse, where that has caps."""
        purse = self._purses.get(run)
        if purse is not None and not purse.is_capped:
            del self._purses[run]

    def forget(self, run: str) -> None:
        """A run is over, and its purse with it; so are those below it that were stopped."""
        purse = self._purses.pop(run, None)
        self._told.pop(run, None)
        if purse is not None and purse.is_capped:
            for below in [name for name, other in self._purses.items() if other.is_below(purse)]:
                del self._purses[below]

    # --- watchers -----------------------------------------------------------------------------------------------------

    def is_news(self, run: RunContext) -> bool:
        """Whether nobody was told yet that this round of a run began; one that is taken up again has begun."""
        is_told = self._told.get(run.run) == run.state.round
        self._told[run.run] = run.state.round
        return not is_told
