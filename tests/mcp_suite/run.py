"""`make test-mcp`: the MCP conformance suite in both eras, and the Inspector's command line, against real servers."""

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from socket import AF_INET, SOCK_STREAM, create_connection, socket

from tests.mcp_suite.node import FOLDER, install

CONFORMANCE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ERAS = ("2025-11-25", "2026-07-28")
CALL = '[{"label": "files", "prompt": "Which files mention the journal?"}]'


def main() -> int:
    env = install(CONFORMANCE, INSPECTOR)
    with tempfile.TemporaryDirectory() as home:
        with served(Path(home) / "suite") as url:
            codes = [conformance(env, url, era) for era in ERAS]
        codes.append(inspect(env, Path(home) / "inspected"))
    print("test-mcp:", "passed" if not any(codes) else "failed")
    return int(any(codes))


def conformance(env: dict[str, str], url: str, era: str) -> int:
    log = FOLDER / f"conformance-{era}.log"
    command = ["conformance", "server", "--url", url, "--requirements", era]
    done = subprocess.run(
        [*command, "--expected-failures", str(HERE / "expected_failures.yml")],
        env=env,
        cwd=FOLDER,
        text=True,
        capture_output=True,
        check=False,
    )
    log.write_text(done.stdout + done.stderr)
    for line in done.stdout.splitlines():
        if line.startswith(("✗", "Total")):
            print(f"conformance {era}: {line}")
    # What is not scored in an era is ours to keep all the same.
    has_failed = "✗" in done.stdout
    if done.returncode or has_failed:
        print(f"conformance {era}: see {log}")
    return int(done.returncode != 0 or has_failed)


def inspect(env: dict[str, str], home: Path) -> int:
    server = [sys.executable, "-m", "deputy", "mcp", "--yes", "--model", "offline:scout"]
    env = {**env, "DEPUTY_HOME": str(home), "MCP_CATALOG_PATH": str(home / "catalog.json")}
    home.mkdir()

    def ask(*arguments: str) -> dict:
        command = ["mcp-inspector", "--cli", "-e", f"DEPUTY_HOME={home}", *arguments, "--", *server]
        done = subprocess.run(command, env=env, cwd=ROOT, text=True, capture_output=True, check=False)
        if done.returncode:
            print(done.stdout, done.stderr)
        return json.loads(done.stdout or "{}")

    names = [tool["name"] for tool in ask("--method", "tools/list").get("tools", [])]
    result = ask("--method", "tools/call", "--tool-name", "Delegate", "--tool-arg", f"tasks={CALL}")
    completed = result.get("structuredContent", {}).get("completed")
    print(f"inspector: lists {', '.join(names)}; Delegate completed {completed}")
    return int("Delegate" not in names or completed != 1)


@contextmanager
def served(home: Path):
    with socket(AF_INET, SOCK_STREAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.mcp_suite.app", str(port), str(home)],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait()


def wait_for(port: int) -> None:
    import time

    deadline = time.monotonic() + 30
    while True:
        try:
            create_connection(("127.0.0.1", port)).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
