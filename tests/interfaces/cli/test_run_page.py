"""The page of a run: sections of at most 80 columns, without escapes in a pipe, long parts folded."""

import asyncio
from pathlib import Path

import pytest
from msgspec import Raw, json
from tests.interfaces.cli.commands.test_ps import call, told

from deputy.core.errors import Error
from deputy.core.events import Admitted, ModelCallEnded, Requested, Returned, RunOpened, Started
from deputy.core.outcome import Artifact, Blocked, Completed, Fallback, Partial, Usage, how_to_answer
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.journal.sqlite.sqlite_journal import SqliteJournal

CALL, ONE, OTHER = "sess_1_call00", "sess_1_one000", "sess_1_other0"
PROMPT = "Look for \x1b[31mvulnerabilities.\n" + "\n".join(
    f"Rule {number}: {'be careful ' * 12}" for number in range(40)
)
SECRETS = "\n".join(
    f"{'x' * length} {secret}"
    for length in range(20, 80)
    for secret in ("--password hid-77x", '{"name": "TOKEN", "value": "hid-77x"}')
)
ERROR = Error(
    type="timeout",
    code="TIMEOUT",
    message="The time limit of 60 s was reached while it read a very long file of the workspace.",
    recoverable=True,
    recommendation=f"Raise the limit of the task and then continue the work that it has begun: deputy resume {ONE}",
)
USAGE = Usage(input=45_000, output=2100, requests=3, cost=0.14)


async def fill(home: Path) -> None:
    async with SqliteJournal(home, fsync="off") as journal:
        lineage = Lineage.root(CALL)
        tasks = [{"label": "one", "prompt": PROMPT}, {"label": "other", "prompt": "Ask."}]
        start = RunOpened(lineage=lineage, command="delegate", arguments=Raw(json.encode({"tasks": tasks})))
        top = await journal.begin(CALL, start)
        assert top is not None
        for run, prompt in ((ONE, PROMPT), (OTHER, f"Ask.\n{SECRETS}")):
            hop = Hop(f"task:{run}", "agent")
            request = Request(session_id=run, target=hop, prompt=prompt, caller=lineage, caller_grant=Grant())
            lease = await journal.begin(run, Requested(request=request, label=run[7:], parent=CALL))
            assert lease is not None
            assert lease.state.lineage is not None
            below = lease.state.lineage
            await journal.append(lease, "admission", Admitted(lineage=below, grant=Grant(tools=frozenset({"Read"}))))
            await journal.append(lease, "started", Started(backend="native", model="m"))
            await journal.append(lease, "model:0", ModelCallEnded(model="m", usage=USAGE))
            if run == ONE:
                outcome = Partial(
                    lineage=below,
                    summary="Found two things.",
                    report="\n".join(f"- line {number} {'of the report ' * 9}" for number in range(99)),
                    notes=tuple(f"finding {number}" for number in range(25)),
                    artifacts=(Artifact(type="report", path="out/report.md"),),
                    warnings=("It is late.",),
                    errors=(ERROR,),
                    fallbacks=(Fallback(left="opus", taken="sonnet", reason="overloaded"),),
                    model="sonnet",
                    usage=USAGE,
                    duration_seconds=61.0,
                    next_steps=ERROR.recommendation,
                )
            else:
                asked = Error(
                    type="question", message="It asks.", recoverable=True, recommendation=how_to_answer(OTHER)
                )
                outcome = Blocked(lineage=below, summary="It asks.", errors=(asked,), question="Which one?")
            await journal.finish(lease, "returned:0", Returned(outcome=outcome))
        await journal.finish(top, "returned:0", Returned(outcome=Completed(lineage=lineage, summary="Over.")))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "home"))
    asyncio.run(fill(tmp_path / "home"))
    return tmp_path / "home"


def sections(page: str) -> dict[str, list[str]]:
    parts = page.rstrip("\n").split("\n\n")
    return {part.split("\n")[0]: part.split("\n")[1:] for part in parts}


@pytest.mark.usefixtures("home")
def test_the_page_has_its_sections_in_order_within_80_columns_and_without_escapes():
    page = call("show", ONE).stdout
    found = sections(page)
    assert [*found] == [
        f"[one000] ⚠ partial · {ONE}",
        "ASKED", "OUTCOME", "REPORT", "DETAILS", "NOTES", "ARTIFACTS", "WARNINGS", "ERRORS", "NEXT",
    ]  # fmt: skip
    assert "\x1b" not in page
    assert max(len(line) for title, lines in found.items() if title != "REPORT" for line in lines) <= 80
    assert found["ASKED"][0] == "  Look for vulnerabilities."
    assert found["OUTCOME"] == ["  partial: Found two things."]
    assert found["ARTIFACTS"] == ["  - report: out/report.md"]
    assert found["ERRORS"][0].startswith("  - timeout (TIMEOUT): The time limit of 60 s was reached")
    assert found["ERRORS"][-1].strip() == f"deputy resume {ONE}", "a command is not broken into two lines"
    details = "\n".join(found["DETAILS"])
    for line in (
        "  path      orchestrator → task:sess_1_one000 (depth 1)",
        f"  parent    {CALL}",
        "  model     sonnet on native",
        "  fallbacks opus → sonnet: overloaded",
        "  tools     Read\n",
        "took 1m01s",
        "  usage     in=45,000 out=2,100 cached=0, 3 requests",
        "  cost      $0.14",
    ):
        assert line in details
    assert f"deputy transcript {ONE}" in found["NEXT"][-1]


@pytest.mark.usefixtures("home")
def test_long_parts_are_folded_and_full_shows_them():
    found = sections(call("show", ONE).stdout)
    for title, left in (("ASKED", "lines"), ("REPORT", "75 more lines"), ("NOTES", "15 more")):
        assert found[title][-1].endswith(f"deputy show {ONE} --full")
        assert left in found[title][-1]
    whole = call("show", ONE, "--full").stdout
    assert "--full" not in whole
    for text in ("Rule 39: be careful", "- line 98 of the report", "- finding 24"):
        assert text in whole
        assert text not in call("show", ONE).stdout


@pytest.mark.usefixtures("home")
def test_a_call_shows_its_tasks_and_its_subagents_and_a_question_how_to_answer_it():
    found = sections(call("show", CALL).stdout)
    assert "  [one] Look for vulnerabilities." in found["ASKED"]
    assert [line.split()[:3] for line in found["SUBAGENTS"]] == [[ONE, "⚠", "partial"], [OTHER, "?", "blocked"]]
    assert not any(line.split()[0] in ("tools", "work") for line in found["DETAILS"]), "only its subagents have them"
    assert f'  → Answer it: deputy resume {OTHER} --answer "…"' in call("show", OTHER).stdout
    assert sections(call("show", OTHER).stdout)["QUESTION"] == ["  Which one?"]


@pytest.mark.usefixtures("home")
def test_the_json_form_has_the_prompt_the_tools_and_the_children():
    form = told("show", ONE)
    assert (form["prompt"], form["tools"]) == (PROMPT, ["Read"])
    assert [(one["session_id"], one["status"]) for one in told("show", CALL)["children"]] == [
        (ONE, "partial"),
        (OTHER, "blocked"),
    ]


@pytest.mark.rule("redact.where")
@pytest.mark.usefixtures("home")
def test_a_line_break_between_a_name_and_its_secret_does_not_show_the_secret():
    found = sections(call("show", OTHER, "--full").stdout)
    assert len(found["ASKED"]) > 2 * 60
    assert "hid-77x" not in "".join(found["ASKED"])
