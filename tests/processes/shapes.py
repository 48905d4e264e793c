"""Shapes of programs that do not want to end, and who of them is still there."""

from contextlib import suppress
from pathlib import Path

# One that leaves its session says that it is ready only then: before, it would end with the group of the program.
# MARK becomes an argument of everything they start, so that a process with an empty environment is found, too.
SHAPES = {
    "does as it is told": "echo ready; exec sleep MARK",
    "ignores TERM": "trap '' TERM INT HUP; echo ready; sleep MARK; sleep MARK",
    "has a grandchild": "sh -c 'sleep MARK; true' & echo ready; wait",
    "exits and leaves a child": "sleep MARK & echo ready",
    "leaves its session": "setsid sh -c \"trap '' TERM; echo ready; sleep MARK; sleep MARK\" & wait",
    "forks twice": "(setsid sh -c 'sleep MARK & echo ready; sleep MARK' &); sleep MARK",
    "closes its pipes and lives": "echo ready; exec <&- >&- 2>&-; trap '' TERM; sleep MARK; sleep MARK",
    "clears its environment": "(setsid env -i sh -c 'echo ready; exec sleep MARK' &); sleep MARK",
    "leaves one that holds the pipes": "setsid sleep MARK & disown; (setsid sleep MARK 3>&1 &); echo ready; exit 3",
    "kills its warden": "sleep MARK & setsid sleep MARK & echo ready; kill -9 $PPID; sleep MARK",
    "stops itself": "echo ready; sleep MARK & kill -STOP $$; sleep MARK",
    "breeds": "b() { (setsid sleep MARK &); }; for i in 1 2 3 4 5 6 7 8 9 10; do b; done; echo ready; trap b TERM; "
    "while :; do sleep 0.1 & wait; done # MARK",
}


def script(shape, mark):
    """The shell's script of a shape."""
    return SHAPES[shape].replace("MARK", mark)


def survivors(mark):
    """The processes that have a mark among their arguments, without zombies."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if mark.encode() in (process / "cmdline").read_bytes():
                    found.append(process.name)
    return found
