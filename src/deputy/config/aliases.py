"""Check the aliases of a project: it must not redefine names of models that are shipped or the user's."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any, cast

from deputy.core.detect.phrase_tables import SHIPPED
from deputy.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deputy.config.settings import Settings, UserSettings


def check_project_aliases(path: str, project: Settings, user: UserSettings) -> None:
    """Refuse an alias of a project that redefines a shipped name or a name of the user."""
    if not project.models.aliases:
        return
    taken = {_folded(name): meaning for name, meaning in _known_names(user)}
    for alias, model in project.models.aliases.items():
        where = f"{path}: models.aliases.{alias}"
        if ":" in alias:
            raise UsageError(where, model, "a name with a colon is a provider's model; choose another name")
        meaning = taken.get(_folded(alias), model)
        if meaning != model:
            means = f"means {meaning!r}" if meaning else "is already a known name"
            raise UsageError(where, model, f"{alias!r} {means}, and a project cannot change that; choose another name")


def _known_names(user: UserSettings) -> Iterator[tuple[str, str]]:
    """Every known name with its model; a later pair overrides an earlier one."""
    catalogs = (_shipped_catalog(), user.catalog)
    for catalog in catalogs:
        for provider, entry in _table(catalog.get("providers")).items():
            yield provider, ""
            yield from ((model, "") for model in _table(_table(entry).get("models")))
    routed = (*SHIPPED.routes, *user.models.routes)
    mentioned = [SHIPPED.default_model, user.models.default or "", *(route.model for route in routed)]
    mentioned += [name for names in user.ladder.chains.values() for name in names]
    aliases = {**SHIPPED.aliases, **user.models.aliases}
    # The target of another name is known too: redefining it would change that name.
    yield from ((name, "") for name in (*mentioned, *user.ladder.chains, *aliases.values()) if name)
    for catalog in catalogs:
        for name, entry in _table(catalog.get("names")).items():
            target = _table(entry)
            yield str(target.get("model", "")), ""
            yield name, str(target.get("model", "")) if set(target) == {"model"} else ""
    yield from aliases.items()


def _shipped_catalog() -> Mapping[str, Any]:
    import tomllib
    from importlib.resources import files

    return tomllib.loads(files("deputy.models").joinpath("catalog.toml").read_text())


def _table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().strip()
