"""Play seeds of the simulation until one of them fails.

usage: python -m tests.mutants.first_violation FIRST END
"""

import sys

from tests.simulation.stage import LocalStage
from tests.support.simulation import simulate


def main(first: int, end: int) -> int:
    for seed in range(first, end):
        try:
            simulate(seed, LocalStage())
        except Exception as violation:  # noqa: BLE001  a changed engine may raise anything
            print(f"FAILED simulation::seed-{seed} - {violation}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
