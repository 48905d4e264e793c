"""Which MCP client may answer which approval: only the one that was given the question, once, by its nonce."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from deputy.interfaces.pending_approvals import PendingApproval

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deputy.core.approval import Choice

MOST_RUNS = 10_000
"""How many runs and questions are remembered."""
PREFIX = "approval:"
_NONCE_BYTES = 32


class OpenedRun(Struct, frozen=True, kw_only=True):
    """A run that a client opened, and the timeout of its approvals."""

    client: str
    approval_timeout_seconds: float


class Question(Struct, frozen=True, kw_only=True):
    """An approval given to a client; the nonce stands for exactly this key and digest."""

    nonce: str
    client: str
    root: str
    """The run that the client opened."""
    asking: PendingApproval

    @property
    def name(self) -> str:
        """The name of the question in the client's answer."""
        return f"{PREFIX}{self.nonce}"

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The possible answers."""
        request = self.asking.request
        return ("yes", "no", "always") if request is not None and request.can_always else ("yes", "no")


class Questions:
    """Which client opened which run, and which questions it was given."""

    def __init__(self) -> None:
        self._opened: dict[str, OpenedRun] = {}
        self._handed: dict[str, Question] = {}
        self._answered: dict[tuple[str, str, str], None] = {}

    def opened(self, run: str) -> OpenedRun | None:
        """The client that opened a run; None if this server did not open it."""
        return self._opened.get(run)

    def open(self, run: str, client: str, approval_timeout_seconds: float) -> None:
        """Remember the client that opens or resumes a run."""
        self._opened[run] = OpenedRun(client=client, approval_timeout_seconds=approval_timeout_seconds)
        _forget_oldest(self._opened)

    def hand(self, root: str, client: str, asked: Iterable[PendingApproval]) -> tuple[Question, ...]:
        """The questions for the client that opened the run, each with a nonce; none for any other client."""
        opened = self._opened.get(root)
        if opened is None or opened.client != client:
            return ()
        return tuple(self._hand(root, client, one) for one in asked if _identity(one) not in self._answered)

    def _hand(self, root: str, client: str, asking: PendingApproval) -> Question:
        for question in self._handed.values():
            if (question.root, question.client) == (root, client) and _identity(question.asking) == _identity(asking):
                return question
        nonce = secrets.token_urlsafe(_NONCE_BYTES)
        question = self._handed[nonce] = Question(nonce=nonce, client=client, root=root, asking=asking)
        _forget_oldest(self._handed)
        return question

    def take(self, name: str, root: str, client: str) -> Question | None:
        """Remove and return the question that an answer names; None if this client was not given it."""
        question = self._handed.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None
        if question is None or (question.root, question.client) != (root, client):
            return None
        del self._handed[question.nonce]
        self._answered[_identity(question.asking)] = None
        _forget_oldest(self._answered)
        return question


def _identity(asking: PendingApproval) -> tuple[str, str, str]:
    return asking.run, asking.key, asking.digest


def _forget_oldest(known: dict[Any, Any]) -> None:
    while len(known) > MOST_RUNS:
        del known[next(iter(known))]
