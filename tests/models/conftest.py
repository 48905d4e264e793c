"""Async tests run on a loop of their own."""

import asyncio
import inspect
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


@pytest.fixture
def server():
    """A server that has only a list of models: `body`, with a `status`, at `path`."""
    answer = SimpleNamespace(
        body=b'{"data": [{"id": "embed-small"}, {"id": "qwen3:8b"}]}', status=200, path="/v1/models", asked=[]
    )

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            answer.asked.append((self.path, dict(self.headers)))
            self.send_response(answer.status if self.path.partition("?")[0] == answer.path else 404)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        answer.root = f"http://127.0.0.1:{http.server_port}"
        answer.address = f"{answer.root}/v1"
        yield answer
        http.shutdown()
        thread.join()
