"""What can be wrong with another agent's program, each with what to do about it."""

from __future__ import annotations

from deputy.core.errors import Error

NOT_INSTALLED = "PROGRAM_NOT_INSTALLED"
NOT_LOGGED_IN = "PROGRAM_NOT_LOGGED_IN"
WRONG_VERSION = "PROGRAM_WRONG_VERSION"
MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
CRASHED = "PROGRAM_CRASHED"
SAID_NOTHING = "EMPTY_REPLY"
NOT_JSON = "BAD_REPLY"
SESSION_GONE = "SESSION_GONE"
GRANT_NOT_HELD = "GRANT_NOT_HELD"
OUTPUT_LIMIT = "OUTPUT_LIMIT"


def not_installed(program: str, install: str) -> Error:
    """There is no such program."""
    return _unavailable(NOT_INSTALLED, f"{program} is not installed.", f"Install it ({install}), or use another one.")


def cannot_run(program: str, reason: str, install: str) -> Error:
    """There is something of that name which the system will not run."""
    return _unavailable(NOT_INSTALLED, f"{program} cannot be run: {reason}.", f"Install it again ({install}).")


def not_logged_in(program: str, message: str, login: str) -> Error:
    """Its service does not know who asks."""
    return _unavailable(NOT_LOGGED_IN, f"{program} is not logged in: {message}", f"{login}.")


def wrong_version(program: str, found: str, wanted: str, install: str) -> Error:
    """It is too old, or another program of the same name."""
    message = f"{program} is not the program that is meant: found {found}; needed is {wanted}."
    return _unavailable(WRONG_VERSION, message, f"Install it anew ({install}).")


def flag_unknown(program: str, message: str, install: str) -> Error:
    """It does not understand how it was called."""
    message = f"{program} does not understand how it was called: {message}"
    return _unavailable(WRONG_VERSION, message, f"Upgrade it ({install}).")


def model_unknown(program: str, message: str) -> Error:
    """It, or its service, does not know the model."""
    return Error(
        type="provider",
        code=MODEL_NOT_FOUND,
        message=f"{program} does not know the model: {message}",
        recoverable=False,
        recommendation="Name a model that it has, or none for its own choice.",
    )


def crashed(program: str, how: str, said: str) -> Error:
    """It ended before it said how the work went."""
    return Error(
        type="execution",
        code=CRASHED,
        message=f"{program} {how} before it was done.{_quoted(said)}",
        recoverable=True,
        recommendation=f"Try again; if it happens again, try `{program}` by hand, or use another backend.",
    )


def no_output(program: str) -> Error:
    """It ended well and gave no answer."""
    return Error(
        type="execution",
        code=SAID_NOTHING,
        message=f"{program} ended without an answer.",
        recoverable=True,
        recommendation="Try again, or another model.",
    )


def not_json(program: str, said: str) -> Error:
    """What it printed is not what it prints when asked for JSON."""
    return Error(
        type="execution",
        code=NOT_JSON,
        message=f"What {program} printed is not the JSON that was asked for.{_quoted(said)}",
        recoverable=True,
        recommendation=f"Look at what it printed; a wrapper or a notice may be in the way of `{program}`.",
    )


def session_gone(program: str, message: str) -> Error:
    """It does not have the conversation any more."""
    return Error(
        type="execution",
        code=SESSION_GONE,
        message=f"{program} does not have the session that was to go on: {message}",
        recoverable=True,
        recommendation="Start afresh with what is known.",
    )


def grant_not_held(program: str, what: str) -> Error:
    """It cannot be kept to what was granted, so it was not run."""
    return Error(
        type="tool_unavailable",
        code=GRANT_NOT_HELD,
        message=f"{program} cannot be kept to {what}; it was not run.",
        recoverable=False,
        recommendation="Grant the whole workspace or one folder of it, or use the native backend.",
    )


def output_limit(program: str, message: str) -> Error:
    """A limit of its own ended the turn."""
    return Error(
        type="output_limit",
        code=OUTPUT_LIMIT,
        message=f"{program} reached a limit of its own: {message}",
        recoverable=True,
        recommendation="Ask for less at once, or go on with what it has.",
    )


def _unavailable(code: str, message: str, recommendation: str) -> Error:
    return Error(type="tool_unavailable", code=code, message=message, recoverable=False, recommendation=recommendation)


def _quoted(said: str) -> str:
    return f" It said: {said}" if said else ""
