"""Dispatch by the queues of DBOS, whose tables are in the same database as the journal."""

from __future__ import annotations

import asyncio
import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deputy.core.errors import (
    LeaseLost,
    StorageBusy,
    StorageDenied,
    StorageError,
    StorageFailed,
    StorageTooOld,
    Unquoted,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deputy.engine.ports.placement import CarryOut

NAME = "deputy_run"
"""The name of the workflow, as `enqueue` in the tables of the journal has it."""
VERSION = "deputy"
"""The version of the application: always the same, because the journal decides what a worker may read."""
_POLL_SECONDS = 0.5
"""Each look at a queue costs an idle worker some milliseconds of CPU."""
_CONNECTIONS = 4
_FORGET = 500
_OVER = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
_LEAVE_SECONDS = 40
"""How long DBOS waits at most for steps to end and for runs that were handed over to be noted as done."""
_MIGRATE = "Run `DEPUTY_DISPATCH=dbos deputy store migrate`."
_GRANT = (
    "Let an administrator run `deputy store roles | psql …` again, after `DEPUTY_DISPATCH=dbos deputy store migrate`."
)
_REACH = "Check that the server runs, can be reached and knows the user, then try again."
_NOT_CONNECTED = "OperationalError"
"""The type of the driver's error when it could not connect."""
_logger = logging.getLogger("deputy.worker")


def driver() -> Any:
    """The module `dbos`, which only workers and `deputy store migrate` need."""
    try:
        return import_module("dbos")
    except ImportError:
        raise UsageError(
            "store", Unquoted("workers, but dbos is not installed"), "run: pip install 'deputy-agents[postgres]'"
        ) from None


def migrate(url: str, location: str) -> None:
    """Create the tables of the queues, or bring them to the installed version."""
    logging.getLogger("dbos").setLevel(logging.CRITICAL)
    try:
        driver().DBOS.migrate(url)
    except UsageError:
        raise
    except Exception as error:
        # DBOS raises errors of three libraries.
        code, why = _code_and_text(error)
        if code[:2] in ("08", "28", "53", "57") or why == _NOT_CONNECTED:
            raise launch_error(location, error) from error
        raise StorageFailed(
            location, f"the tables of the queues cannot be made ({why})", "Use a role that may create a schema."
        ) from error


class DbosDispatch:
    """Claims runs from the queues of DBOS.

    DBOS decides which worker gets which placement, and when. Its steps, messages and recovery are not used: a workflow
    is one placement of a run. It is called from threads, because its async methods replace the loop's executor.
    """

    judges_liveness = False

    def __init__(self, url: str, location: str, owner: str, *, may_use: Callable[[], bool] = lambda: True) -> None:
        """`owner` is the name of this process in the journal, under which the queue notes its claims.

        `may_use` tells whether the role of the address may use the queues that are there.
        """
        self._may_use = may_use
        self._url = url
        self._location = location
        self._owner = owner
        self._dbos: Any = driver().DBOS

    async def work(
        self,
        carry_out: CarryOut,
        *,
        queues: Sequence[str],
        slots: int,
        stop: asyncio.Event,
        is_ready: Callable[[], None],
    ) -> None:
        """Claim and carry out runs until `stop` is set and all are done."""
        loop = asyncio.get_running_loop()

        def carry(run: str, number: int) -> None:
            # DBOS gives every claimed run a thread, which only waits here.
            asyncio.run_coroutine_threadsafe(_carried(carry_out, run, number), loop).result()

        await asyncio.to_thread(self._launch, carry, queues, slots)
        try:
            is_ready()
            await stop.wait()
        finally:
            # It stops claiming at once, and waits for what it has claimed.
            await asyncio.to_thread(
                self._dbos.destroy, destroy_registry=True, workflow_completion_timeout_sec=_LEAVE_SECONDS
            )

    async def forget(self) -> int:
        """Delete the rows of placements that are over."""
        try:
            return await asyncio.to_thread(self._forget)
        except Exception as error:
            # DBOS raises errors of three libraries; the next sweep tries again.
            raise StorageFailed(self._location, f"its queues cannot be cleaned ({type(error).__name__})") from error

    def _launch(self, carry: Callable[[str, int], None], queues: Sequence[str], slots: int) -> None:
        dbos = self._dbos
        config = {
            "name": "deputy",
            "system_database_url": self._url,
            "application_version": VERSION,
            "executor_id": self._owner,
            "sys_db_pool_size": _CONNECTIONS,
            "run_migrations": False,
            "log_level": "CRITICAL",
            # Of messages that Deputy does not send.
            "notification_coalesce_sec": 1.0,
        }
        dbos(config=config)
        dbos.workflow(name=NAME)(carry)
        dbos.listen_queues(queues)
        try:
            dbos.launch()
            for queue in queues:
                dbos.register_queue(
                    queue, worker_concurrency=slots, polling_interval_sec=_POLL_SECONDS, on_conflict="always_update"
                )
        except Exception as error:
            dbos.destroy(destroy_registry=True)
            found = launch_error(self._location, error)
            if isinstance(found, StorageTooOld) and not self._may_use():
                # A role without rights sees no tables.
                found = StorageDenied(self._location, "the role lacks a right on the queues (schema dbos)", _GRANT)
            raise found from error

    def _forget(self) -> int:
        found = self._dbos.list_workflows(name=NAME, status=_OVER, limit=_FORGET, load_input=False, load_output=False)
        if found:
            self._dbos.delete_workflows([one.workflow_id for one in found])
        return len(found)


def launch_error(location: str, error: BaseException) -> StorageError:
    """Why the queues cannot be used: the database is away, a right is missing, or the tables are."""
    code, why = _code_and_text(error)
    match code[:2]:
        case "28":
            return StorageDenied(location, f"the server refused the user or the password ({why})")
        case "42" if code == "42501":
            return StorageDenied(location, f"the role lacks a right on the queues ({why})", _GRANT)
        case "42" | "3F":
            return StorageTooOld(location, "the tables of its queues are missing or old", _MIGRATE)
        case "08" | "57" | "53":
            return StorageBusy(location, f"cannot reach it ({why})", _REACH)
        case "" if why == _NOT_CONNECTED:
            return StorageBusy(location, f"cannot reach it, or it refused the user ({why})", _REACH)
        case "" if why == "DBOSInitializationError":
            return StorageTooOld(location, "the tables of its queues are missing or old", _MIGRATE)
        case _:
            return StorageFailed(location, f"its queues cannot be used ({why})", "Check the database and its log.")


def _code_and_text(error: BaseException) -> tuple[str, str]:
    """The code of an error of the server and its text, or the type of any other: its text may quote the address."""
    origin = error
    while not getattr(origin, "sqlstate", None) and (below := _below(origin)) is not None:
        origin = below
    code: str = getattr(origin, "sqlstate", None) or ""
    return code, " ".join(str(origin).split("\n")[0].split()) if code else type(origin).__name__


def _below(error: BaseException) -> BaseException | None:
    """The error of the driver inside of another."""
    return getattr(error, "orig", None) or error.__cause__ or error.__context__


async def _carried(carry_out: CarryOut, run: str, number: int) -> None:
    """Work on a run; an error of the store is no end of it: the sweep places it again."""
    try:
        await carry_out(run, number)
    except LeaseLost:
        _logger.info("another worker has taken %s over", run)
    except Exception:
        _logger.exception("cannot work on %s; it will be placed again", run)
