"""Export by the OTEL_* variables: real commands, and a collector on loopback."""

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.collector import Collector
from tests.support.command_house import DEPUTY, CommandHouse
from tests.support.fork_server import Popen
from tests.support.scripts import call, talk, turn, write_script

from deputy.observe import otel_export
from deputy.observe.otel_export import exporting_observer, is_exporting

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


@pytest.fixture
def house(tmp_path: Path) -> CommandHouse:
    return CommandHouse(tmp_path)


def delegating(house: CommandHouse) -> list[str]:
    (house.workspace / "canary.txt").write_text(f"canary-file {SECRET}\n")
    reading = turn(f"canary-said {SECRET}", call("Read", path="canary.txt"))
    model = write_script(house.workspace / "model.json", talk(reading, turn(f"canary-report {SECRET}")))
    return ["delegate", f"canary prompt {SECRET}", "--model", model, "--yes", "--json"]


def test_a_command_exports_its_trace_and_metrics_to_the_collector(house: CommandHouse):
    with Collector() as collector:
        ran = house.run(*delegating(house), TRACEPARENT=CALLER, **collector.environ)
    assert ran.returncode == 0, ran.stderr
    assert "collector" not in ran.stderr
    assert [span.name.split()[0] for span in collector.spans] == [
        "invoke_workflow", "invoke_agent", "chat", "execute_tool", "chat",
    ]  # fmt: skip
    root, agent, *steps = collector.spans
    assert {span.trace_id for span in collector.spans} == {CALLER.split("-")[1]}
    assert (root.parent_id, agent.parent_id) == (CALLER.split("-")[2], root.span_id)
    assert {step.parent_id for step in steps} == {agent.span_id}
    assert root.resource["service.name"] == "deputy"
    metrics = collector.metrics
    assert metrics["deputy.runs"] == [({"deputy.status": "completed"}, 2)]
    assert {labels["gen_ai.token.type"]: count for labels, (count, _) in metrics["gen_ai.client.token.usage"]} == {
        "input": 2, "output": 2,
    }  # fmt: skip
    assert metrics["deputy.approvals.waiting"] == [({}, 0)]
    everything = b" ".join(body for _, body in collector.bodies)
    assert b"canary" not in everything
    assert SECRET.encode() not in everything


def test_content_is_exported_redacted_when_the_variable_asks_for_it(house: CommandHouse):
    with Collector() as collector:
        shown = {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
        assert house.run(*delegating(house), **shown, **collector.environ).returncode == 0
    everything = b" ".join(body for _, body in collector.bodies)
    for canary in (b"canary prompt", b"canary-said", b"canary-file", b"canary-report", b"canary.txt"):
        assert canary in everything
    assert SECRET.encode() not in everything


def test_a_collector_that_is_away_refuses_or_hangs_fails_no_run_and_holds_no_exit(house: CommandHouse):
    command = delegating(house)
    with Collector(status=400) as refusing, Collector(is_stuck=True) as stuck:
        # Nothing listens on port 9.
        addresses = ["http://me:wrong-horse@127.0.0.1:9", refusing.url, stuck.url]
        started = [
            Popen(
                [*DEPUTY, *command],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=house.workspace,
                env={**house.env, "OTEL_EXPORTER_OTLP_ENDPOINT": address},
            )
            for address in addresses
        ]
        ended = [process.communicate(timeout=60) for process in started]
        assert stuck.bodies
    reasons = ["Connection refused", "Failed to export ", "no answer in time"]
    for process, (output, errors), address, reason in zip(started, ended, addresses, reasons, strict=True):
        assert (process.returncode, json.loads(output)["completed"]) == (0, 1)
        [line] = [line for line in errors.decode().splitlines() if "not all sent" in line]
        shown = address.replace("wrong-horse", "[redacted]")
        assert line.startswith(f"Traces and metrics were not all sent to {shown}: {reason}")
        assert "wrong-horse" not in errors.decode()


def test_without_a_collector_nothing_of_opentelemetry_is_imported(tmp_path: Path):
    program = """
import sys, deputy
task = deputy.Task(label="a", prompt="x")
[outcome] = deputy.run_sync(task, model="script:script.json", home="home")
assert outcome.status == "completed", outcome
print([name for name in sys.modules if name.startswith("opentelemetry") or "otel" in name])
"""
    (tmp_path / "script.json").write_text('{"turns": [{"text": "Done."}]}')
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("environ", "is_on"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, True),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318",
                "OTEL_TRACES_EXPORTER": "none",
                "OTEL_METRICS_EXPORTER": "none",
            },
            False,
        ),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "a=b"}, False),
    ],
)
def test_the_standard_variables_switch_it_on_and_off(environ: dict[str, str], is_on: bool):
    assert is_exporting(environ) is is_on


@pytest.mark.parametrize(
    ("missing", "protocol", "said"),
    [
        (
            "opentelemetry.sdk.trace",
            "",
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but OpenTelemetry is not installed: nothing is exported."
            " Run: pip install 'deputy-agents[otel]'",
        ),
        (
            "opentelemetry.exporter.otlp.proto.grpc",
            "grpc",
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but opentelemetry-exporter-otlp-proto-grpc is not installed:"
            " nothing is exported. Run: pip install opentelemetry-exporter-otlp-proto-grpc",
        ),
    ],
)
def test_a_missing_package_is_said_once_with_what_to_run(monkeypatch, caplog, missing, protocol, said):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "deputy.observe.otel_observer", raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    otel_export._observer.cache_clear()
    caplog.set_level(logging.WARNING, "deputy.observer")
    assert [exporting_observer(lambda: (0.0, 0)) for _ in range(2)] == [None, None]
    assert [record.getMessage() for record in caplog.records] == [said]
