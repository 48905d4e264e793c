from tests.support.command_house import a_moment, entries, until
from tests.support.mcp_clients import ERAS, LEGACY, META, MODERN, TOKEN, Wire, here, serve_http, stdio, tasks, text_of
from tests.support.scripts import talk, turn

__all__ = [
    "ERAS", "LEGACY", "META", "MODERN", "TOKEN", "Wire", "a_moment", "entries", "here", "serve_http", "stdio", "talk",
    "tasks", "text_of", "turn", "until",
]  # fmt: skip
