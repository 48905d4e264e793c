"""A Python that has imported every package but ours; each run is a fork of it, so that no run pays for these imports.

usage: python -m tests.mutants.warm_python, with one order per line of standard input: the file for the output, and the
arguments of `python`. The answers are two lines each: the id of the process, which leads a group, and its exit code.
"""

import importlib
import os
import runpy
import sys
from contextlib import suppress
from typing import Any

import msgspec

# What the tests import of others. A package that is missing here only costs time.
PACKAGES = ("pytest", "_pytest.assertion.rewrite", "pytest_timeout", "hypothesis", "hypothesis.stateful", "msgspec")
PACKAGES += ("_hypothesis_pytestplugin", "asyncio", "sqlite3", "pydantic", "aiohttp", "anyio", "yaml", "http.server")


def main() -> Any:
    for name in PACKAGES:
        with suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin.buffer:
        output, *arguments = msgspec.json.decode(line, type=list[str])
        child = os.fork()
        if not child:
            return _run(output, arguments)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return 0


def _run(output: str, arguments: list[str]) -> Any:
    """Run `-m MODULE ARGUMENTS` in this process, the child."""
    os.setsid()
    for path, flags, number in ((os.devnull, os.O_RDONLY, 0), (output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 1)):
        opened = os.open(path, flags)
        os.dup2(opened, number)
        os.close(opened)
    os.dup2(1, 2)
    importlib.invalidate_caches()
    _, module, *sys.argv[1:] = arguments
    return runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    sys.exit(main())
