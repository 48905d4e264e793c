"""The files of `deploy/` name commands, options and variables that exist."""

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from deputy import __version__
from deputy.interfaces.cli import deputy

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
VALUES = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text()


def chart_command(path: str) -> list[str]:
    """The arguments of a container of the chart, with a value for each template."""
    lines = [line for line in (ROOT / path).read_text().splitlines() if "{{-" not in line]
    text = "\n".join(lines[lines.index("      containers:") :]).replace("{{", "x #")
    container = yaml.safe_load(text)["containers"][0]
    return ["1" if str(word) == "x" else str(word) for word in container["args"]]


@pytest.mark.parametrize(
    "words",
    [
        COMPOSE["worker"]["command"],
        COMPOSE["migrate"]["command"],
        chart_command("deploy/chart/templates/workers.yaml"),
        chart_command("deploy/chart/templates/migrate.yaml"),
        yaml.safe_load(DOCKERFILE.split("\nCMD ")[1]),
    ],
    ids=["compose-worker", "compose-migrate", "chart-worker", "chart-migrate", "image"],
)
def test_commands_of_containers_exist_with_their_options(words: list[str]) -> None:
    shown = CliRunner().invoke(deputy, [*words, "--help"])
    assert shown.exit_code == 0, shown.output


def test_a_stopped_worker_has_more_time_than_its_drain_takes() -> None:
    from deputy.worker import DRAIN_SECONDS

    assert int(COMPOSE["worker"]["stop_grace_period"].removesuffix("s")) > DRAIN_SECONDS
    chart = (ROOT / "deploy/chart/templates/workers.yaml").read_text()
    assert int(chart.split("terminationGracePeriodSeconds: ")[1].split()[0]) > DRAIN_SECONDS


def test_the_chart_installs_this_version() -> None:
    chart = yaml.safe_load((ROOT / "deploy/chart/Chart.yaml").read_text())
    assert chart["appVersion"] == VALUES["image"]["tag"] == __version__


def test_variables_of_workers_are_documented() -> None:
    known = (ROOT / "docs/configuration.md").read_text()
    named = {name for service in ("worker", "migrate") for name in COMPOSE[service]["environment"]}
    named |= {word.split("=")[0] for word in DOCKERFILE.split("\nENV ")[1].split("\n")[0].split()}
    assert [name for name in sorted(named) if name not in known] == []
