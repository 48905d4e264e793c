"""`deputy init`: look for models, test one, and write the user's config."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct, to_builtins

from deputy.core.errors import UsageError
from deputy.interfaces.cli.console import REJECTED, Console, counted, note, with_console
from deputy.interfaces.text_lines import filled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from deputy.interfaces.cli.file_edit import FileEdit
    from deputy.interfaces.setup_survey import ModelOffer, SetupSurvey
    from deputy.models.factory import ModelFactory
    from deputy.models.tool_call_check import ToolCallCheck

EXAMPLES = """\b
Examples:
  deputy init                                    look, ask, test, write
  deputy init --yes                              take the first model found
  deputy init --model ollama:qwen3 --yes
  deputy init --server http://gpu-box:8000 --name gpu
  deputy init --server https://llm.example/v1 --key-variable LLM_KEY
  deputy init --dry-run                          show the file, write nothing

The test is one small tool call. A model of a provider with prices costs less than a cent for it. A model of another
agent's program is tested by one turn of that program. --yes takes no program without a login.

\b
Exit codes:
  0 written or nothing to change   1 no usable model   6 not written"""

_HEAD = """\
# Your settings of Deputy, for all projects. `deputy doctor` checks this file.
# `deputy config` lists every setting, and where its value comes from.
"""
_TAIL = """
# [approval]
# policy = "ask"           # or "allow" (as with --yes), or "refuse"

# [agents]
# trusted = ["~/work"]     # projects whose agents may do more than read
"""
_MODEL_COMMENT = "For commands that name no model. --model and DEPUTY_MODEL win."
_SERVER_COMMENT = "A model server. Name a model {name}:MODEL; see `deputy models {name}`."


class _Choices(Struct, frozen=True, kw_only=True):
    """The options of one call."""

    model: str | None
    server: dict[str, Any]
    """The table of the new server, by its name; empty without one."""
    is_tested: bool
    yes: bool
    dry_run: bool


@click.command(epilog=EXAMPLES)
@click.option("--model", metavar="M", help="The default model, instead of asking for it.")
@click.option("--server", metavar="URL", help="Add a server that speaks the protocol of OpenAI.")
@click.option("--name", default="mine", show_default=True, help="The name of that server.")
@click.option("--key-variable", metavar="VAR", help="The environment variable with the key of that server.")
@click.option("--no-test", is_flag=True, help="Do not test a tool call.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, and write nothing.")
@click.option("-y", "--yes", is_flag=True, help="Take the first usable model, and write without asking.")
@with_console()
def command(
    console: Console,
    *,
    model: str | None,
    server: str | None,
    name: str,
    key_variable: str | None,
    no_test: bool,
    dry_run: bool,
    yes: bool,
) -> int:
    """Look for models, test one, and write your config.

    Looks for keys, for Ollama, LM Studio, llama.cpp and vLLM on this machine, and for programs of other agents. Tests
    one real tool call with the model that you choose, and writes ~/.config/deputy/config.toml, after it showed the
    change.
    """
    import asyncio

    if server is None and key_variable is not None:
        raise UsageError("--key-variable", key_variable, "give --server too: it is the key of that server")
    table = {} if server is None else {name: asyncio.run(_server_table(name, server, key_variable))}
    choices = _Choices(model=model, server=table, is_tested=not no_test, yes=yes, dry_run=dry_run)
    return asyncio.run(_init(console, choices))


def _factory(server: dict[str, Any]) -> ModelFactory:
    from deputy.config import load_catalog
    from deputy.models.catalog import read_catalog
    from deputy.models.factory import ModelFactory
    from deputy.models.retry import RetryPolicy

    catalog = load_catalog()
    catalog["providers"] = {**catalog["providers"], **server}
    return ModelFactory(environ=os.environ, catalog=read_catalog(catalog), retry=RetryPolicy(attempts=2))


async def _server_table(name: str, url: str, key_variable: str | None) -> dict[str, Any]:
    """The settings of a server, with the address that answers: as it was given, or with `/v1`."""
    from deputy.models.server_address import with_version
    from deputy.models.server_models import list_server

    said = ""
    for address in dict.fromkeys((url.rstrip("/"), with_version(url))):
        key: dict[str, Any] = {"is_free": True} if key_variable is None else {"key_variable": key_variable}
        table = {"base_url": address, **key}
        async with _factory({name: table}) as models:
            found = await list_server(models, name)
            if not found.problem:
                return {**table, "base_url": with_version(address) if key_variable is None else address}
            said = f"it has no list of models: {found.problem}"
            if found.status is None:
                said = f"nothing answers there ({found.problem}); start the server, or correct the address"
    raise UsageError("--server", url, said)


async def _init(console: Console, choices: _Choices) -> int:
    from deputy.interfaces.cli.file_edit import apply_edits
    from deputy.interfaces.setup_survey import survey_setup

    async with _factory(choices.server) as models:
        survey = await survey_setup(models)
        offers = _sorted(survey.offers(), choices.server)
        for line in _found_lines(models, survey):
            note(line)
        model, check = await _choose(models, survey, offers, choices)
    form: dict[str, Any] = {"model": model, "test": to_builtins(check), "found": _found_form(survey, offers)}
    if model is None or (check is not None and not check.can_work):
        anyway = "" if check is None else " To use the model anyway, add --no-test."
        console.show({**form, "file": None, "result": "declined", "backups": []}, f"Nothing was written.{anyway}")
        return 1
    edit = _edit(model, choices.server)
    result, backups = apply_edits([edit], yes=choices.yes, dry_run=choices.dry_run)
    said = {
        "written": f'Wrote {edit.path}. Try: deputy ask "What is this project about?"',
        "unchanged": f"{edit.path} already says so.",
        "shown": "Nothing was written.",
        "declined": "Nothing was written.",
    }
    kept = [f"The file before: {backup}" for backup in backups]
    console.show({**form, "file": edit.path, "result": result, "backups": backups}, [said[result], *kept])
    return REJECTED if result == "declined" else 0


def _sorted(found: Iterable[ModelOffer], server: dict[str, Any]) -> list[ModelOffer]:
    """The models to choose from; first those of the new server, and the one that the config names."""
    from deputy.config import load_user
    from deputy.interfaces.setup_survey import ModelOffer

    offers = list(found)
    if server:
        return sorted(offers, key=lambda offer: offer.model.partition(":")[0] not in server)
    if (named := load_user().models.default) is not None:
        own = next((offer for offer in offers if offer.model == named), None)
        named_offer = own or ModelOffer(model=named, reason="your config names it")
        return [named_offer, *(offer for offer in offers if offer.model != named)]
    return offers


# --- what there is ----------------------------------------------------------------------------------------------------


def _found_lines(models: ModelFactory, survey: SetupSurvey) -> Iterator[str]:
    from deputy.interfaces.setup_survey import program_lines, program_names

    for name in survey.keys:
        server = survey.servers[name]
        said = server.problem or counted(len(server.models), "model")
        yield filled(f"{'✗' if server.problem else '✓'} key       ", f"{models.key_variable(name)}: {said}")
    if not survey.keys:
        yield "· key       none in the environment"
    for name, server in survey.own_servers.items():
        if not server.problem:
            yield filled("✓ server    ", f"{name} at {models.address(name)}: {counted(len(server.models), 'model')}")
    if silent := [name for name, server in survey.own_servers.items() if server.problem]:
        yield filled("· server    ", f"no answer: {', '.join(silent)}")
    programs = program_names(survey)
    yield filled(f"{'✓' if programs else '·'} programs  ", ", ".join(programs) or "no other agents found")
    for program in survey.programs:
        for line in program_lines(program):
            yield filled(" " * 12, line)


def _found_form(survey: SetupSurvey, offers: Sequence[ModelOffer]) -> dict[str, Any]:
    return {
        "keys": list(survey.keys),
        "servers": [server for server in survey.servers.values() if not server.problem],
        "programs": survey.programs,
        "models": [offer.model for offer in offers],
    }


# --- the model --------------------------------------------------------------------------------------------------------


async def _choose(
    models: ModelFactory, survey: SetupSurvey, offers: Sequence[ModelOffer], choices: _Choices
) -> tuple[str | None, ToolCallCheck | None]:
    """The chosen model with its test; at a terminal, a model that fails the test can be replaced by another."""
    from deputy.interfaces.cli.terminal_prompt import can_ask

    asks = choices.model is None and not choices.yes and can_ask()
    # Only a person chooses a program that has no login yet.
    usable = next((offer.model for offer in offers if offer.has_login), None)
    if choices.model is None and usable is None and not asks:
        for line in _none_lines(survey):
            note(line)
        return None, None
    while True:
        model = choices.model or (_asked(offers) if asks else usable)
        if model is None:
            return None, None
        check = await _tested(models, survey, model) if choices.is_tested else None
        if check is None or check.can_work or not asks:
            return model, check


def _none_lines(survey: SetupSurvey) -> Iterator[str]:
    """Why no model was taken, and what to do."""
    without = [program for program in survey.programs if not program.is_logged_in]
    if not without:
        yield "No model was found. Set a key such as ANTHROPIC_API_KEY, start Ollama, or pass --server URL."
        return
    names = ", ".join(program.name for program in without)
    yield filled("", f"No model was taken: no usable key or server was found, and no login for {names}.")
    yield "Log in to one of them as said above, then run deputy init again; or name its model with --model."


async def _tested(models: ModelFactory, survey: SetupSurvey, model: str) -> ToolCallCheck:
    from deputy.interfaces.model_check import check_model, program_for

    program = program_for(models, survey, model)
    note(f"Testing one tool call with {model}{f' through {program.name}' if program else ''} …")
    check = await check_model(models, survey, model)
    for line in check_lines(check):
        note(line)
    return check


def check_lines(check: ToolCallCheck) -> Iterator[str]:
    """What a test found, for people."""
    word = "can do the job" if check.can_work else "cannot do the job"
    mark = "✓" if check.can_work else "✗"
    yield filled(f"{mark} test      ", f"{check.model} {word}: {check.message} ({check.seconds:.1f} s)")
    if check.remedy:
        yield filled(" " * 12, check.remedy)


def _asked(offers: Sequence[ModelOffer]) -> str | None:
    """The model that the person chooses: a number, a name, or Enter for the first; None at the end of input."""
    from deputy.interfaces.cli.terminal_prompt import ask_line

    if not offers:
        note("No model was found. Set a key, start Ollama, or name a model as provider:model.")
    width = max((len(offer.model) for offer in offers), default=0)
    for number, offer in enumerate(offers, 1):
        note(f"{number:>4}  {offer.model:<{width}}  {offer.reason}")
    while (said := ask_line("Default model, by number or name [1]: " if offers else "Default model: ")) is not None:
        if not said and offers:
            return offers[0].model
        if said.isascii() and said.isdigit():
            if 1 <= int(said[:6]) <= len(offers):
                return offers[int(said) - 1].model
            note(f"Give a number from 1 to {len(offers)}.")
        elif said:
            return said
    return None


# --- the file ---------------------------------------------------------------------------------------------------------


def _edit(model: str, server: dict[str, Any]) -> FileEdit:
    from deputy.config import user_file
    from deputy.config.toml_edit import CannotEdit, with_values
    from deputy.interfaces.cli.file_edit import FileEdit, read_user_file

    path = user_file()
    before = read_user_file(path)
    try:
        text = with_values(_HEAD if before is None else before, ["models"], {"default": model}, _MODEL_COMMENT)
        for name, table in server.items():
            text = with_values(text, ["providers", name], table, _SERVER_COMMENT.format(name=name))
    except CannotEdit as error:
        lines = f"[models] default = {model!r}" + "".join(
            f", [providers.{name}] {table}" for name, table in server.items()
        )
        raise UsageError(path, "the file", f"{error}; add by hand: {lines}") from error
    return FileEdit(path=path, before=before, after=text + (_TAIL if before is None else ""))
