"""ARCHITECTURE.md names files and symbols that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "deputy"
TEXT = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
TREE = TEXT[TEXT.index("src/deputy/\n") : TEXT.index("```", TEXT.index("src/deputy/\n"))]
FILE = re.compile(r"[\w./-]+\.(?:py|md|sql|toml|txt|js|css)|[\w./-]+/")
NOT_A_FILE = ("`.py`", "`.md`", "`journal/postgres/schema_N.sql`")
SYMBOLS_OF_A_FILE = re.compile(r"((?:`[\w.]+`(?:, | and | or )?)+) (?:in |\()`([^`]+)`")


def found(name):
    """The files and folders that end like this, of the source first."""
    name = name.rstrip("/")
    beside = [ROOT / name, SOURCE / name]
    return [path for path in (*beside, *SOURCE.rglob(f"**/{name}"), *ROOT.glob(f"docs/{name}")) if path.exists()]


def test_every_file_of_the_tree_exists():
    names = {
        name for line in TREE.splitlines()[1:] for name in re.findall(r"\w+\.(?:py|sql|toml|css)|\b[a-z_]+/", line)
    }
    assert len(names) > 100
    assert sorted(name for name in names if not found(name)) == []


def test_every_file_of_the_table_exists():
    quoted = {one for one in re.findall(r"`[^`\n]+`", TEXT) if FILE.fullmatch(one.strip("`"))}
    assert len(quoted) > 100
    assert sorted(one for one in quoted.difference(NOT_A_FILE) if not found(one.strip("`"))) == []


def test_every_symbol_is_in_the_file_that_is_named_for_it():
    missing = []
    for symbols, name in SYMBOLS_OF_A_FILE.findall(TEXT):
        paths = found(name)
        if not paths or FILE.fullmatch(symbols.strip("`")):
            continue
        files = paths[0].rglob("*.py") if paths[0].is_dir() else paths[:1]
        text = "\n".join(file.read_text("utf-8") for file in files)
        words = (word for symbol in re.findall(r"`([^`]+)`", symbols) for word in symbol.split("."))
        missing += [f"{word} in {name}" for word in words if not re.search(rf"\b{word}\b", text)]
    assert missing == []
