"""Plant one bug at a time, and see whether the tests find it.

usage: python -m tests.mutants.run [--only ID,ID] [--jobs 2] [--seeds 200] [--seconds 300]
"""

import argparse
import sys

from tests.mutants.planted import ROOT, planted
from tests.mutants.scratch import Bounds, Change, run_all


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=300.0)
    options = parser.parse_args()
    only = set(filter(None, options.only.split(",")))
    chosen = [mutant for mutant in planted() if not only or mutant.id in only]
    if unknown := only - {mutant.id for mutant in chosen}:
        print(f"no planted bug is called {', '.join(sorted(unknown))}; tests/mutants/planted lists them")
        return 2
    changes = [
        Change(mutant.id, mutant.file, mutant.changed((ROOT / mutant.file).read_text("utf-8")), mutant.tests)
        for mutant in chosen
    ]
    verdicts = run_all(changes, Bounds(options.seconds, options.seeds), options.jobs)
    caught = [one for one in verdicts if one.end == "caught"]
    breaks = {mutant.id: mutant.breaks for mutant in chosen}
    for one in verdicts:
        if one.end != "caught":
            print(f"\n{one.end}: {one.change.name} in {one.change.file}\n  {breaks[one.change.name]}\n  {one.by}")
    print(f"\n{len(caught)} of {len(verdicts)} planted bugs were caught")
    return int(len(caught) != len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
