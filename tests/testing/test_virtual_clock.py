"""Virtual time passes at once, in order, and a deadlock is told."""

import asyncio

import pytest

from deputy.testing import run_in_virtual_time


def test_hours_pass_at_once_and_in_order():
    async def main():
        seen = []

        async def after(seconds):
            await asyncio.sleep(seconds)
            seen.append((seconds, asyncio.get_running_loop().time()))

        async with asyncio.TaskGroup() as group:
            for seconds in (7200, 60, 3600):
                group.create_task(after(seconds))
        return seen

    assert run_in_virtual_time(main()) == [(60, 60), (3600, 3600), (7200, 7200)]


def test_a_timeout_fires_in_virtual_time():
    async def main():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(300):
                await asyncio.sleep(301)
        return asyncio.get_running_loop().time()

    assert run_in_virtual_time(main()) == 300


def test_waiting_for_what_never_comes_is_reported():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="deadlock: every task waits"):
        run_in_virtual_time(main())
