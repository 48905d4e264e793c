"""What a disk may hold after the power went: files rebuilt from recorded operations; what was not synced is at risk."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.crash.lab import Operation

SECTOR = 512
FATES = ("dropped", "emptied", "shuffled", "torn")
"""dropped: nothing unsynced survives; emptied: names survive, contents do not; shuffled: any of it survives;
torn: it survives up to the middle of a write."""


@dataclass
class _File:
    synced: bytes = b""
    waiting: list[Operation] = field(default_factory=list)

    def after(self, operations: list[Operation]) -> bytes:
        content = bytearray(self.synced)
        for operation in operations:
            if operation.kind == "T":
                del content[operation.offset :]
                content.extend(bytes(operation.offset - len(content)))
            else:
                content.extend(bytes(max(0, operation.offset - len(content))))
                content[operation.offset : operation.offset + len(operation.data)] = operation.data
        return bytes(content)

    def sync(self) -> None:
        self.synced = self.after(self.waiting)
        self.waiting = []

    def survivors(self, fate: str, chance: random.Random) -> list[Operation]:
        """Which of the writes that wait for a sync have reached the disk by themselves."""
        match fate:
            case "shuffled":
                return [operation for operation in self.waiting if chance.random() < 0.5]
            case "torn":
                reached = chance.randint(0, len(self.waiting))
                return [
                    *self.waiting[:reached],
                    *(_torn(operation, chance) for operation in self.waiting[reached:][:1]),
                ]
            case _:
                return []


def _torn(operation: Operation, chance: random.Random) -> Operation:
    from dataclasses import replace

    if operation.kind == "T":
        return operation
    sectors = chance.randint(0, len(operation.data) // SECTOR)
    return replace(operation, data=operation.data[: sectors * SECTOR])


class Disk:
    """A disk that a recorded program writes to. A name is safe when its folder is synced, content when its file is."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._names: dict[str, _File] = {}
        self._safe_names: dict[str, _File] = {}
        self.acks: list[str] = []

    def apply(self, operation: Operation) -> None:
        path = operation.path
        match operation.kind:
            case "A":
                self.acks += operation.data.decode().splitlines()
            case "C":
                self._names[path] = _File()
            case "W" | "T":
                self._names.setdefault(path, _File()).waiting.append(operation)
            case "S" if path in self._names:
                self._names[path].sync()
            case "S":
                self._sync_folder(path)
            case "U":
                self._names.pop(path, None)
            case "L":
                self._names[operation.other] = self._names[path]
            case "R":
                self._names[operation.other] = self._names.pop(path)
            case _:
                pass

    def _sync_folder(self, folder: str) -> None:
        def inside(path: str) -> bool:
            return path.rpartition("/")[0] == folder

        others = {path: file for path, file in self._safe_names.items() if not inside(path)}
        self._safe_names = others | {path: file for path, file in self._names.items() if inside(path)}

    def after_power_loss(self, fate: str, chance: random.Random) -> dict[str, bytes]:
        """The files, by their place below the root. What lives in shared memory is gone."""
        names = self._safe_names if fate == "dropped" or (fate != "emptied" and chance.random() < 0.5) else self._names
        files = {path: file for path, file in names.items() if not path.endswith("-shm")}
        return {
            path.removeprefix(f"{self._root}/"): file.after(file.survivors(fate, chance))
            for path, file in files.items()
        }


def power_losses(
    operations: list[Operation], root: Path, fates: tuple[str, ...] = FATES, seed: int = 0
) -> Iterator[tuple[str, dict[str, bytes], list[str]]]:
    """Every different disk that the power could leave, with what was acknowledged by then."""
    disk, seen = Disk(root), set[int]()
    for number, operation in enumerate(operations, 1):
        disk.apply(operation)
        for fate in fates:
            files = disk.after_power_loss(fate, random.Random(f"{seed} {number} {fate}"))
            state = hash((tuple(sorted(files.items())), len(disk.acks)))
            if state not in seen:
                seen.add(state)
                yield f"power lost behind operation {number} ({fate}, seed {seed})", files, list(disk.acks)


def lay_out(files: dict[str, bytes], home: Path) -> None:
    """Write the files of a rebuilt disk."""
    home.mkdir(mode=0o700)
    for name, content in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_bytes(content)
        path.chmod(0o600)
