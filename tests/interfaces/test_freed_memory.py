"""Freed memory goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import asyncio
from pathlib import Path
from deputy.interfaces import freed_memory

def memory():
    return int(Path("/proc/self/status").read_text().partition("VmRSS:")[2].split()[0])

async def work():
    freed_memory.TRIM_SECONDS = 0.0
    blocks = [bytes(1000) for _ in range(100_000)]
    # What is left keeps the rest from the system, until it is given back.
    blocks = blocks[::100]
    before = memory()
    giving_back = asyncio.ensure_future(freed_memory.give_back_memory())
    while memory() > before - 50_000:
        await asyncio.sleep(0)
    giving_back.cancel()

asyncio.run(work())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc keeps freed memory")
def test_freed_memory_is_given_back() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60)
