"""Test a chosen model: one tool call of its own, or one turn of the program that has it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from deputy.core.errors import UsageError
from deputy.engine.ports.backend import BackendRequest
from deputy.models.tool_call_check import CODE_WORD, FILE, TASK, ToolCallCheck, check_tool_call

if TYPE_CHECKING:
    from deputy.engine.ports import Backend
    from deputy.engine.ports.backend import BackendResult
    from deputy.interfaces.setup_survey import AgentProgram, SetupSurvey
    from deputy.models.factory import ModelFactory

_PROGRAM_SECONDS = 240.0
_OWNER = "model-check"


def program_for(models: ModelFactory, survey: SetupSurvey, model: str) -> AgentProgram | None:
    """The installed program that executes a model; None if Deputy calls the model itself, or no program has it."""
    try:
        missing = models.missing_key(model)
    except UsageError:
        return None
    return None if missing is None else survey.program_of(missing)


async def check_model(models: ModelFactory, survey: SetupSurvey, model: str) -> ToolCallCheck:
    """Let a model read a file and use it, the way in which subagents would use the model."""
    program = program_for(models, survey, model)
    if program is None:
        return await check_tool_call(models, model)
    backend = _backend(program.backend)
    started = time.monotonic()
    with TemporaryDirectory(prefix="deputy-check-") as folder:
        await asyncio.to_thread(Path(folder, FILE).write_text, f"The code word is {CODE_WORD}.\n")
        request = BackendRequest(
            session_id=_OWNER,
            prompt=TASK,
            workspace=folder,
            model=models.full_name(model),
            seconds=_PROGRAM_SECONDS,
        )
        result = await backend.run(request, lambda _: None)
    return _judged(result, program, model, time.monotonic() - started)


def _backend(name: str) -> Backend:
    from deputy.backends.acp import acp_backend
    from deputy.backends.cli import cli_backend
    from deputy.tools.workspace_text_files import WorkspaceTextFiles

    kind, _, program = name.partition(":")
    found = cli_backend(program, os.environ) if kind == "cli" else acp_backend(program, os.environ, WorkspaceTextFiles)
    if found is None:
        raise AssertionError(f"the survey names a backend that does not exist: {name}")
    return found


def _judged(result: BackendResult, program: AgentProgram, model: str, seconds: float) -> ToolCallCheck:
    if result.error is not None:
        message, remedy = result.error.message, result.error.recommendation
        return ToolCallCheck(model=model, result="failed", message=message, remedy=remedy, seconds=seconds)
    if CODE_WORD in result.text:
        message = f"{program.name} read a file and used it"
        return ToolCallCheck(model=model, result="works", message=message, seconds=seconds)
    message = f"{program.name} answered without the content of a file that it should read"
    remedy = f"Choose another model. To see what it does, run `{program.name}` by hand."
    return ToolCallCheck(model=model, result="no_use", message=message, remedy=remedy, seconds=seconds)
