"""The environments of peers: one per subject in build/gauntlet, with the versions of versions.toml."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "gauntlet"
# Outside of the repository: programs read the notes of the repository that they work in.
RUNS = Path(tempfile.gettempdir()) / "deputy-gauntlet"
VERSIONS = Path(__file__).with_name("versions.toml")
NPM = {"claude_code": "@anthropic-ai/claude-code", "codex_cli": "@openai/codex"}


def packages(subject: str) -> list[str]:
    """The pinned packages of a subject; none for Deputy and for programs."""
    return tomllib.loads(VERSIONS.read_text()).get(subject, {}).get("packages", [])


def python_of(subject: str) -> str:
    """The interpreter of a subject, with its packages installed."""
    wanted = packages(subject)
    if not wanted:
        return sys.executable
    place = BUILD / subject
    python, ready = place / "bin" / "python", place / ".ready"
    if not ready.exists() or ready.read_text() != json.dumps(wanted):
        print(f"installing {' '.join(wanted)}", flush=True)
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *wanted], check=True)
        ready.write_text(json.dumps(wanted))
    return str(python)


def version_of(subject: str) -> str:
    """The version of a subject, for the report."""
    if subject.startswith("deputy"):
        source = tomllib.loads((ROOT / "pyproject.toml").read_text())
        return source["project"]["version"]
    if subject in NPM:
        pinned = re.search(rf"{NPM[subject]}@([\d.]+)", (ROOT / "Makefile").read_text())
        return pinned[1] if pinned else "unknown"
    return ", ".join(one.replace("==", " ").replace("[openai]", "") for one in packages(subject)[:2])
