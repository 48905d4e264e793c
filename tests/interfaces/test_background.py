import asyncio

import pytest

from deputy.core.errors import StorageFull, UsageError
from deputy.interfaces.background import background
from deputy.interfaces.cli.runner import until_done


async def forever() -> None:
    await asyncio.Event().wait()


async def failing() -> None:
    raise StorageFull("home", "no space is left")


async def nothing() -> None:
    return


def test_what_the_body_raises_comes_out_as_it_is():
    async def carry_out():
        async with background(forever()):
            raise UsageError("model", "x", "give another")

    with pytest.raises(UsageError):
        asyncio.run(carry_out())


def test_what_the_work_beside_raises_ends_the_body():
    async def carry_out():
        async with background(failing()):
            await forever()

    with pytest.raises(StorageFull):
        asyncio.run(carry_out())


def test_of_several_errors_the_one_raised_on_purpose_is_reported():
    async def carry_out():
        async with background(failing()):
            try:
                await forever()
            finally:
                raise ValueError("in the wake of the other")

    with pytest.raises(StorageFull):
        asyncio.run(carry_out())


def test_a_body_that_is_cancelled_stays_cancelled():
    async def carry_out():
        async with asyncio.timeout(0), background(forever()):
            await forever()

    with pytest.raises(TimeoutError):
        asyncio.run(carry_out())


def test_work_that_fails_while_a_command_waits_for_it_comes_out_as_it_is():
    async def carry_out():
        await until_done(failing(), asyncio.Event(), nothing)

    with pytest.raises(StorageFull):
        asyncio.run(carry_out())
