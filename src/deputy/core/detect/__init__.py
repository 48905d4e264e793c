"""Find delegation requests in text: `<delegate>` tags, quoted prompts, and natural language."""

from deputy.core.detect.find_requests import LIMIT_REQUESTS, detect
from deputy.core.detect.found_request import FoundRequest, request_json
from deputy.core.detect.phrase_tables import SHIPPED, PhraseTables, Route

__all__ = [
    "LIMIT_REQUESTS",
    "SHIPPED",
    "FoundRequest",
    "PhraseTables",
    "Route",
    "detect",
    "request_json",
]
