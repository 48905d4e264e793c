"""One look at the journal for all readers of the stream, some times a second."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from deputy.core.errors import StorageCorrupt, StorageError, StorageTooNew
from deputy.engine.ports.queries import Cursor
from deputy.interfaces.safe_text import safe_message
from deputy.interfaces.web.board import Board, Frame, Position, new_server_name
from deputy.journal.home import JOURNAL
from deputy.processes.outgoing import outgoing_json
from deputy.stores import open_queries

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from deputy.engine.ports.queries import Queries
    from deputy.interfaces.web.jobs import Jobs

LOOK_SECONDS, QUIET_SECONDS = 0.2, 0.3
"""The pause between two looks; the longer one once nothing was new for some looks."""
_QUIET_LOOKS = 10
BEAT_SECONDS = 5.0
_REOPEN_SECONDS = 2.0
_MOST_UNREAD, _FRAME_BYTES = 8_000_000, 200
"""The bytes that wait for a slow reader before it must read the board again, and what a frame takes beside its data."""
_T = TypeVar("_T")
ALWAYS = 1 << 62
"""The look of frames that a reader gets in any case."""
RESET, BEAT = Frame("reset", b"{}", ALWAYS), Frame("beat", b"{}", ALWAYS)
NO_POSITION = Position(Cursor(0, 0, 0), "none", 0).text
"""The position of a reader while there is no journal."""


class NoJournal(Exception):
    """There is no journal to read."""


class JournalProblem(NamedTuple):
    """Why the journal cannot be read, or only in part."""

    state: str
    """`none`, `damaged`, `newer` or `failed`; `ok` if there is no problem."""
    message: str = ""
    remedy: str = ""


def what_failed(error: StorageError) -> str:
    """The message of an error of the journal; the page shows its remedy beside it."""
    return safe_message(f"{error.path}: {error.what}.")


def _state_after(error: StorageError) -> str:
    match error:
        case StorageCorrupt():
            return "damaged"
        case StorageTooNew():
            return "newer"
        case _:
            return "failed"


class ReaderThread:
    """A connection to the journal and the only thread that uses it."""

    def __init__(self, home: Path, name: str) -> None:
        self._home = home
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._queries: Queries | None = None
        self._inode = 0
        self.problem = JournalProblem("ok")

    @property
    def damage(self) -> str:
        """The damage that this connection has read in the present journal."""
        # Other threads ask too, and this one may close the connection meanwhile.
        queries = self._queries
        damage = "" if queries is None else queries.damage
        return damage if damage and self.is_current() else ""

    def fail(self, error: StorageError) -> None:
        """Remember why the journal cannot be read; damage until the file was replaced, all else until it is opened."""
        state = _state_after(error)
        self.problem = JournalProblem(state, what_failed(error), error.remedy)
        if state != "damaged":
            self._close()

    async def run(self, work: Callable[[], _T]) -> _T:
        """The result of work in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def read(self, work: Callable[[Queries], _T]) -> _T:
        """The result of work with the queries; NoJournal if there is no journal."""
        return await self.run(lambda: work(self.opened()))

    def opened(self) -> Queries:
        """The queries, in the thread; opened again when the file was replaced."""
        inode = self._file()
        if self._queries is not None and inode != self._inode:
            self._close()
        if self._queries is None:
            self._queries, self._inode = self._open(), inode
        return self._queries

    def is_current(self) -> bool:
        """Whether the open journal is still the one in the home."""
        return self._queries is not None and self._file() == self._inode

    def _file(self) -> int:
        with suppress(OSError):
            return (self._home / JOURNAL).stat().st_ino
        return 0

    def _open(self) -> Queries:
        self.problem = JournalProblem("ok")
        try:
            queries = open_queries(self._home)
        except StorageCorrupt as error:
            self.fail(error)
            queries = self._open_damaged()
        except StorageError as error:
            self.fail(error)
            raise NoJournal from error
        if queries is None:
            self.problem = JournalProblem("none", "There is no journal yet.", "Start a run.")
            raise NoJournal
        return queries

    def _open_damaged(self) -> Queries | None:
        try:
            return open_queries(self._home, is_checked=False)
        except StorageError as error:
            raise NoJournal from error

    def _close(self) -> None:
        if self._queries is not None:
            self._queries.close()
            self._queries = None

    async def close(self) -> None:
        """Close the connection and end the thread."""
        await self.run(self._close)
        self._thread.shutdown(wait=False)


class Reader:
    """One open stream: the frames that it has not sent yet."""

    def __init__(self, runs: frozenset[str]) -> None:
        self.runs = runs
        """The runs whose text and records it gets."""
        self._frames: list[Frame] = []
        self._unread = 0
        self._come = asyncio.Event()
        self._is_lost = False

    def put(self, frames: list[Frame]) -> None:
        """Add the frames that this reader gets."""
        mine = [frame for frame in frames if not frame.run or frame.run in self.runs]
        if mine:
            self._frames += mine
            self._unread += sum(len(frame.data) + _FRAME_BYTES for frame in mine)
            self._come.set()
        if self._unread > _MOST_UNREAD:
            # Too slow: it reads the board again.
            self._frames, self._unread, self._is_lost = [], 0, True

    async def next(self) -> list[Frame]:
        """The next frames; empty when there are none for some seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_SECONDS):
                await self._come.wait()
        self._come.clear()
        if self._is_lost:
            self._is_lost = False
            return [RESET]
        frames, self._frames, self._unread = self._frames, [], 0
        return frames

    def drop_until(self, look: int) -> None:
        """Drop frames that another way has sent."""
        self._frames = [frame for frame in self._frames if frame.look > look]


class Feed:
    """Follows the journal for all readers; it only looks while there is one."""

    def __init__(self, home: Path, jobs: Jobs) -> None:
        self.thread = ReaderThread(home, "feed")
        self.details = ReaderThread(home, "reader")
        """Reads single runs, beside the board."""
        self._jobs = jobs
        self._board: Board | None = None
        self._shown: Board | None = None
        """The board that the readers know."""
        self._shown_state = "ok"
        """The state of the journal that they know."""
        self._readers: list[Reader] = []
        self._opened_at = float("-inf")
        self._is_asked = asyncio.Event()

    @property
    def problem(self) -> JournalProblem:
        """Why the journal cannot be read, or only in part."""
        damage = self.thread.damage or self.details.damage
        if damage and self.thread.problem.state == "ok":
            return JournalProblem("damaged", damage, "Run `deputy doctor --repair`.")
        return self.thread.problem

    async def close(self) -> None:
        """Close the connections to the journal."""
        await self.thread.close()
        await self.details.close()

    async def follow(self) -> None:
        """Look again and again, until cancelled."""
        # The board is ready, or nearly, when a page that lost its server connects again.
        await self.thread.run(self._opened)
        self._opened_at = float("-inf")
        self._shown_state = self.problem.state
        quiet = 0
        while True:
            if not self._readers and not self._jobs.are_running:
                self._is_asked.clear()
                await self._is_asked.wait()
            ended = [Frame("job", outgoing_json(job.form), ALWAYS) for job in self._jobs.poll()]
            frames = await self.thread.run(self._look) if self._readers else []
            for reader in self._readers:
                reader.put([*frames, *ended])
            quiet = 0 if frames or ended else quiet + 1
            await asyncio.sleep(QUIET_SECONDS if quiet > _QUIET_LOOKS else LOOK_SECONDS)

    def wake(self) -> None:
        """Look again: a job was started."""
        self._is_asked.set()

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _opened(self) -> Board | None:
        """The board; None while there is no journal that can be read."""
        if self._board is not None and self.thread.is_current():
            return self._board
        self._board = None
        now = time.monotonic()
        if now < self._opened_at + _REOPEN_SECONDS:
            return None
        self._opened_at = now
        try:
            self._board = Board(self.thread.opened(), new_server_name())
        except NoJournal:
            return None
        except StorageError as error:
            self.thread.fail(error)
        return self._board

    def _look(self) -> list[Frame]:
        board, state = self._opened(), self.problem.state
        if board is not self._shown or state != self._shown_state:
            # Every reader of an earlier board, or of a journal whose damage was not known, reads the new one.
            self._shown, self._shown_state = board, state
            return [RESET]
        if board is None:
            return []
        board.watched = {run for reader in self._readers for run in reader.runs}
        with suppress(StorageError):
            return self._news(board)
        return []

    def _news(self, board: Board) -> list[Frame]:
        """What is new on the board; after an error the board is read anew."""
        try:
            return board.look()
        except StorageError as error:
            self._board = None
            self.thread.fail(error)
            raise

    # --- readers ------------------------------------------------------------------------------------------------------

    async def board(self) -> bytes:
        """The whole board as JSON, up to date."""
        return await self.thread.run(self._whole)

    def _whole(self) -> bytes:
        board = self._opened()
        if board is None:
            body = f'"cursor":"{NO_POSITION}","now":{time.time():.3f},"fields":[],"runs":[],"waiting":[],"doing":{{}}'
            return self._with_journal(body.encode())
        if not self._readers:
            self._news(board)
        return self._with_journal(board.whole())

    def _with_journal(self, body: bytes) -> bytes:
        from deputy import __version__

        head = {"version": __version__, "journal": self.problem._asdict(), "jobs": self._jobs.forms()}
        return b"%b,%b}" % (outgoing_json(head)[:-1], body)

    async def stream(self, after: Position | None, runs: frozenset[str]) -> AsyncGenerator[list[Frame]]:
        """Frames from a position on; an empty list is a sign of life."""
        reader = Reader(runs)
        self._readers.append(reader)
        self._is_asked.set()
        try:
            frames, look = await self.thread.run(lambda: self._caught_up(after))
            reader.drop_until(look)
            yield frames
            while True:
                yield await reader.next()
        finally:
            self._readers.remove(reader)

    def _caught_up(self, position: Position | None) -> tuple[list[Frame], int]:
        board = self._opened()
        if board is None:
            return [], 0
        try:
            if len(self._readers) == 1:
                self._shown = board
                self._news(board)
            return board.catch_up(position), board.position.look
        except StorageError:
            # The stream has begun, so that it cannot end with an error any more.
            return [RESET], 0
