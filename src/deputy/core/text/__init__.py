"""Requests found in text: `<delegate>` blocks, prose that announces a quoted prompt, and what a person asks for."""

from deputy.core.text.detect import LIMIT_REQUESTS, detect
from deputy.core.text.finding import FoundRequest, request_json
from deputy.core.text.normal import inline_prompt
from deputy.core.text.tables import SHIPPED, Route, Tables

__all__ = ["LIMIT_REQUESTS", "SHIPPED", "FoundRequest", "Route", "Tables", "detect", "inline_prompt", "request_json"]
