"""What it costs to admit a delegation, beside hashing its prompt, which is the least that a signature takes."""

import timeit
from collections.abc import Callable
from hashlib import blake2b

from deputy.core.guard import Policy, admit
from deputy.core.limits import SpawnCounts
from deputy.core.request import Grant, Hop, Lineage, Request

ROUNDS = 20_000


def microseconds(function: Callable[[], object]) -> float:
    return min(timeit.repeat(function, number=ROUNDS, repeat=5)) / ROUNDS * 1e6


def main() -> None:
    caller = Lineage.root("sess_1_aaaaaa", command="implement", deadline=8000.0)
    caller = caller.child("sess_1_bbbbbb", Hop("task-executor", "agent"), "0" * 32, now=0.0, seconds=None)
    request = Request(
        session_id="sess_1_cccccc",
        target=Hop("implementer", "agent"),
        prompt="Implement the parser described in plan.md and run its tests. " * 3,
        inputs={"plan": "plan.md", "files": ["a.py", "b.py"], "strict": True},
        caller=caller,
        caller_grant=Grant(),
    )
    policy, spawn_counts = Policy(), SpawnCounts()
    ours = microseconds(lambda: admit(request, policy, spawn_counts, 1.0))
    floor = microseconds(lambda: blake2b(request.prompt.encode(), digest_size=16).hexdigest())
    print(f"{'admit one request':42} {floor:6.1f}µs {ours:6.1f}µs {ours / floor:6.1f}× {'≤ 20 µs':>7}")


if __name__ == "__main__":
    main()
