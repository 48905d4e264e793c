"""The address of a Postgres store, connections to it, and the errors of both in plain words."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from deputy.core.errors import (
    StorageBusy,
    StorageCorrupt,
    StorageDenied,
    StorageError,
    StorageFailed,
    StorageFull,
    StorageTooOld,
    Unquoted,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    T = TypeVar("T")

SCHEMES = ("postgres", "postgresql")
CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 20.0
"""Without an answer for this long, the connection counts as lost."""
_SETTINGS = {
    "search_path": "deputy",
    "application_name": "deputy",
    # A stopped process must not keep its locks; the lease lock is the fence of others.
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "15s",
    # Bodies are compared and hashed, never parsed.
    "bytea_output": "hex",
}
_AWAY_CODES = frozenset({"25P03", "40001", "40P01", "53300", "55P03"})
"""Errors after which the same transaction may succeed."""
_REACH = "Start the server, or check host, port and network of the store's address; then try again. Nothing was lost."

_SECURE = (
    "Let the server offer TLS with a certificate that this machine knows, or change sslmode in the store's address."
)


class StoreAddress:
    """The URL of a store. Its password is shown nowhere."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            # The error may quote the password.
            raise _unreadable() from None
        if parts.scheme not in SCHEMES:
            raise UsageError(
                "store", Unquoted(f"an address that begins with {parts.scheme or url[:1]!r}"), "give postgres://…"
            )
        if parts.fragment or "@" in parts.path or any("=" not in one for one in parts.query.split("&") if one):
            # A sign in the password has ended it, and its rest would be shown as host, port or database.
            raise _unreadable()
        self.url = url
        self.user = unquote(parts.username or "")
        self.database = unquote(parts.path.lstrip("/")) or self.user
        options = parse_qs(parts.query)
        self.passwords = tuple(filter(None, (unquote(parts.password or ""), *options.get("password", ()))))
        """The secrets in it, which must be redacted."""
        host = parts.hostname or (options.get("host") or ["localhost"])[0]
        self.host = host if port is None else f"{host}:{port}"
        who = f"{self.user}@" if self.user else ""
        self.location = f"postgres://{who}{self.host}/{self.database}"
        """The address for messages, without a password."""


def _unreadable() -> UsageError:
    return UsageError(
        "store",
        Unquoted("an address that cannot be read"),
        "give postgres://USER:PASSWORD@HOST:PORT/NAME, with / # ? @ in a password as %2F %23 %3F %40",
    )


class PostgresSession:
    """One connection that blocks its caller. One thread uses it at a time."""

    def __init__(self, address: StoreAddress, settings: dict[str, str] | None = None) -> None:
        self.address = address
        self._loop = asyncio.new_event_loop()
        try:
            self._connection: Any = self._wait(connect(address, settings))
        except BaseException:
            self._loop.close()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether the connection is lost."""
        return self._connection.is_closed()

    def fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        return [tuple(row) for row in self._wait(self._connection.fetch(query, *values))]

    def run(self, script: str, seconds: float | None = None) -> None:
        """Run statements without values; `seconds`: how long to wait, if longer than usual."""
        self._wait(self._connection.execute(script, timeout=seconds))

    def close(self) -> None:
        """Close the connection; a lost one is dropped."""
        if not self._loop.is_closed():
            with suppress(Exception):
                self._wait(self._connection.close(timeout=2.0))
            self.drop()

    def drop(self) -> None:
        """Drop the connection without a word to the server."""
        if not self._loop.is_closed():
            with suppress(Exception):
                self._connection.terminate()
                # The transport closes in the next tick of its loop.
                self._wait(asyncio.sleep(0))
            self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(work)
        # The caller's own loop blocks meanwhile, as it does for a file.
        done: list[T] = []
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                done.append(self._loop.run_until_complete(work))
            except BaseException as error:  # noqa: BLE001  raised again below
                errors.append(error)

        thread = threading.Thread(target=wait, name="deputy-store", daemon=True)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return done[0]


async def connect(address: StoreAddress, settings: dict[str, str] | None = None) -> Any:
    """A connection on the running loop; a StorageError says why there is none."""
    asyncpg = driver()
    try:
        return await asyncpg.connect(
            address.url,
            timeout=CONNECT_SECONDS,
            command_timeout=_ANSWER_SECONDS,
            server_settings={**_SETTINGS, **(settings or {})},
        )
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise storage_error(address, error) from error


def driver() -> Any:
    """The module `asyncpg`, which only users of a Postgres store need."""
    try:
        return import_module("asyncpg")
    except ImportError:
        raise UsageError(
            "store",
            Unquoted("a Postgres store, but asyncpg is not installed"),
            "run: pip install 'deputy-agents[postgres]'",
        ) from None


def is_away(error: BaseException) -> bool:
    """Whether the database is away or refused for the moment, so that the same may succeed later."""
    code: str = getattr(error, "sqlstate", None) or ""
    if code:
        return code in _AWAY_CODES or code[:2] in ("08", "57")
    if isinstance(error, StorageBusy):
        return True
    # asyncpg raises its own InterfaceError on a closed connection; one that is a ValueError is about an argument.
    is_driver = type(error).__module__.startswith("asyncpg") and not isinstance(error, ValueError)
    return is_driver or isinstance(error, OSError | EOFError)


def is_of_database(error: BaseException) -> bool:
    """Whether the database failed, not a value that it was given."""
    code: str = getattr(error, "sqlstate", None) or ""
    return bool(code) and code[:2] != "22"


def storage_error(address: StoreAddress, error: BaseException) -> StorageError:
    """The StorageError for an error of Postgres or of the way to it."""
    name, what = address.location, " ".join(str(error).split()) or type(error).__name__
    code: str = getattr(error, "sqlstate", None) or ""
    match code:
        case "28P01" | "28000":
            return StorageDenied(
                name, f"the server refused the user or the password ({what})", "Check both in the store's address."
            )
        case "3D000":
            return StorageFailed(
                name, f"the server has no database {address.database!r}", "Create it, or name another; then migrate it."
            )
        case "42501":
            return StorageDenied(
                name,
                f"the role {address.user!r} lacks a right ({what})",
                "Grant it (`deputy store roles` prints the rights of each role), or name another role in the address.",
            )
        case "25006":
            return StorageDenied(name, "it is read-only", "Name the primary server, not a standby, in the address.")
        case "42P01" | "3F000" | "42883" | "42703":
            return StorageTooOld(name, f"its tables are not those of this version ({what})")
        case "53100":
            return StorageFull(name, what, "Free some space on the disk of the database, then try again.")
        case "XX001" | "XX002":
            return StorageCorrupt(name, what, "Restore the database from a backup.")
        case _ if "CERTIFICATE_VERIFY_FAILED" in what or "rejected SSL upgrade" in what:
            return StorageDenied(name, f"no secure connection ({what})", _SECURE)
        case _ if type(error).__name__ == "ClientConfigurationError":
            return StorageFailed(name, what, "Correct the store's address, then try again.")
        case _ if is_away(error):
            return StorageBusy(name, f"cannot reach it ({what})", _REACH)
        case _:
            return StorageFailed(name, what, "Check the database and its log, then try again.")
