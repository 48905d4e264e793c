"""What the shell offers for ids, labels, agents and models; a problem offers nothing."""

from __future__ import annotations

import re
from functools import wraps
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click
    from click.shell_completion import CompletionItem

    Values = Callable[[], Iterable[tuple[str, str]]]
    Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]

_ENDED = 50
_WORD = re.compile(r"(?!-)[\w.:/@+-]+")
"""What a shell takes as one plain word, and Deputy as no option: names come from others, and no shell quotes them."""


def _completer(values: Values) -> Completer:
    """Offer the values that begin with what is typed, each with its description."""

    @wraps(values)
    def complete(_context: click.Context, _option: click.Parameter, typed: str) -> list[CompletionItem[str]]:
        from click.shell_completion import CompletionItem

        from deputy.processes.outgoing import outgoing_text

        try:
            return [
                CompletionItem(value, help=text)
                for value, text in values()
                if value.startswith(typed) and _WORD.fullmatch(value) and outgoing_text(value) == value
            ]
        except Exception:  # noqa: BLE001  an error would be printed into the command line that is typed
            return []

    return complete


@_completer
def complete_run() -> Iterable[tuple[str, str]]:
    """`last`, the short ids of the latest runs, and the labels that only one of them has."""
    from collections import Counter

    from deputy.interfaces.cli.console import read_journal
    from deputy.interfaces.run_names import LAST, short_ids
    from deputy.interfaces.text_lines import one_line

    with read_journal() as queries:
        if queries is None:
            return
        states = [*queries.live(), *queries.ended(_ENDED)]
        short = short_ids(queries.ids(), [state.run for state in states])
    yield LAST, "the run that started last"
    labels = Counter(state.label for state in states)
    for state in reversed(states):
        yield short[state.run], one_line(f"{state.status} {state.label or state.command}", 60)
    for state in states:
        if labels[state.label] == 1:
            yield state.label, f"{state.status} {short[state.run]}"


@_completer
def complete_agent() -> Iterable[tuple[str, str]]:
    """The agents for this directory."""
    from pathlib import Path

    from deputy.agents.agent_files import load_agents
    from deputy.interfaces.text_lines import one_line

    for agent in load_agents(Path.cwd(), Path.home(), with_shipped=True).agents:
        yield agent.name, one_line(agent.description, 60)


@_completer
def complete_model() -> Iterable[tuple[str, str]]:
    """Your default model, the aliases and the listed models."""
    from deputy.config import load_catalog, load_user
    from deputy.models.catalog import read_catalog

    if default := load_user().models.default:
        yield default, "your default"
    catalog = read_catalog(load_catalog())
    yield from ((name, entry.model) for name, entry in catalog.names.items())
    for provider, entry in catalog.providers.items():
        yield from ((f"{provider}:{model}", "") for model in entry.models)


@_completer
def complete_provider() -> Iterable[tuple[str, str]]:
    """The providers."""
    from deputy.config import load_catalog
    from deputy.models.catalog import read_catalog

    yield from ((name, "") for name in read_catalog(load_catalog()).providers)
