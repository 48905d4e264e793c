"""Settings: what `deputy.toml` in the project and `~/.config/deputy/config.toml` say, over what is shipped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, ValidationError, convert

from deputy.core.errors import UsageError
from deputy.core.text.phrases import is_phrase
from deputy.core.text.tables import SHIPPED, Route, Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LIMIT_BYTES = 64 * 1024


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models]`: which model a request goes to."""

    default: str | None = None
    aliases: dict[str, str] = {}
    routes: tuple[Route, ...] = ()


class TextSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[text]`: further phrases, in the notation of `deputy.core.text.phrases`."""

    triggers: tuple[str, ...] = ()
    purposes: tuple[str, ...] = ()
    degradations: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    delegations: tuple[str, ...] = ()


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one file says. It is read before anybody trusts the project, so no key names an address or a command."""

    models: ModelSettings = ModelSettings()
    text: TextSettings = TextSettings()


_TABLES = {"": Settings, "models": ModelSettings, "models.routes": Route, "text": TextSettings}
_KINDS = {"str": "a string", "array": "a list", "object": "a table", "str | null": "a string"}


def load_tables(directory: Path | None = None, home: Path | None = None) -> Tables:
    """The tables that hold in a directory: the project's file over the user's own over what is shipped."""
    directory, home = directory or _known(Path.cwd), home or _known(Path.home)
    paths = [_project_file(directory)] if directory else []
    paths += [home / ".config/deputy/config.toml"] if home else []
    return merge([settings for path in paths if (settings := read_settings(path))])


def merge(nearest_first: Sequence[Settings]) -> Tables:
    """The shipped tables with these settings over them, the nearer over the farther."""
    if not nearest_first:
        return SHIPPED
    aliases = dict(SHIPPED.aliases)
    phrases = {name: list[str](getattr(SHIPPED, name)) for name in TextSettings.__struct_fields__}
    for settings in reversed(nearest_first):
        aliases.update((alias.lower(), model) for alias, model in settings.models.aliases.items())
        for name, known in phrases.items():
            known.extend(getattr(settings.text, name))
    routes = [route for settings in nearest_first for route in settings.models.routes]
    return Tables(
        aliases=aliases,
        routes=(*routes, *SHIPPED.routes),
        default_model=next((s.models.default for s in nearest_first if s.models.default), SHIPPED.default_model),
        **{name: tuple(known) for name, known in phrases.items()},
    )


def read_settings(path: Path) -> Settings | None:
    """What a file says, None if there is none; a UsageError names the file, the key and what would be right."""
    content = _content(path)
    if content is None:
        return None
    import tomllib

    try:
        said = tomllib.loads(content.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(str(path), _line_of(content, str(error)), f"it must be TOML in UTF-8: {error}") from error
    try:
        settings = convert(said, Settings)
    except ValidationError as error:
        raise _explained(path, said, str(error)) from error
    _check(path, settings)
    return settings


def _known(folder: Callable[[], Path]) -> Path | None:
    try:
        return folder()
    except (OSError, RuntimeError):  # removed under our feet, or no home at all
        return None


def _project_file(directory: Path) -> Path:
    """The nearest `deputy.toml` up to the root of the repository; outside of one, only the directory's own counts."""
    folders = (directory, *directory.parents)
    root = next((depth for depth, folder in enumerate(folders) if _exists(folder / ".git")), 0)
    paths = [folder / "deputy.toml" for folder in folders[: root + 1]]
    return next(filter(_exists, paths), paths[0])


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False


def _content(path: Path) -> bytes | None:
    try:
        if not path.exists():
            return None
        if not path.is_file():  # a pipe or a device might never end
            raise UsageError(str(path), "something that is not a file", "make it a regular file, or remove it")
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(str(path), error.strerror, "make it readable, or remove it") from error
    if len(content) > LIMIT_BYTES:
        raise UsageError(str(path), f"more than {LIMIT_BYTES} bytes", f"keep it under {LIMIT_BYTES // 1024} KiB")
    return content


def _line_of(content: bytes, problem: str) -> str:
    """The line that a problem of TOML is in."""
    number = problem.partition("(at line ")[2].partition(",")[0]
    lines = content.decode(errors="replace").split("\n")
    return lines[int(number) - 1] if number.isdigit() and int(number) <= len(lines) else lines[0]


def _check(path: Path, settings: Settings) -> None:
    """Refuse names that are blank, and phrases that would be found nowhere or everywhere."""
    models, text = settings.models, settings.text
    names = [("default", models.default or "none"), *models.aliases.items(), *((a, a) for a in models.aliases)]
    for key, name in (*names, *(("routes", route.model) for route in models.routes)):
        if not name.strip():
            raise UsageError(f"{path}: models, {key!r}", name, "give the name of a model")
    phrases = [("models.routes", word) for route in models.routes for word in route.words]
    for name in TextSettings.__struct_fields__:
        phrases += [(f"text.{name}", phrase) for phrase in getattr(text, name)]
    for key, phrase in phrases:
        if not is_phrase(phrase):
            raise UsageError(
                f"{path}: {key}", phrase, "give words, the first one not in brackets: 'use [a|the] helper'"
            )


def _explained(path: Path, said: Any, message: str) -> UsageError:
    """What a validation error means for the person who wrote the file."""
    problem, _, place = message.partition(" - at `$")
    keys: list[str] = []
    for step in place.rstrip("`").replace("[...]", ".*").replace("[", ".").replace("]", "").split(".")[1:]:
        if step == "*":  # some value of a table
            keys.append(next(key for key, value in said.items() if not isinstance(value, str)))
        else:
            keys.append(step)
        said = said[int(step) if isinstance(said, list) else keys[-1]]
    if " field `" not in problem:
        subject = problem.split("`")[1]
        return UsageError(f"{path}: {'.'.join(keys)}", said, f"it must be {_KINDS[subject]}")
    subject = problem.partition("`")[2].removesuffix("`")
    if problem.startswith("Object missing"):
        return UsageError(f"{path}: {'.'.join(keys)}", said, f"it needs the key {subject!r} too")
    known = ", ".join(_TABLES[".".join(key for key in keys if not key.isdigit())].__struct_fields__)
    return UsageError(
        f"{path}: {'.'.join([*keys, subject])}", said[subject], f"there is no such key; there are: {known}"
    )
