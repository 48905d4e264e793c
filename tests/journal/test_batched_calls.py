"""Calls of one tick of the event loop are made together."""

import asyncio
from collections.abc import Sequence

import pytest

from deputy.core.errors import StorageCorrupt, StorageFailed
from deputy.core.state import State
from deputy.journal.batched_calls import BatchedCalls

Found = State | BaseException | None


class Lookup:
    """Answers from a table, and remembers what it was asked for together."""

    def __init__(self, **known: Found) -> None:
        self.known = known
        self.looks: list[list[str]] = []

    def look(self, runs: Sequence[str]) -> asyncio.Future[list[Found]]:
        self.looks.append(list(runs))
        done: asyncio.Future[list[Found]] = asyncio.get_running_loop().create_future()
        done.set_result([self.known.get(run) for run in runs])
        return done


async def ask_all(together: BatchedCalls[str, State | None], *runs: str) -> list[object]:
    return await asyncio.gather(*(together.ask(run) for run in runs), return_exceptions=True)


def test_requests_in_one_tick_share_a_look_and_later_ones_get_a_new_one():
    async def main() -> None:
        lookup = Lookup(a=State(run="a"), b=State(run="b"))
        together = BatchedCalls(lookup.look)
        assert await ask_all(together, "a", "b", "c") == [State(run="a"), State(run="b"), None]
        assert await together.ask("b") == State(run="b")
        assert lookup.looks == [["a", "b", "c"], ["b"]]

    asyncio.run(main())


def test_a_run_that_cannot_be_read_is_no_trouble_of_those_asked_for_beside_it():
    async def main() -> None:
        damage = StorageCorrupt("journal", "a page is gone")
        together = BatchedCalls(Lookup(a=damage, b=State(run="b")).look)
        assert await ask_all(together, "a", "b") == [damage, State(run="b")]

    asyncio.run(main())


def test_a_cancelled_wait_does_not_keep_others_from_their_answers():
    async def main() -> None:
        together = BatchedCalls(Lookup(b=State(run="b")).look)
        left, stayed = together.ask("a"), together.ask("b")
        left.cancel()
        assert await stayed == State(run="b")

    asyncio.run(main())


@pytest.mark.parametrize(
    "trouble",
    [
        StorageFailed("journal", "this process has closed it", "Open it again."),
        RuntimeError("can't start new thread"),
    ],
    ids=["closed", "no thread"],
)
def test_a_look_that_is_refused_is_an_answer_to_everybody(trouble: Exception):
    def refuse(_: Sequence[str]) -> asyncio.Future[list[Found]]:
        raise trouble

    async def main() -> None:
        assert await ask_all(BatchedCalls(refuse), "a", "b") == [trouble] * 2

    asyncio.run(main())


def test_a_look_that_fails_as_a_whole_fails_for_everybody():
    def broken(_: Sequence[str]) -> asyncio.Future[list[Found]]:
        done: asyncio.Future[list[Found]] = asyncio.get_running_loop().create_future()
        done.set_exception(LookupError("no such thing"))
        return done

    async def main() -> None:
        with pytest.raises(LookupError):
            await BatchedCalls(broken).ask("a")

    asyncio.run(main())
