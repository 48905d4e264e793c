"""Errors of other agents' programs, each with a remedy."""

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
    """The program is not on the PATH."""
    remedy = f"Install it ({install}), or use another backend."
    return _unavailable(NOT_INSTALLED, f"{program} is not installed.", remedy)


def cannot_run(program: str, reason: str, install: str) -> Error:
    """The system cannot start the program."""
    return _unavailable(NOT_INSTALLED, f"{program} cannot be started: {reason}.", f"Install it again ({install}).")


def not_logged_in(program: str, message: str, login: str) -> Error:
    """The program has no valid login."""
    return _unavailable(NOT_LOGGED_IN, f"{program} is not logged in: {message}", f"{login}.")


def wrong_version(program: str, found: str, wanted: str, install: str) -> Error:
    """The program is too old, or another program of the same name."""
    message = f"{program} has the wrong version: found {found}; needed is {wanted}."
    return _unavailable(WRONG_VERSION, message, f"Install it again ({install}).")


def flag_unknown(program: str, message: str, install: str) -> Error:
    """The program does not know an option that it was started with."""
    message = f"{program} does not know an option that Deputy needs: {message}"
    return _unavailable(WRONG_VERSION, message, f"Upgrade it ({install}).")


def model_unknown(program: str, message: str) -> Error:
    """The program or its service does not have the model."""
    remedy = "Name a model that it has, or none for its default."
    return _error(
        "provider", MODEL_NOT_FOUND, f"{program} does not know the model: {message}", remedy, recoverable=False
    )


def crashed(program: str, how: str, output: str) -> Error:
    """The program ended without a result."""
    remedy = f"Try again; if it happens again, run `{program}` by hand, or use another backend."
    return _error("execution", CRASHED, f"{program} {how} before it was done.{_quoted(output)}", remedy)


def no_output(program: str) -> Error:
    """The program succeeded without an answer."""
    return _error("execution", SAID_NOTHING, f"{program} ended without an answer.", "Try again, or another model.")


def not_json(program: str, output: str) -> Error:
    """The program's output is not the requested JSON."""
    remedy = f"Look at its output; a wrapper around `{program}` or a notice may have printed it."
    return _error("execution", NOT_JSON, f"The output of {program} is not the requested JSON.{_quoted(output)}", remedy)


def session_gone(program: str, message: str) -> Error:
    """The program no longer has the session."""
    remedy = "Start a new session with the findings so far."
    return _error("execution", SESSION_GONE, f"{program} does not have the session to resume: {message}", remedy)


def grant_not_held(program: str, what: str) -> Error:
    """The program cannot be limited to the grant, so it was not run."""
    remedy = "Grant the whole workspace or one folder of it, or use the native backend."
    return _unavailable(GRANT_NOT_HELD, f"{program} cannot be limited to {what}; it was not run.", remedy)


def output_limit(program: str, message: str) -> Error:
    """A limit of the program ended the turn."""
    remedy = "Ask for less at once, or continue with what it has."
    return _error("output_limit", OUTPUT_LIMIT, f"{program} reached one of its own limits: {message}", remedy)


def _unavailable(code: str, message: str, remedy: str) -> Error:
    return _error("tool_unavailable", code, message, remedy, recoverable=False)


def _error(type_: str, code: str, message: str, remedy: str, *, recoverable: bool = True) -> Error:
    return Error(type=type_, code=code, message=message, recoverable=recoverable, recommendation=remedy)


def _quoted(output: str) -> str:
    return f" Its output: {output}" if output else ""
