"""Trouble with the journal, found in whatever a flow raised, and as an outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from deputy.core.errors import Error, LeaseLost, StorageError
from deputy.core.outcome import Failed, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping


def storage_trouble(error: BaseException) -> LeaseLost | StorageError | None:
    """The trouble with the journal that is in an error, or among those of a group: a lost lease before all else."""
    if isinstance(error, LeaseLost | StorageError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [trouble for inner in group.exceptions if (trouble := storage_trouble(inner)) is not None]
    return next((trouble for trouble in found if isinstance(trouble, LeaseLost)), found[0] if found else None)


def failed_by(trouble: StorageError, found: Mapping[str, Any]) -> Failed:
    """The outcome of a run whose storage failed, with what it has found until then."""
    error = Error(
        type="storage",
        code=_CODES.get(type(trouble).__name__, "STORAGE_FAILED"),
        message=f"{trouble.path}: {trouble.what}.",
        recoverable=trouble.retryable,
        recommendation=trouble.remedy,
    )
    return Failed(**found, summary=shortened(f"Its storage failed: {error.message}"), errors=(error,))


_CODES = {
    "StorageFull": "STORAGE_FULL",
    "StorageDenied": "STORAGE_DENIED",
    "StorageCorrupt": "STORAGE_CORRUPT",
    "StorageGone": "STORAGE_GONE",
    "StorageTooNew": "STORAGE_TOO_NEW",
    "StorageBusy": "STORAGE_BUSY",
}
