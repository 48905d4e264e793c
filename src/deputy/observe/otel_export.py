"""Export to an OpenTelemetry collector, as the standard OTEL_* variables say."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import threading
import time
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from deputy.processes.outgoing import outgoing_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from deputy.engine.ports import Observer

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SIGNALS = ("TRACES", "METRICS")
_CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_SHOWS_CONTENT = frozenset({"true", "1", "span_only", "span_and_event"})
_FLUSH_SECONDS = 3.0
"""The maximum wait at exit for a collector that does not answer."""
_SHOWN = 200
_LOOKED_AT = 2000
_LOG = logging.getLogger("deputy.observer")
EXTRA = "pip install 'deputy-agents[otel]'"


def is_exporting(environ: Mapping[str, str]) -> bool:
    """Whether the variables name a collector, and do not switch the SDK off."""
    return _is_on(environ) and any(_endpoint_of(environ, signal) for signal in _SIGNALS)


def _is_on(environ: Mapping[str, str]) -> bool:
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() != "true"


def _endpoint_of(environ: Mapping[str, str], signal: str) -> str:
    """The collector of a signal; empty if it is not exported."""
    if environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() not in ("otlp", ""):
        return ""
    return environ.get(f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "").strip() or environ.get(_ENDPOINT, "").strip()


def exporting_observer(waiting: Callable[[], tuple[float, int]]) -> Observer | None:
    """The observer that exports the runs of this process; None, after a warning, if a package is missing.

    `waiting` reads the age of the oldest run that has not started, and the number of waiting approvals.
    """
    observer = _observer(*(_settings(os.environ)))
    if observer is not None:
        observer.measure(waiting)
    return observer


def _settings(environ: Mapping[str, str]) -> tuple[tuple[str, str], tuple[str, str], bool]:
    traces, metrics = ((_endpoint_of(environ, signal), _protocol_of(environ, signal)) for signal in _SIGNALS)
    return traces, metrics, environ.get(_CONTENT, "").strip().lower() in _SHOWS_CONTENT


def _protocol_of(environ: Mapping[str, str], signal: str) -> str:
    common = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "").strip()
    return environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "").strip() or common or "http/protobuf"


@cache
def _observer(traces: tuple[str, str], metrics: tuple[str, str], content: bool) -> Any:
    """The one observer of this process: instruments and exporters exist once."""
    try:
        from deputy.observe.otel_observer import OpenTelemetryObserver

        exporters = _Exporters(traces, metrics)
    except ImportError as error:
        package = "opentelemetry-exporter-otlp-proto-grpc" if "grpc" in str(error) else ""
        what, command = (package, f"pip install {package}") if package else ("OpenTelemetry", EXTRA)
        _warn(f"{_ENDPOINT} is set, but {what} is not installed: nothing is exported. Run: {command}")
        return None
    return OpenTelemetryObserver(exporters.tracer_provider, exporters.meter_provider, content=content)


def _warn(text: str) -> None:
    """Log a warning; print it where no handler would."""
    logger: logging.Logger | None = _LOG
    while logger is not None and all(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
        logger = logger.parent if logger.propagate else None
    if logger is None:
        sys.stderr.write(f"{text}\n")
    else:
        _LOG.warning("%s", text)


class _Exporters:
    """The providers of this process: those of the program if it has set them, else our own."""

    def __init__(self, traces: tuple[str, str], metrics: tuple[str, str]) -> None:
        from opentelemetry.metrics import NoOpMeterProvider, get_meter_provider
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace import NoOpTracerProvider, get_tracer_provider

        self._closers: list[threading.Thread] = []
        self._is_leaving = threading.Event()
        self.tracer_provider: Any = get_tracer_provider()
        if not isinstance(self.tracer_provider, TracerProvider):
            self.tracer_provider = self._traces(traces[1]) if traces[0] else NoOpTracerProvider()
        self.meter_provider: Any = get_meter_provider()
        if not isinstance(self.meter_provider, MeterProvider):
            self.meter_provider = self._meters(metrics[1]) if metrics[0] else NoOpMeterProvider()
        if self._closers:
            self._address = traces[0] or metrics[0]
            self._failures = _Failures()
            log = logging.getLogger("opentelemetry")
            log.addHandler(self._failures)
            log.propagate = False
            atexit.register(self._leave)

    def _traces(self, protocol: str) -> Any:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporter = _module(protocol, "trace_exporter").OTLPSpanExporter()
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        self._close_at_exit(provider.shutdown)
        return provider

    def _meters(self, protocol: str) -> Any:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        exporter = _module(protocol, "metric_exporter").OTLPMetricExporter()
        reader = PeriodicExportingMetricReader(exporter)
        provider = MeterProvider([reader], resource=_resource(), shutdown_on_exit=False)
        self._close_at_exit(provider.shutdown)
        return provider

    def _close_at_exit(self, close: Callable[[], object]) -> None:
        # A thread cannot be started while the interpreter ends, so it waits for that from now on.
        def wait() -> None:
            self._is_leaving.wait()
            close()

        closer = threading.Thread(target=wait, name="deputy-otel-exit", daemon=True)
        closer.start()
        self._closers.append(closer)

    def _leave(self) -> None:
        """Send what is left, within a bound."""
        self._is_leaving.set()
        end = time.monotonic() + _FLUSH_SECONDS
        for closer in self._closers:
            closer.join(max(0.0, end - time.monotonic()))
        is_late = any(closer.is_alive() for closer in self._closers)
        problem = self._failures.first or ("no answer in time" if is_late else "")
        if problem:
            _warn(f"Traces and metrics were not all sent to {outgoing_text(self._address)}: {problem}")


class _Failures(logging.Handler):
    """Keeps the first failure for the end: a log line in the middle of a run would tear the view."""

    first = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING and not self.first:
            message = outgoing_text(record.getMessage())[:_LOOKED_AT]
            # The message of a refused connection names all calls that led to it.
            found = re.search(r"\[Errno -?\d+\] ([^\"')]+)", message)
            self.first = found[1] if found else message[:_SHOWN]


def _module(protocol: str, kind: str) -> Any:
    wire = "grpc" if protocol == "grpc" else "http"
    return import_module(f"opentelemetry.exporter.otlp.proto.{wire}.{kind}")


def _resource() -> Any:
    from opentelemetry.sdk.resources import Resource

    environ = os.environ
    is_named = environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({} if is_named else {"service.name": "deputy"})
