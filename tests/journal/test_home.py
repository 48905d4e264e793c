"""The home directory: ours alone under any umask, and a clear word when it cannot be."""

import asyncio
import errno
import os
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from deputy.core.errors import StorageCorrupt, StorageDenied, StorageError, StorageTooNew
from deputy.journal import home as homes
from deputy.journal.retention import prune_expired
from deputy.journal.sqlite import schema
from deputy.journal.sqlite.connection import meaning, open_writer
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries
from deputy.journal.sqlite.sqlite_store import SqliteStore

WRITER = Path(__file__).with_name("writer.py")


def modes(home: Path) -> dict[str, int]:
    return {str(path.relative_to(home)): stat.S_IMODE(path.stat().st_mode) for path in (home, *home.rglob("*"))}


@pytest.mark.rule("transcript")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_only_the_owner_can_read_anything_under_any_umask(umask: int, filled: Callable[..., Path]) -> None:
    before = os.umask(umask)
    try:
        home = filled(ended=True)
    finally:
        os.umask(before)
    found = modes(home)
    assert found.pop(".") == 0o700
    assert found.pop("subagent") == 0o700
    assert set(found.values()) == {0o600}
    assert len(found) == 3


@pytest.mark.parametrize("umask", [0o000, 0o777])
def test_the_files_beside_an_open_journal_are_private_too(umask: int, home: Path) -> None:
    command = [sys.executable, str(WRITER), str(home), "sess_1_aaaaaa"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, umask=umask) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.stdout.readline()
        found = modes(home)
        child.kill()
    assert set(found) == {".", "journal.db", "journal.db-wal", "journal.db-shm", "journal.db-mark"}
    assert found.pop(".") == 0o700
    assert set(found.values()) == {0o600}


def test_an_open_home_that_is_ours_is_closed_to_others(home: Path) -> None:
    home.mkdir(0o755)
    homes.make_home(home)
    assert modes(home) == {".": 0o700}


def test_a_directory_that_others_write_to_is_refused_and_left_as_it_is(home: Path) -> None:
    home.mkdir()
    home.chmod(0o777)
    (home / "theirs").touch()
    with pytest.raises(StorageDenied, match="others may write to it"):
        homes.make_home(home)
    assert modes(home)["."] == 0o777


def test_a_symlinked_home_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(0o700)
    (tmp_path / "home").symlink_to(tmp_path / "real")
    with pytest.raises(StorageDenied, match=r"symbolic link.*DEPUTY_HOME"):
        SqliteJournal(tmp_path / "home")
    with pytest.raises(StorageDenied, match="symbolic link"):
        SqliteQueries.open(tmp_path / "home")


def test_a_foreign_home_is_refused(tmp_path: Path) -> None:
    foreign = Path("/usr")
    if os.geteuid() == 0:
        foreign = tmp_path / "home"
        foreign.mkdir()
        os.chown(foreign, 12345, 12345)
    with pytest.raises(StorageDenied, match="belongs to user"):
        homes.make_home(foreign)


def test_a_symlinked_journal_is_refused(home: Path, tmp_path: Path) -> None:
    home.mkdir(0o700)
    (tmp_path / "elsewhere").touch()
    (home / "journal.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageDenied, match="not a regular file"):
        SqliteJournal(home)


def test_a_home_that_cannot_be_made_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/sys/deputy")):
        with pytest.raises(StorageDenied, match="DEPUTY_HOME") as caught:
            SqliteJournal(path)
        assert str(path) in str(caught.value) or str(path.parent) in str(caught.value)


@pytest.mark.parametrize("content", [b"not a database" * 1000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_corrupt_journal_is_named_with_the_way_out_and_left_as_it_is(home: Path, content: bytes) -> None:
    home.mkdir(0o700)
    (home / "journal.db").write_bytes(content)
    for use in (SqliteJournal, SqliteQueries.open):
        with pytest.raises(StorageCorrupt, match=r"journal\.db.*deputy doctor --repair"):
            use(home)
    assert (home / "journal.db").read_bytes() == content


@pytest.mark.rule("disk")
def test_a_newer_journal_is_refused_and_left_as_it_is(filled: Callable[..., Path]) -> None:
    home = filled()
    with sqlite3.connect(home / "journal.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = (home / "journal.db").read_bytes()
    for use in (SqliteJournal, SqliteQueries.open):
        with pytest.raises(StorageTooNew, match=r"version 99.*Upgrade"):
            use(home)
    assert (home / "journal.db").read_bytes() == before


def test_a_database_of_another_program_is_refused(home: Path) -> None:
    home.mkdir(0o700)
    with sqlite3.connect(home / "journal.db") as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    with pytest.raises(StorageCorrupt, match="not a journal of Deputy"):
        SqliteJournal(home)


@pytest.mark.rule("disk")
def test_opening_rewrites_nothing(filled: Callable[..., Path]) -> None:
    home = filled(turns=20, ended=True)
    before = (home / "journal.db").read_bytes()
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        assert reader.live() == []
        assert len(list(reader.records("sess_1_aaaaaa"))) == 103
    prune_expired(SqliteStore(home), now=0.0)
    assert (home / "journal.db").read_bytes() == before


def test_of_many_that_make_the_journal_at_once_one_does_and_none_fails(home: Path) -> None:
    homes.make_home(home)
    start = threading.Barrier(8)

    def make() -> bool:
        start.wait()
        return homes.make_file(home / "journal.db", schema.fresh)

    with ThreadPoolExecutor(8) as pool:
        made = [future.result() for future in [pool.submit(make) for _ in range(8)]]
    assert sum(made) == 1
    assert modes(home) == {".": 0o700, "journal.db": 0o600}
    with closing(open_writer(home, "group")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


def test_an_empty_file_becomes_a_journal(home: Path) -> None:
    home.mkdir(0o700)
    (home / "journal.db").touch(0o600)
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        assert reader.live() == []


def test_a_missing_home_is_read_as_empty_and_not_made(home: Path) -> None:
    assert SqliteQueries.open(home) is None
    assert not home.exists()


def test_a_whole_write_leaves_the_old_file_when_it_fails(home: Path, tmp_path: Path) -> None:
    homes.make_home(home)
    homes.write_whole(home / "file", b"old")
    with pytest.raises(StorageError):
        homes.write_whole(home / "missing" / "file", b"new")
    assert (home / "file").read_bytes() == b"old"
    assert modes(home)["file"] == 0o600


@pytest.mark.rule("disk")
@pytest.mark.parametrize("use", [SqliteJournal, SqliteQueries.open])
def test_an_older_journal_is_brought_up_to_date_with_all_it_holds(
    filled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], object]
) -> None:
    home = filled(turns=5)
    newer = (*schema.MIGRATIONS, ("CREATE TABLE moods (run TEXT)", "ALTER TABLE runs ADD COLUMN mood TEXT"))
    monkeypatch.setattr(schema, "MIGRATIONS", newer)
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    opened = use(home)
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        assert len(list(reader.records("sess_1_aaaaaa"))) == 27
        assert reader.changes() > 0
    with sqlite3.connect(home / "journal.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
        assert connection.execute("SELECT count(*) FROM moods").fetchone() == (0,)
    connection.close()
    if isinstance(opened, SqliteJournal):
        asyncio.run(opened.close())
    elif isinstance(opened, SqliteQueries):
        opened.close()


@pytest.mark.rule("disk")
def test_a_journal_from_before_the_first_release_is_refused_and_left_as_it_is(filled: Callable[..., Path]) -> None:
    home = filled()
    with sqlite3.connect(home / "journal.db") as connection:
        connection.execute(f"PRAGMA user_version = {schema.FIRST_VERSION - 1}")
    connection.close()
    before = (home / "journal.db").read_bytes()
    for use in (SqliteJournal, SqliteQueries.open):
        with pytest.raises(StorageCorrupt, match=r"old version 6.*Move it away"):
            use(home)
    assert (home / "journal.db").read_bytes() == before


def test_a_migration_that_fails_changes_nothing(filled: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    home = filled(turns=1)
    newer = (*schema.MIGRATIONS, ("CREATE TABLE moods (run TEXT)", "CREATE TABLE runs (oops TEXT)"))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", newer)
        patch.setattr(schema, "VERSION", schema.VERSION + 1)
        with pytest.raises(StorageError):
            SqliteJournal(home)
    reader = SqliteQueries.open(home)
    assert reader is not None
    with reader:
        assert len(list(reader.records("sess_1_aaaaaa"))) == 7


@pytest.mark.parametrize("kind", ["pipe", "link", "directory"])
def test_a_journal_that_is_no_file_is_refused_without_waiting(tmp_path, kind):
    folder = tmp_path / "home"
    folder.mkdir(0o700)
    path = folder / "journal.db"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere.db")
    else:
        path.mkdir()
    with pytest.raises(StorageDenied, match=r"it is not a regular file\. Move it away"):
        SqliteQueries.open(folder)
    with pytest.raises(StorageDenied, match=r"it is not a regular file\. Move it away"):
        open_writer(folder, "group")


def test_a_home_that_can_only_be_read_is_read(filled: Callable[..., Path]) -> None:
    home = Path(tempfile.mkdtemp(prefix="deputy-home-", dir="/tmp"))
    shutil.copy(filled(turns=5) / "journal.db", home)
    (home / "journal.db").chmod(0o400)
    home.chmod(0o500)
    is_root = os.geteuid() == 0
    if is_root:
        # Root may write anywhere.
        os.chown(home, 12345, 12345)
        os.chown(home / "journal.db", 12345, 12345)
        os.seteuid(12345)
    try:
        reader = SqliteQueries.open(home)
        assert reader is not None
        with reader:
            assert len(reader.live()) == 1
        assert [path.name for path in home.iterdir()] == ["journal.db"]
    finally:
        if is_root:
            os.seteuid(0)
        home.chmod(0o700)
        shutil.rmtree(home)


def test_a_journal_that_this_process_writes_is_never_read_as_one_at_rest(filled: Callable[..., Path]) -> None:
    home = filled(turns=5)
    free = os.dup(0)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Room for the journal itself, and for nothing beside it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
    try:
        reader = SqliteQueries.open(home)
        assert reader is not None
        with reader:
            assert len(reader.live()) == 1
        with pytest.raises(StorageError):
            SqliteQueries.open(home, is_written=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def failed_opening(folder: Path) -> sqlite3.Error:
    with pytest.raises(sqlite3.OperationalError) as failed:
        sqlite3.connect(folder / "missing" / "journal.db")
    return failed.value


def test_a_read_only_file_system_is_named_with_the_way_out(tmp_path: Path) -> None:
    found = meaning("journal.db", failed_opening(tmp_path), homes.Disk(is_read_only=True))
    output = "it is on a read-only file system. Mount it for writing, or name another home with DEPUTY_HOME."
    assert isinstance(found, StorageDenied)
    assert str(found) == f"journal.db: {output}"
    with pytest.raises(StorageDenied, match=r"read-only file system\. Mount it for writing"):
        homes.explain(tmp_path, OSError(errno.EROFS, "Read-only file system"))


def test_what_cannot_be_opened_on_a_disk_that_can_be_written_is_reported_as_it_is(tmp_path: Path) -> None:
    assert homes.disk_of(tmp_path / "journal.db") == homes.Disk()
    assert "unable to open" in str(meaning("journal.db", failed_opening(tmp_path), homes.Disk()))
    assert homes.disk_of(tmp_path / "missing" / "journal.db") == homes.Disk()


def test_threads_of_one_process_can_write_the_same_file(tmp_path):
    path = tmp_path / "file"

    def write(content: bytes) -> None:
        for _ in range(200):
            homes.write_whole(path, content)

    with ThreadPoolExecutor(2) as threads:
        for writing in [threads.submit(write, content) for content in (b"one", b"two")]:
            writing.result()
    assert path.read_bytes() in (b"one", b"two")
    assert list(tmp_path.iterdir()) == [path]
