"""Owners: a process is told apart from every other that ever had its number."""

import subprocess
import sys

from msgspec.structs import replace

from deputy.journal.process_identity import ProcessIdentity, is_gone, this_process


def test_a_process_is_there_until_it_is_gone() -> None:
    script = "from deputy.journal.process_identity import this_process; print(this_process().name, flush=True); input()"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        owner = ProcessIdentity.named(child.stdout.readline().strip())
        assert owner is not None
        assert not is_gone(owner)
        child.kill()
        # Not waited for yet: what remains of it in the table of processes does not count.
        child.stdout.read()
        assert owner.pid == child.pid
    assert is_gone(owner)


def test_another_process_of_the_same_number_is_another_owner() -> None:
    mine = this_process()
    assert not is_gone(mine)
    assert is_gone(replace(mine, started="1"))
    assert is_gone(replace(mine, boot="an earlier boot"))
    # In another space of numbers nothing can be seen from here.
    assert not is_gone(replace(mine, space="1", started="1"))


def test_a_name_is_read_back() -> None:
    mine = this_process()
    assert ProcessIdentity.named(mine.name) == mine
    assert this_process().name != mine.name
    for name in ("", "a/b", "a/b/c/d/e", "a/b/1/d/e/f"):
        assert ProcessIdentity.named(name) is None
