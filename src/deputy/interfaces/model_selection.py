"""Which model and backend a task uses, and what that can cost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from deputy.core.approval import cost_ceiling, cost_not_bounded
from deputy.core.errors import CannotSpawn, Unquoted, UsageError
from deputy.core.fallback import UNCHOSEN_SCOUT, cannot_spawn, is_function, no_model
from deputy.core.limits import dollars_text
from deputy.engine.fallback import why_unavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.approval import PriceBounds
    from deputy.core.fallback import Candidate
    from deputy.core.limits import Budget
    from deputy.core.task import Role, Task
    from deputy.options import DeputyOptions
    from deputy.wiring import Runtime


class ModelSelection:
    """The models and backends of an open Deputy."""

    def __init__(self, runtime: Runtime, options: DeputyOptions) -> None:
        self._runtime = runtime
        self._options = options
        self._default = options.model

    async def find(self) -> str | None:
        """The configured model; None when there is none."""
        if self._default is None:
            from deputy.models.default_model import choose_model

            choice = await choose_model(self._runtime.models, os.environ, self._options.settings.model)
            self._default = None if choice is None else choice.model
        if self._default is not None:
            self._runtime.models.check(self._default)
        return self._default

    async def default(self, tasks: Sequence[Task] = (), *, may_scout: bool = False) -> str:
        """The session's own model, which is used when a task names none; CannotSpawn without a configured model.

        When every task names a model, that of the first one is enough. With `may_scout`, the offline scout searches
        instead of a model; its tasks end as partial.
        """
        if (own := await self.find()) is not None:
            return own
        named = [task.model for task in tasks if task.model is not None]
        if tasks and len(named) == len(tasks):
            return named[0]
        if not may_scout:
            raise no_model()
        self._default = UNCHOSEN_SCOUT
        return UNCHOSEN_SCOUT

    async def for_role(self, role: Role | None) -> str:
        """The model given to this Deputy, else that of the agent definition, else the default."""
        own = None if role is None or self._options.model is not None else role.model
        model = own or await self.default()
        if is_function(model):
            raise UsageError("model", model, "a function is the target of a task; name a model for a parent agent")
        return model

    async def ensure_usable(self, *models: str) -> None:
        """Raise CannotSpawn unless each model has a key or an installed program; of placed runs the worker needs it."""
        if self._runtime.queue:
            return
        for model in dict.fromkeys(models):
            provider = self.missing_key(model)
            if provider is not None and not await self._runtime.backends.has_program(model):
                catalog = self._runtime.models.catalog
                keys = " or ".join(catalog.providers[provider].keys)
                how = f"Set {keys}" if keys else "Install the program (`deputy doctor` checks it)"
                near = [] if keys else [name for name in catalog.similar(model) if name != model]
                meant = f"Did you mean {' or '.join(near)}? " if near else ""
                raise CannotSpawn(cannot_spawn(model, provider), f"{meant}{how}, or name another model.")

    async def for_command(self, role: Role) -> str:
        """The model of a task command; it has a price if the cost is capped."""
        model = await self.for_role(role)
        if self._options.budget is not None:
            self.check_cost(self._options.budget, model, "budget.cost")
        return model

    def missing_key(self, model: str) -> str | None:
        """The provider whose key is missing for a model; None when there is a key."""
        return self._runtime.models.missing_key(model)

    async def backend_for(self, model: str) -> Candidate | None:
        """The backend and model that would run a task for `model` now; None when there is none.

        The last candidates are those of the session's own model.
        """
        backends, routing = self._runtime.backends, self._options.routing
        found, own = backends.candidates(model, falls_back=routing.falls_back), await self.find()
        if routing.falls_back and routing.inline != "never" and own is not None:
            found = (*found, *backends.candidates(own, falls_back=True))
        for candidate in found:
            if await why_unavailable(candidate, backends) is None:
                return candidate
        return None

    def provider_of(self, model: str) -> str:
        """The provider of a model."""
        return self._runtime.models.provider_of(model)

    def prices_of(self, model: str) -> PriceBounds:
        """The known price bounds of a model."""
        return self._runtime.models.prices_of(model)

    async def max_cost(self, tasks: Sequence[Task]) -> str:
        """The maximum cost of tasks, with the models that will really be used."""
        default = await self.default(tasks)
        used: dict[str, str] = {}
        for name in dict.fromkeys(task.model or default for task in tasks):
            candidate = await self.backend_for(name)
            used[name] = name if candidate is None else candidate.model
        left = None if self._options.budget is None else self._options.budget.cost
        return cost_ceiling(tasks, lambda task: self.prices_of(used[task.model or default]), left).text

    async def check_costs(self, tasks: Sequence[Task], budget: Budget) -> None:
        """Refuse cost limits for models without known prices, before anything is approved or spent."""
        for index, task in enumerate(tasks):
            # Without a cost limit the default model need not be known yet.
            if task.budget.cost is not None or budget.cost is not None:
                model = task.model or await self.default(tasks)
                self.check_cost(task.budget, model, f"tasks[{index}].budget.cost")
                self.check_cost(budget, model, "budget.cost")

    def check_cost(self, budget: Budget, model: str, field: str) -> None:
        """Refuse a cost limit for a model without known prices."""
        # A CLI backend reports its cost itself.
        if budget.cost is not None and self.missing_key(model) is None and not self.prices_of(model).are_known:
            raise UsageError(field, Unquoted(dollars_text(budget.cost)), cost_not_bounded(model))
