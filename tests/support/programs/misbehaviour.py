# pyright: basic
"""Misbehaviours of fake programs in any format; only the standard library, so that they start at once."""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOR_EVER = 600
USAGE = {"usage", "modelUsage", "model_usage_since_last_result", "total_cost_usd", "stats", "tokens", "cost"}
"""The fields in which programs report what they used."""
SLEEPER = ["sleep", str(FOR_EVER)]


def how_now(how: str, *, goes_on: bool) -> str:
    """How it misbehaves this time: one that hangs once does well when it goes on."""
    if how != "hangs once":
        return how
    return "" if goes_on else "hangs"


def without_usage(value: Any) -> Any:
    """A line as a program prints it that reports no usage."""
    if isinstance(value, dict):
        fields: dict[str, Any] = value
        return {name: without_usage(held) for name, held in fields.items() if name not in USAGE}
    if isinstance(value, list):
        items: list[Any] = value
        return [without_usage(held) for held in items]
    return value


def misbehave_first(how: str, flood_bytes: int) -> None:
    """Before anything is said."""
    match how:
        case "says nothing":
            sys.exit(0)
        case "prints garbage":
            print("Welcome!\n<html>\n{not json}\n[1, 2]\n\x00\x1b[2J")
            sys.exit(0)
        case "floods" | "floods and says nothing more":
            _flood(flood_bytes)
            if how != "floods":
                sys.exit(0)
        case "prints an endless line":
            os.write(1, b'{"type": "message", "content": "')
            for _ in range(flood_bytes // 65_536):
                os.write(1, b"x" * 65_536)
            os.write(1, b'"}\n')
        case "asks at the terminal":
            print("Do you trust this folder? [y/n] ", end="", flush=True)
            time.sleep(FOR_EVER)
        case _:
            pass


def misbehave_midway(how: str) -> None:
    """After the first words."""
    if not how:
        return
    import signal
    import subprocess

    match how:
        case "crashes":
            sys.stderr.write("thread 'main' panicked at src/main.rs:1\n")
            sys.stderr.flush()
            os._exit(3)
        case "is killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stops in the middle of a line":
            print('{"type": "result", "res', end="", flush=True)
            os._exit(0)
        case "hangs":
            time.sleep(FOR_EVER)
        case "hangs and is deaf":
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(FOR_EVER)
        case "leaves children":
            subprocess.Popen(SLEEPER, start_new_session=True)
            subprocess.Popen(["env", "-i", *SLEEPER], start_new_session=True, stdout=subprocess.DEVNULL)
        case "closes its pipes":
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(nothing, descriptor)
            time.sleep(FOR_EVER)
        case _:
            pass


def _flood(size: int) -> None:
    sys.stdout.flush()
    chunk = (b"x" * 1023 + b"\n") * 64
    os.write(1, b"first words\n")
    for _ in range(size // len(chunk)):
        os.write(1, chunk)
    os.write(1, b"last words\n")
