"""The environment variables that programs may see; all others are removed."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from deputy.processes.ancestry import HOME_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Names of secrets cannot be listed completely, so the allowed names are listed.
PASSED_ON = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR",
    "VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "UV_CACHE_DIR", "PIP_CACHE_DIR", "NVM_DIR", "NODE_PATH", "JAVA_HOME",
    "GOPATH", "GOROOT", "GOCACHE", "CARGO_HOME", "RUSTUP_HOME", "GEM_HOME", "PKG_CONFIG_PATH", "LD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "CI", "SYSTEMROOT", HOME_VARIABLE,
})  # fmt: skip
SET = {"TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
"""No terminal: no colours, no pager, no prompt."""

NETWORK = (
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "NODE_EXTRA_CA_CERTS", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME",
)  # fmt: skip
"""Variables for programs that reach their own service and keep their own files."""
TRACING = (
    "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG", "OTEL_SDK_DISABLED",
)  # fmt: skip
"""Where programs send their own traces. Headers are left out: they hold keys."""


def scrubbed(environment: Mapping[str, str], also: Iterable[str] = ()) -> dict[str, str]:
    """The allowed variables of an environment, and those that match one of the patterns."""
    patterns = ("LC_*", *also)
    kept = {
        name: value
        for name, value in environment.items()
        if name in PASSED_ON or any(fnmatchcase(name, pattern) for pattern in patterns)
    }
    return {**kept, **SET}
