"""Programs from the npm registry, installed by name and version into a build folder, with the Node.js they need."""

import os
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "build" / "node"
NODE = "node@22"


def install(*packages: str) -> dict[str, str]:
    """Install what is missing; gives the environment in which the programs are found first."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    manifest = FOLDER / "package.json"
    if not manifest.exists():
        manifest.write_text('{"name": "suites", "private": true}\n')
    path = f"{FOLDER / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "npm_config_update_notifier": "false"}
    # First Node.js itself: under an older one npm silently takes old versions of the others.
    for batch in ((NODE,), packages):
        if not all(_is_there(package) for package in batch):
            command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *batch]
            subprocess.run(command, cwd=FOLDER, env=env, check=True)
    return env


def _is_there(package: str) -> bool:
    import json

    name, _, wanted = package.rpartition("@")
    manifest = FOLDER / "node_modules" / name / "package.json"
    if not manifest.exists():
        return False
    version = json.loads(manifest.read_text())["version"]
    return version == wanted or version.startswith(f"{wanted}.")
