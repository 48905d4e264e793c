import asyncio

import pytest

from deputy.core.errors import UsageError
from deputy.core.events import Requested, RunOpened
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.interfaces.run_names import find_run, short_ids
from deputy.journal.sqlite.sqlite_journal import SqliteJournal
from deputy.journal.sqlite.sqlite_queries import SqliteQueries

AUTH, OTHER, TWIN = "sess_1763190000_abc123", "sess_1763190001_abd456", "sess_1763190001_xyz789"
LABELS = {
    AUTH: "auth",
    OTHER: "xyz789",
    TWIN: "last",
    "sess_1763190000_qrs000": "auth-2",
    "sess_1763190000_uvw000": "abd4",
}


async def begin_runs(folder) -> None:
    """Five runs that people started, and one below another."""
    async with SqliteJournal(folder) as journal:
        for run, label in LABELS.items():
            lease = await journal.begin(run, RunOpened(lineage=Lineage.root(run), command="run", label=label))
        request = Request(
            session_id="sess_1763190009_chi1d0",
            target=Hop("task:auth-2", "task"),
            prompt="p",
            caller=Lineage.root(run),
            caller_grant=Grant(),
        )
        child = Requested(request=request, label="auth-2", parent=run)
        await journal.spawn(lease, "spawn:0", request.session_id, child)


@pytest.fixture
def queries(tmp_path):
    asyncio.run(begin_runs(tmp_path))
    with SqliteQueries.open(tmp_path) as opened:
        yield opened


@pytest.mark.rule("ids.short")
@pytest.mark.parametrize(
    ("name", "run"),
    [
        (AUTH, AUTH),
        ("abc123", AUTH),
        ("abc", AUTH),
        ("x", TWIN),
        ("auth", AUTH),
        ("last", TWIN),
        ("nothing", "nothing"),
        ("", ""),
    ],
)
def test_a_run_is_found_by_its_id_a_prefix_of_it_its_label_or_last(queries, name, run):
    assert find_run(queries, name) == run


@pytest.mark.rule("ids.short")
def test_an_id_wins_over_a_label(queries):
    assert find_run(queries, "xyz789") == TWIN, "although another run has this label"
    assert find_run(queries, "xyz7") == TWIN


@pytest.mark.rule("ids.short")
def test_a_label_wins_over_the_beginning_of_an_id(queries):
    assert find_run(queries, "abd4") == "sess_1763190000_uvw000", "although the id of another run begins so"


@pytest.mark.rule("ids.short")
def test_an_ambiguous_name_lists_the_candidates(queries):
    with pytest.raises(UsageError) as prefix:
        find_run(queries, "ab")
    assert AUTH in str(prefix.value)
    assert f"{OTHER}  requested  xyz789" in str(prefix.value)
    with pytest.raises(UsageError) as label:
        find_run(queries, "auth-2")
    assert "sess_1763190000_qrs000" in str(label.value)
    assert "sess_1763190009_chi1d0" in str(label.value)


def test_a_short_id_is_unique_and_at_least_four_letters():
    ids = ["sess_1_abcdef", "sess_1_abcdeg", "sess_1_xyzxyz", "sess_1_same00", "sess_2_same00"]
    assert short_ids(ids, ids) == {
        "sess_1_abcdef": "abcdef",
        "sess_1_abcdeg": "abcdeg",
        "sess_1_xyzxyz": "xyzx",
        "sess_1_same00": "sess_1_same00",
        "sess_2_same00": "sess_2_same00",
    }
    assert short_ids([], []) == {}
    assert short_ids(["sess_1_abcdef"], ["sess_1_abcdef"]) == {"sess_1_abcdef": "abcd"}
