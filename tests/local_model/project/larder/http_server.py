"""The HTTP server."""

import tomllib
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path

SETTINGS = Path("config/settings.toml")


def serve() -> None:
    """Serve the stock until the process is stopped."""
    settings = tomllib.loads(SETTINGS.read_text())
    # TODO: limit the requests of one client to 40 in a minute
    server = HTTPServer(("", settings["server"]["port"]), SimpleHTTPRequestHandler)
    server.serve_forever()
