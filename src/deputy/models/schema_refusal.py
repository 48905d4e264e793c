"""Whether a server does not take a schema for the answer: then it is asked without one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from deputy.core.errors import BadRequest

if TYPE_CHECKING:
    from deputy.core.conversation import GenerationSettings
    from deputy.core.errors import ModelError

WORDINGS: Final = (
    "response_format",
    "output_config",
    "output_format",
    "text.format",
    "json_schema",
    "responsejsonschema",
    "response_json_schema",
    "response_schema",
    "responsemimetype",
    "response_mime_type",
    "response mime type",
    "structured output",
    "json mode",
    "invalid schema",
    "grammar",
)
"""How servers name the field, or what it asks for, when they do not take it."""


def is_schema_refused(error: ModelError) -> bool:
    """Whether a refusal is about the schema that was asked for."""
    words = error.message.lower()
    return isinstance(error, BadRequest) and any(wording in words for wording in WORDINGS)


def without_schema(settings: GenerationSettings) -> GenerationSettings:
    """The same turn asked for without a schema, which is another request to whoever serves each only once."""
    key = settings.idempotency_key
    return structs.replace(settings, output=None, idempotency_key=None if key is None else f"{key}:plain")
