"""One Delegate call of an agent of another framework: its arguments in, the results of its tasks as text out."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from deputy.core.errors import UsageError
from deputy.core.request import ALWAYS_GRANTED, READ_ONLY_TOOLS
from deputy.core.results import Result, results_dict, results_markdown
from deputy.core.task import DELEGATE, DelegateCall
from deputy.core.visible_text import visible_json
from deputy.engine.untrusted import wrap_untrusted
from deputy.tools.delegate import arguments_for_models, problems_text, read_wanted
from deputy.tools.struct_tool import described

if TYPE_CHECKING:
    from collections.abc import Collection

    from deputy.client import Deputy


class DelegateFunction:
    """The Delegate tool as a function of an open Deputy.

    Tasks may use the read-only tools and those that `allow` names, also through the agents that they name.
    """

    name = DELEGATE

    def __init__(self, deputy: Deputy, allow: Collection[str] = ()) -> None:
        self._deputy = deputy
        self._allowed = READ_ONLY_TOOLS | ALWAYS_GRANTED | frozenset(allow)

    @property
    def description(self) -> str:
        """What the model reads about the tool."""
        return described(self.name)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return arguments_for_models()

    async def __call__(self, /, **arguments: Any) -> str:
        """Run the tasks, and return their results; the text of a wrong call says what is wrong."""
        wanted = read_wanted(arguments)
        if not isinstance(wanted, DelegateCall):
            return problems_text(wanted)
        try:
            # The tools of the agents that the tasks name count too.
            tasks = await self._deputy.resolve_tasks(wanted.tasks)
            for index, task in enumerate(tasks):
                for name in sorted(set(task.tools or ()) - self._allowed):
                    return f"tasks[{index}] would use {name}, which this program does not allow. Nothing was started."
            outcomes = await self._deputy.delegate(tasks, concurrency=wanted.concurrency)
        except UsageError as error:
            return f"{error}. Nothing was started."
        results = [Result(label=task.label, outcome=outcome) for task, outcome in zip(tasks, outcomes, strict=True)]
        is_json = wanted.result_form == "json"
        text = visible_json(results_dict(results)).decode() if is_json else results_markdown(results)
        return text if is_json else wrap_untrusted(text, self.name, _draw)


def _draw(letters: str, length: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(length))
