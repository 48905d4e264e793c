"""Trouble with the journal, found in whatever a flow raised, and as an outcome."""

from __future__ import annotations

from typing import cast

from deputy.core.errors import LeaseLost, StorageError


def storage_trouble(error: BaseException) -> LeaseLost | StorageError | None:
    """The trouble with the journal that is in an error, or among those of a group: a lost lease before all else."""
    if isinstance(error, LeaseLost | StorageError):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [trouble for inner in group.exceptions if (trouble := storage_trouble(inner)) is not None]
    return next((trouble for trouble in found if isinstance(trouble, LeaseLost)), found[0] if found else None)
