"""BatchedCalls: one call for everything that is asked for in one tick of the event loop."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

A = TypeVar("A")
R = TypeVar("R")


class BatchedCalls(Generic[A, R]):
    """Collects the arguments of one tick and calls once with all of them; an exception is the answer to its argument.

    A call in a thread costs far more than what it does, and many runs ask at once.
    """

    def __init__(self, call: Callable[[Sequence[A]], asyncio.Future[list[R | BaseException]]]) -> None:
        self._call = call
        self._asked: list[tuple[A, asyncio.Future[R]]] = []

    def ask(self, argument: A) -> asyncio.Future[R]:
        """The result for one argument."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        if not self._asked:
            loop.call_soon(self._ask)
        self._asked.append((argument, answer))
        return answer

    def _ask(self) -> None:
        asked, self._asked = self._asked, []
        answers = [answer for _, answer in asked]
        try:
            self._call([argument for argument, _ in asked]).add_done_callback(partial(_answer, answers))
        except Exception as error:  # noqa: BLE001  the callers get it; else they would wait for ever
            _resolve_all(answers, [error] * len(answers))


def _answer(answers: Sequence[asyncio.Future[R]], called: asyncio.Future[list[R | BaseException]]) -> None:
    error = asyncio.CancelledError() if called.cancelled() else called.exception()
    _resolve_all(answers, called.result() if error is None else [error] * len(answers))


def _resolve_all(answers: Sequence[asyncio.Future[R]], found: Sequence[R | BaseException]) -> None:
    for answer, result in zip(answers, found, strict=True):
        if answer.done():
            continue
        if isinstance(result, BaseException):
            answer.set_exception(result)
        else:
            answer.set_result(result)
