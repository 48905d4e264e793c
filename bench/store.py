"""One process on a Postgres store beside SQLite: the makespan and CPU of 50 subagents with 10 turns each, interleaved.

Postgres syncs its commits, and runs on the same cores; its own CPU is not counted.
"""

import argparse
import os
import tempfile
from pathlib import Path

from bench import subagents
from tests.support.postgres import migrated

from deputy.testing.postgres_server import OwnServer

DEMAND = 1.3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--children", type=int, default=50)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = OwnServer(Path(folder), fsync=True)
        stores = {"sqlite": "", "postgres": migrated(server.start())}
        best: dict[str, dict[str, float]] = {}
        try:
            for _ in range(said.rounds):
                for name, url in stores.items():
                    os.environ["DEPUTY_STORE"] = url
                    found = subagents.measure(("ours",), said.children, said.turns, 0.0, 1)["ours"]
                    kept = best.setdefault(name, found)
                    best[name] = {figure: min(value, kept[figure]) for figure, value in found.items()}
        finally:
            server.stop("immediate")
    steps = said.children * said.turns
    for name, found in best.items():
        print(f"{name:<9} {found['wall']:6.2f} s   {1000 * found['cpu'] / steps:5.2f} ms CPU per turn")
    ratio = best["postgres"]["wall"] / best["sqlite"]["wall"]
    print(f"postgres / sqlite: {ratio:.2f} of the time (at most {DEMAND})")


if __name__ == "__main__":
    main()
