"""The planted bugs: small changes of the source, each with what it breaks and the tests that should find it."""

import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(__file__).with_name("planted")


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One planted bug: `old` is exactly once in `file`."""

    id: str
    file: str
    old: str
    new: str
    breaks: str
    tests: list[str]
    """The test that found it, and those that are nearest by name; the simulation follows if they pass."""

    def changed(self, text: str) -> str:
        """The text of the file with the bug; ValueError if the file has no such place, or several."""
        if (found := text.count(self.old)) != 1:
            raise ValueError(f"{self.id}: its old text is {found} times in {self.file}; write it anew in {FOLDER.name}")
        return text.replace(self.old, self.new)


def planted() -> list[Mutant]:
    """All planted bugs, in the order of the files."""
    files = sorted(FOLDER.glob("*.toml"))
    return [one for file in files for one in msgspec.convert(tomllib.loads(file.read_text())["mutant"], list[Mutant])]
