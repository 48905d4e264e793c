"""Play seeds of the simulation until one of them fails.

usage: python -m tests.mutants.first_violation COUNT
"""

import sys

from tests.simulation.stage import LocalStage
from tests.support.simulation import simulate


def main(count: int) -> int:
    for seed in range(count):
        try:
            simulate(seed, LocalStage())
        except Exception as violation:  # noqa: BLE001  a changed engine may raise anything
            print(f"FAILED simulation::seed-{seed} - {violation}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
