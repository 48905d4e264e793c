"""`make wheel`: install a wheel into an empty virtual environment, and use it there as a new user would."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
ASK = ("ask", "Where are passwords checked?", "--model", "script:tutorial.json")


def main(wheel: str) -> int:
    """Exit with 1 if a command of the installed wheel fails."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        shutil.copytree(ROOT / "examples" / "bookshop", place / "bookshop")
        bin_folder = place / "venv" / "bin"
        install = [bin_folder / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile"]
        subprocess.run([*install, "-c", ROOT / "constraints.txt", f"{Path(wheel).resolve()}[mcp]"], check=True)
        environ = {"HOME": folder, "PATH": f"{bin_folder}:/usr/bin:/bin", "LANG": "C.UTF-8"}
        # Prompts, agents and the catalogue are files beside the code: each command reads some of them.
        for arguments, expected in (
            (("--version",), "version"),
            (ASK, "bookshop/accounts.py:13"),
            (("agents", "--shipped"), "implementer"),
            (("models", "anthropic"), "claude-sonnet"),
            (("mcp", "--json"), "command"),
        ):
            command = [bin_folder / "deputy", *arguments]
            run = subprocess.run(
                command, cwd=place / "bookshop", env=environ, capture_output=True, text=True, check=False
            )
            if expected not in run.stdout:
                sys.stderr.write(f"deputy {' '.join(arguments)} failed:\n{run.stdout}{run.stderr}")
                return 1
    sys.stdout.write(f"{wheel}: installed into an empty virtual environment, and works\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
