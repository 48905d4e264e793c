"""Git bundles in a Postgres store: their parts by hash, and which builds upon which."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import DecodeError, json

from deputy.core.errors import StorageCorrupt
from deputy.engine.ports.workspaces import Bundle
from deputy.journal.postgres.store_address import driver, is_away, storage_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deputy.journal.postgres.store_address import PostgresSession

_LATEST = 8
_FIND = "SELECT body FROM bundles WHERE repository = $1 AND tip = $2"
_NEWEST = "SELECT body FROM bundles WHERE repository = $1 AND branch = '' ORDER BY at DESC LIMIT $2"
_OF_BRANCH = "SELECT body FROM bundles WHERE branch = $1 ORDER BY at DESC LIMIT 1"
_OF_RUN = (
    "SELECT body FROM bundles b JOIN bundle_uses u USING (repository, tip) WHERE u.run = $1 AND b.branch <> ''"
    " ORDER BY b.at DESC LIMIT 1"
)
_TOUCH = "UPDATE bundles SET at = clock_timestamp() WHERE repository = $1 AND tip = $2 RETURNING 1"
_HAS_PART = "UPDATE blobs SET at = clock_timestamp() WHERE hash = $1 RETURNING 1"
_PUT_PART = "INSERT INTO blobs (hash, body) VALUES ($1, $2) ON CONFLICT (hash) DO UPDATE SET at = clock_timestamp()"
_PUT = (
    "INSERT INTO bundles (repository, tip, needs, branch, parts, body) VALUES ($1, $2, $3, $4, $5, $6)"
    " ON CONFLICT (repository, tip) DO UPDATE SET at = clock_timestamp()"
)
_USE = "INSERT INTO bundle_uses (run, repository, tip) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
_UNUSE = "DELETE FROM bundle_uses WHERE run = $1 AND repository = $2 AND tip = $3"
_FORGET_USES = (
    "DELETE FROM bundle_uses u WHERE at < clock_timestamp() - make_interval(secs => $1)"
    " AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run = u.run)"
)
_REMOVE = (
    "DELETE FROM bundles b WHERE at < clock_timestamp() - make_interval(secs => $1)"
    " AND NOT EXISTS (SELECT 1 FROM bundle_uses u WHERE u.repository = b.repository AND u.tip = b.tip)"
    " AND NOT EXISTS (SELECT 1 FROM bundles o WHERE o.repository = b.repository AND o.needs = b.tip) RETURNING 1"
)
_REMOVE_PARTS = (
    "DELETE FROM blobs WHERE at < clock_timestamp() - make_interval(secs => $1)"
    " AND NOT EXISTS (SELECT 1 FROM bundles WHERE bundles.parts @> ARRAY[blobs.hash])"
)


class PostgresBundles:
    """The bundles over one connection."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def latest(self, repository: str) -> Sequence[Bundle]:
        """The newest snapshots of a repository, newest first."""
        return [self._decoded(row[0]) for row in self._fetch(_NEWEST, repository, _LATEST)]

    def find(self, repository: str, tip: str) -> Bundle | None:
        """The bundle with this tip."""
        rows = self._fetch(_FIND, repository, tip)
        return self._decoded(rows[0][0]) if rows else None

    def of_branch(self, branch: str) -> Bundle | None:
        """The newest bundle of a branch of work."""
        rows = self._fetch(_OF_BRANCH, branch)
        return self._decoded(rows[0][0]) if rows else None

    def of_run(self, run: str) -> Bundle | None:
        """The newest bundle of the work of a run."""
        rows = self._fetch(_OF_RUN, run)
        return self._decoded(rows[0][0]) if rows else None

    def put(self, bundle: Bundle, parts: Iterable[bytes]) -> bool:
        """Store a bundle part by part, and then its row, or keep one that is there."""
        if self._fetch(_TOUCH, bundle.repository, bundle.tip):
            return True
        hashes = [bytes.fromhex(name) for name in bundle.parts]
        for name, part in zip(hashes, parts, strict=True):
            if not self._fetch(_HAS_PART, name):
                self._fetch(_PUT_PART, name, part)
        row = (bundle.repository, bundle.tip, bundle.needs or None, bundle.branch, hashes, json.encode(bundle))
        try:
            self._session.fetch(_PUT, *row)
        except driver().ForeignKeyViolationError:
            return False
        except Exception as error:
            raise self._explained(error) from error
        return True

    def part(self, name: str) -> bytes | None:
        """The content of a part."""
        with suppress(ValueError):
            rows = self._fetch("SELECT body FROM blobs WHERE hash = $1", bytes.fromhex(name))
            return rows[0][0] if rows else None
        return None

    def use(self, run: str, repository: str, tip: str, instead_of: str = "") -> None:
        """Keep a bundle for as long as a run is in the journal."""
        self._fetch(_USE, run, repository, tip)
        if instead_of:
            self._fetch(_UNUSE, run, repository, instead_of)

    def remove_unused(self, kept_seconds: float) -> int:
        """Remove the older bundles that no run uses, from the top of each chain, and then their parts."""
        self._fetch(_FORGET_USES, kept_seconds)
        removed = 0
        while rows := self._fetch(_REMOVE, kept_seconds):
            removed += len(rows)
        self._fetch(_REMOVE_PARTS, kept_seconds)
        return removed

    def _decoded(self, body: bytes) -> Bundle:
        try:
            return json.decode(body, type=Bundle)
        except DecodeError as error:
            raise StorageCorrupt(self._session.address.location, f"a bundle is damaged: {error}") from error

    def _fetch(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._session.fetch(query, *values)
        except Exception as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> Exception:
        if getattr(error, "sqlstate", None) or is_away(error):
            return storage_error(self._session.address, error)
        return error
