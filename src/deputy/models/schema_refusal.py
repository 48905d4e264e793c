"""Detect servers that refuse an output schema; the request is then repeated without one."""

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
"""Words in the errors of servers that refuse the schema field."""


def is_schema_refused(error: ModelError) -> bool:
    """Whether an error is about the output schema."""
    words = error.message.lower()
    return isinstance(error, BadRequest) and any(wording in words for wording in WORDINGS)


def without_schema(settings: GenerationSettings) -> GenerationSettings:
    """The settings without a schema; the idempotency key changes, because it is another request."""
    key = settings.idempotency_key
    return structs.replace(settings, output=None, idempotency_key=None if key is None else f"{key}:plain")
