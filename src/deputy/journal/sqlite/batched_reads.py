"""Batch the state reads of one event-loop tick into one read, because each read crosses threads."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deputy.core.state import State

    Found = State | BaseException | None
    Asked = tuple[str, asyncio.Future[State | None]]


class BatchedReads:
    """Collects the runs asked for in one tick and reads them together."""

    def __init__(self, read: Callable[[Sequence[str]], asyncio.Future[list[Found]]]) -> None:
        self._read = read
        self._asked: list[Asked] = []

    def ask(self, run: str) -> asyncio.Future[State | None]:
        """The state of a run."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[State | None] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._ask)
        self._asked.append((run, answer))
        return answer

    def _ask(self) -> None:
        asked, self._asked = self._asked, []
        try:
            self._read([run for run, _ in asked]).add_done_callback(partial(_answer, asked))
        except Exception as error:  # noqa: BLE001  the callers get it; else they would wait for ever
            _emit(asked, [error] * len(asked))


def _answer(asked: Sequence[Asked], looked: asyncio.Future[list[Found]]) -> None:
    error = asyncio.CancelledError() if looked.cancelled() else looked.exception()
    _emit(asked, looked.result() if error is None else [error] * len(asked))


def _emit(asked: Sequence[Asked], found: Sequence[Found]) -> None:
    for (_, answer), state in zip(asked, found, strict=True):
        if answer.done():
            continue
        if isinstance(state, BaseException):
            answer.set_exception(state)
        else:
            answer.set_result(state)
