"""The health of a worker over HTTP: /livez, /readyz, and /metrics for Prometheus."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from deputy.core.errors import StorageError, UsageError
from deputy.interfaces.http_access import LOOPBACK, AccessCheck, listening, shown_address
from deputy.interfaces.http_bounds import bounded_log
from deputy.interfaces.http_serving import accepting
from deputy.journal.journal_metrics import CONTENT_TYPE, JournalMetrics, metric_lines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

    from deputy.worker import Worker

_MOST_PORT = 65535


def health_address(text: str) -> tuple[str, int]:
    """The host and port of `--health`; without a host only this machine can connect."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > _MOST_PORT:
        raise UsageError("--health", text, "give a port, like 8712, or an address and a port, like 0.0.0.0:8712")
    return host.strip("[]") or "127.0.0.1", int(port)


@asynccontextmanager
async def serving_health(worker: Worker, address: str) -> AsyncGenerator[str]:
    """Serve the health of a worker until the block ends; gives its address."""
    host, port = health_address(address)
    with bounded_log(), listening(host, port, "--health") as sock:
        is_local = f"[{host}]" in LOOPBACK or host in LOOPBACK
        # A probe of another machine names the worker as it likes; a page in a browser of this machine must not.
        access = AccessCheck(token="", ports=[sock.getsockname()[1]]) if is_local else None
        app = web.Application(middlewares=[_guarded(access)], client_max_size=1024)
        health = WorkerHealth(worker)
        app.add_routes(
            [web.get("/livez", health.livez), web.get("/readyz", health.readyz), web.get("/metrics", health.metrics)]
        )
        async with accepting(app, sock):
            yield f"http://{shown_address(sock)}"


def _guarded(access: AccessCheck | None) -> Callable[..., Awaitable[web.StreamResponse]]:
    @web.middleware
    async def guarded(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        headers = request.headers
        if access is not None:
            refused = access.refuse_address(headers.getall("Host", []), headers.getall("Origin", []))
            if refused is not None:
                return web.Response(status=refused.status, text=f"{refused.message}\n")
        return await handler(request)

    return guarded


class WorkerHealth:
    """Answers the probes."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._metrics = JournalMetrics()

    async def livez(self, _request: web.Request) -> web.Response:
        """The process answers."""
        return web.Response(text="live\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        """Ready when the store is reached, the heartbeat is fresh, and the worker takes runs."""
        problem = self._worker.problem()
        return web.Response(text="ready\n") if problem is None else web.Response(status=503, text=f"{problem}\n")

    async def metrics(self, _request: web.Request) -> web.Response:
        """The metrics of the journal and of this worker."""
        try:
            body = await self._worker.journal.read(self._metrics.text)
        except StorageError:
            body = self._metrics.text(None)
        body += "".join(self._own()).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    def _own(self) -> Iterator[str]:
        worker, counts = self._worker, self._worker.counts()
        at_work = {(("state", "working"),): counts.working, (("state", "waiting"),): counts.waiting}
        yield from metric_lines("worker_runs", "gauge", "Runs that this worker holds.", at_work)
        yield from metric_lines("worker_slots", "gauge", "Runs that it may carry out at once.", {(): worker.slots})
        yield from metric_lines("worker_ready", "gauge", "Whether it takes runs.", {(): int(worker.problem() is None)})
        taken = "Runs of lost workers that this one placed again."
        yield from metric_lines("worker_takeovers_total", "counter", taken, {(): worker.takeovers})
        yield from metric_lines("worker_fenced_total", "counter", "Runs that it lost to others.", {(): counts.fenced})
        repeated = "Steps that it began again after a loss."
        yield from metric_lines("worker_repeated_steps_total", "counter", repeated, {(): counts.repeated})
        seconds, commits = worker.journal.commit_times()
        name = "deputy_worker_commit_seconds"
        yield f"# HELP {name} Duration of commits.\n# TYPE {name} summary\n"
        yield f"{name}_sum {seconds:.6f}\n{name}_count {commits}\n"
