"""CPU until an MCP client has its first list of tools, beside what importing the SDK alone costs."""

import json
import resource
import subprocess
import sys
import tempfile

TIMES = 7
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}


def cpu(command: list[str], said: str = "") -> float:
    """CPU milliseconds of a whole process that is told something and answers with a line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as home:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"DEPUTY_HOME": home, "PATH": ""}
        )
        if said:
            process.stdin.write(said)
            process.stdin.flush()
            assert '"Delegate"' in process.stdout.readline()
        process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def main() -> None:
    floor = min(cpu([sys.executable, "-c", "import mcp.server"]) for _ in range(TIMES))
    whole = min(cpu([sys.executable, "-m", "deputy", "mcp"], f"{json.dumps(LIST)}\n") for _ in range(TIMES))
    print(f"import mcp.server          {floor:7.0f} ms CPU")
    print(f"deputy mcp, tools/list     {whole:7.0f} ms CPU, start to exit")
    print(f"over the SDK               {whole - floor:7.0f} ms CPU (goal: at most 250)")


if __name__ == "__main__":
    main()
