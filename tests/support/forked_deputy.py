"""`deputy` for a shell or another program to start: asks the fork server for a process, and ends as that one ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys


def main(address: str, *arguments: str) -> None:
    reading, writing = os.pipe()
    here = os.getcwd()  # noqa: PTH109 - pathlib takes as long to import as all the rest
    order = {"terminal": False, "ignores": 0, "argv": ["", *arguments], "cwd": here, "env": dict(os.environ)}
    body = json.dumps(order).encode("utf-8", "surrogateescape")
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(f"\0{address}")
        socket.send_fds(server, [struct.pack("I", len(body))], [0, 1, 2, writing])
        server.sendall(body)
        (pid,) = struct.unpack("I", server.recv(4, socket.MSG_WAITALL))
    for stream in (0, 1, 2, writing):
        os.close(stream)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    (status,) = struct.unpack("i", os.read(reading, 4))
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
