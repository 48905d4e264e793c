import asyncio
import os
import select
import signal
import subprocess
import sys
from itertools import count

import pytest
from tests.processes.shapes import SHAPES, script, survivors

from deputy.processes.supervise import Command, ExitStatus, SupervisedChild, supervise

TIMES = int(os.environ.get("DEPUTY_EVIL", "1"))
MARKS = count()


def mark():
    return f"600.{os.getpid()}{next(MARKS):04}"


def command(*argv, **fields):
    fields = {"grace_seconds": 0.2, "environment": {"PATH": os.environ["PATH"]}, **fields}
    return Command(argv=argv, cwd="/tmp", owner="test", **fields)


def shell(text, **fields):
    return command("/bin/bash", "-c", text, **fields)


def test_input_goes_in_and_output_and_exit_code_come_back():
    async def play():
        async with supervise(shell("cat; echo err >&2; exit 3")) as child:
            await child.feed(b"in")
            return await child.stdout.read(), await child.stderr.read(), await child.exited()

    assert asyncio.run(play()) == (b"in", b"err\n", ExitStatus(code=3))


@pytest.mark.parametrize(
    ("text", "exit_"),
    [
        ("kill -9 $$", ExitStatus(code=-9)),
        ("kill -TERM $$", ExitStatus(code=-15)),
        ("kill -9 $PPID; sleep 60", ExitStatus()),
    ],
)
def test_how_it_ended_is_reported(text, exit_):
    async def play():
        async with supervise(shell(text)) as child:
            return await child.exited()

    assert asyncio.run(play()) == exit_


def test_what_cannot_be_run_says_why(tmp_path):
    bad = tmp_path / "bad"
    bad.write_text("#!/nowhere/at/all\n")
    bad.chmod(0o755)

    async def play(path):
        async with supervise(command(path)) as child:
            await child.feed(b"in")
            return await child.exited()

    assert asyncio.run(play("/nowhere")) == ExitStatus(errno=2)
    assert asyncio.run(play(str(bad))) == ExitStatus(errno=2)
    assert asyncio.run(play("/tmp")) == ExitStatus(errno=13)


def test_no_input_is_an_empty_one():
    async def play():
        async with supervise(shell("cat; tty", has_input=False)) as child:
            return await child.stdout.read()

    assert asyncio.run(play()) == b"not a tty\n"


def test_the_program_has_no_descriptor_that_it_was_not_given():
    async def play():
        async with supervise(shell("ls /proc/self/fd | wc -l; ps -o pgid= -p $$ | tr -d ' '; echo $$")) as child:
            return (await child.stdout.read()).split()

    descriptors, group, own = asyncio.run(play())
    assert descriptors == b"4"  # its three and the directory that it reads
    assert group == own


async def ready(child: SupervisedChild):
    assert await child.stdout.readline() == b"ready\n"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("time", range(TIMES))
def test_nothing_is_left_of_a_program_that_is_ended(shape, time):
    name = mark()

    async def play():
        async with supervise(shell(script(shape, name))) as child:
            await ready(child)
        return survivors(name)

    assert asyncio.run(play()) == []


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("time", range(TIMES))
def test_nothing_is_left_of_a_program_whose_turn_is_cancelled(shape, time):
    name = mark()

    async def play():
        started = asyncio.Event()

        async def turn():
            async with supervise(shell(script(shape, name))) as child:
                await ready(child)
                started.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(turn())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return survivors(name)

    assert asyncio.run(play()) == []


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "kills its warden"])
def test_nothing_is_left_when_the_process_that_wanted_it_is_killed(shape):
    name = mark()
    code = (
        "import asyncio, sys\n"
        "from tests.processes.test_supervise import ready, shell, supervise\n"
        "async def play():\n"
        "    async with supervise(shell(sys.argv[1])) as child:\n"
        "        await ready(child)\n"
        "        print(child.reaper, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(play())\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, script(shape, name)], stdout=subprocess.PIPE) as owner:
        reaper = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
    assert select.select([reaper], [], [], 60)[0]
    os.close(reaper)
    assert survivors(name) == []


@pytest.fixture(params=[signal.default_int_handler, signal.SIG_IGN], ids=["in the foreground", "in the background"])
def as_a_shell_starts_it(request):
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("as_a_shell_starts_it")
def test_a_program_that_is_asked_may_end_in_its_own_way():
    async def play():
        # It waits in the shell itself: some lose a signal that comes just as they start a program.
        text = "sleep 60 >/dev/null & trap 'kill $!; echo bye; exit 7' INT; echo ready; wait"
        async with supervise(shell(text, grace_seconds=20)) as child:
            await ready(child)
            child.ask(signal.SIGINT)
            return await child.stdout.read(), await child.exited()

    assert asyncio.run(play()) == (b"bye\n", ExitStatus(code=7))


def test_input_that_is_not_read_is_no_error():
    async def play():
        async with supervise(shell("exec <&-; echo ready; exit 0")) as child:
            await child.feed(b"x" * 1_000_000)
            return await child.exited()

    assert asyncio.run(play()) == ExitStatus(code=0)


def test_a_program_can_be_killed_without_being_asked():
    async def play():
        async with supervise(
            shell("trap 'echo asked' TERM; echo ready; sleep 60 & wait; sleep 60", grace_seconds=60)
        ) as child:
            await ready(child)
            child.kill()
            return await child.stdout.read(), await child.exited()

    assert asyncio.run(play()) == (b"", ExitStatus(code=-9))
