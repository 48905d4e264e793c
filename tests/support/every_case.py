"""Many cheap cases in one test: pytest needs more time to make and report a test than most of them take."""

from __future__ import annotations

import functools
import inspect
import reprlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200


def every_case(
    names: str | tuple[str, ...], cases: Iterable[Any], *, ids: Callable[[Any], object] | Iterable[object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with every case, as `pytest.mark.parametrize` would; the cases share the test's fixtures.

    All failures are raised together, each with a note that names its case.
    """
    split = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    listed = list(cases)
    labels = map(ids or _SHORT.repr, listed) if ids is None or callable(ids) else ids
    table = list(zip(labels, listed, strict=True))
    assert table, "no cases: such a test could not fail"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def every(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for label, case in table:
                values = case if len(split) > 1 else (case,)
                try:
                    test(**fixtures, **dict(zip(split, values, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised below
                    error.add_note(f"case {', '.join(split)}: {label}")
                    failures.append(error)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} cases failed", failures)

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in split]
        every.__signature__ = signature.replace(parameters=fixtures)  # pyright: ignore[reportAttributeAccessIssue]
        return every

    return decorate
