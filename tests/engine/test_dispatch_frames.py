from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.scripts import call, talk, turn

import deputy
from deputy.models.script_model import ScriptModel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import pytest
    from tests.support.house import House

SOURCE = Path(deputy.__file__).parent
MOST_FRAMES = 12


def frames(innermost: FrameType | None) -> Iterator[str]:
    """The frames of a run's task in our own source, innermost first."""
    frame = innermost
    while frame is not None and "asyncio" not in Path(frame.f_code.co_filename).parts:
        if SOURCE in Path(frame.f_code.co_filename).parents:
            yield frame.f_code.co_qualname
        frame = frame.f_back


def test_at_most_twelve_frames_lie_between_the_task_of_a_run_and_the_model(
    house: House, monkeypatch: pytest.MonkeyPatch
):
    seen: list[list[str]] = []
    stream = ScriptModel.stream

    def watched(*args):
        seen.append(list(frames(sys._getframe(1))))
        return stream(*args)

    monkeypatch.setattr(ScriptModel, "stream", watched)
    (house.workspace / "a.txt").write_text("hello\n")
    house.script(talk(turn("I look.", call("Read", path="a.txt")), turn("done")))
    house.one()
    assert len(seen) == 2
    for stack in seen:
        assert ("call_model" in stack, stack[-1]) == (True, "RunSupervisor._execute")
        assert len(stack) <= MOST_FRAMES, stack
