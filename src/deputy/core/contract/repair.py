"""Repair of an invalid return: send it back with its problems, a limited number of times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deputy.core.contract.instruction import ask
from deputy.core.errors import Error, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deputy.core.contract.return_types import ContractProblem, ExpectedReturn
    from deputy.core.contract.user_schema import Schema

REPAIRS_DEFAULT = 1
REPAIRS_MAX = 2
INVALID_RETURN = "INVALID_RETURN"

_MESSAGE = """\
Your answer was not accepted:

{problems}

Correct these problems and send the whole answer again. Do not repeat work that is done.

{form}"""


def repairs_allowed(asked: int | None = None) -> int:
    """How often a return is sent back: once, or the number that the caller asks for, up to the maximum."""
    if asked is None:
        return REPAIRS_DEFAULT
    if isinstance(asked, bool) or not 0 <= asked <= REPAIRS_MAX:
        raise UsageError("repairs", asked, f"a return is sent back 0 to {REPAIRS_MAX} times")
    return asked


def repair_message(problems: Sequence[ContractProblem], expected: ExpectedReturn, schema: Schema | None = None) -> str:
    """The message that asks the target to correct its return."""
    listed = "\n".join(f"{at}. {_sentence(problem)}" for at, problem in enumerate(problems, 1))
    return _MESSAGE.format(problems=listed, form=ask(expected, schema))


def invalid_return(problems: Sequence[ContractProblem], *, repairs: int = 0) -> Error:
    """The error of a delegation whose return is still invalid after the repairs."""
    first = problems[0].message if problems else "no problem is known"
    rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    tried = {0: "", 1: " after one repair"}.get(repairs, f" after {repairs} repairs")
    return Error(
        type="validation",
        code=INVALID_RETURN,
        message=f"The return breaks the contract{tried}: {first}{rest}.",
        recoverable=True,
        recommendation="Read the original text, then run the delegation again; nothing was marked as done.",
    )


def _sentence(problem: ContractProblem) -> str:
    return f"{problem.message}. {problem.remedy}".rstrip()
