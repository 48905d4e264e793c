"""llama.cpp's own server with the weights; run with the folder of unpack.py as PYTHONPATH.

usage: python serve.py WEIGHTS PORT WINDOW THREADS
"""

import os
import sys
import time
from pathlib import Path

import xllamacpp

_TEMPLATE = b"tokenizer.chat_template"
_HEAD_BYTES = 16_000_000


def chat_template(weights: Path) -> str:
    """The model's own template, in which this file doubles the braces of the example of a call."""
    with weights.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    # After the key: 4 bytes for the type, 8 for the length, then the text.
    start = head.index(_TEMPLATE) + len(_TEMPLATE) + 12
    size = int.from_bytes(head[start - 8 : start], "little")
    text = head[start : start + size].decode()
    return text.replace('{{\\"name\\"', '{\\"name\\"').replace("object>}}\\n", "object>}\\n")


def main() -> None:
    """Serve until the process is ended."""
    weights, port, window, threads = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.chat_template = chat_template(Path(weights))
    params.use_jinja = True
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_ctx = int(window)
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    # The server ends with the process that started it, however that one ends.
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)


if __name__ == "__main__":
    main()
