"""What happens, for one reader who takes it at a pace of its own."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deputy.core.progress import Progress

_UNREAD = 10_000


class Watcher:
    """What one reader of events has not read yet; when it is too slow, the oldest go first."""

    def __init__(self) -> None:
        self._unread: deque[Progress] = deque(maxlen=_UNREAD)
        self._come = asyncio.Event()
        self._is_closed = False

    def put(self, progress: Progress) -> None:
        """Something happened."""
        self._unread.append(progress)
        self._come.set()

    def close(self) -> None:
        """Nothing more will happen."""
        self._is_closed = True
        self._come.set()

    async def next(self) -> Progress | None:
        """The next thing that happened; None when nothing more will."""
        while not self._unread:
            if self._is_closed:
                return None
            self._come.clear()
            await self._come.wait()
        return self._unread.popleft()
