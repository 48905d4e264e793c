"""A warm process under the shim that forks one child per trial: a crash costs milliseconds, not a start of Python.

usage: zygote.py MODULE…   imports the modules and runs each once; then reads trials as JSON lines and answers each.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def main() -> None:
    for module in sys.argv[1:]:
        warm_up(importlib.import_module(module))
    gc.collect()
    gc.freeze()
    shim = ctypes.CDLL(None) if "LD_PRELOAD" in os.environ else None
    answer("ready")
    for line in sys.stdin:
        answer(json.dumps(trial(json.loads(line), shim)))


def warm_up(subject: ModuleType) -> None:
    """Carry the history out once, out of the shim's sight: what it imports and compiles is there for all trials."""
    kept = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir(mode=0o700)
        subject.run(str(home), "ok", lambda _line: None)
    os.environ.clear()
    os.environ.update(kept)


def answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def trial(order: dict, shim: ctypes.CDLL | None) -> dict:
    """Fork, let the child do what was ordered, and tell how it ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        obey(order, shim, writing)
    os.close(writing)
    if order["kill_after"] is not None:
        time.sleep(order["kill_after"])
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        output = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not output.startswith(b"{"):
        return {"status": status, "told": {"trace": output.decode(errors="replace")}}
    return {"status": status, "told": json.loads(output)}


def obey(order: dict, shim: ctypes.CDLL | None, pipe: int) -> None:
    output: dict = {}
    # A crash of the interpreter, and a hang, leave the stacks of all threads behind.
    stacks = os.fdopen(os.dup(pipe), "wb")
    faulthandler.enable(stacks)
    faulthandler.dump_traceback_later(order["seconds"], exit=True, file=stacks)
    os.environ.update(order["environment"])
    acks = os.open(order["acks"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.environ["SHIM_ACKS"] = str(acks)
    module, _, name = order["call"].rpartition(".")
    call = getattr(sys.modules[module], name)
    if shim is not None:
        shim.shim_reset()
    try:
        output["answer"] = call(*order["arguments"], lambda line: os.write(acks, f"{line}\n".encode()))
    except BaseException as error:  # noqa: BLE001  the child tells whatever stopped it
        output["raised"] = sorted({cls.__name__ for leaf in leaves(error) for cls in type(leaf).__mro__})
        output["trace"] = "".join(traceback.format_exception(error))[-4000:]
    finally:
        if shim is not None:
            output["operations"] = shim.shim_count()
            os.environ["SHIM_ROOT"] = ""
            shim.shim_reset()
        faulthandler.cancel_dump_traceback_later()
        with contextlib.suppress(OSError):
            os.write(pipe, json.dumps(output).encode())
        os._exit(0)


def leaves(error: BaseException) -> list[BaseException]:
    """The errors that a group is made of, or the error itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for member in error.exceptions for leaf in leaves(member)]


if __name__ == "__main__":
    main()
