"""What a login with a narrow role cannot do to the runs of others, over a connection of its own."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from tests.support.cluster import ClusterHost
from tests.support.postgres import administer

from deputy.core.events import Delivered, QuestionAnswered, Record, Requested, RunOpened, encode
from deputy.core.request import Grant, Hop, Lineage, Request
from deputy.core.state import State, encode_state
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress, driver
from deputy.journal.sql.rows import event_row
from deputy.stores import store_roles
from deputy.testing.runtime_suite.case_helpers import RUN, completed, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deputy.core.outcome import Outcome
    from deputy.engine.ports import RunContext

ENDED, WAITING = RUN, "sess_9_waits"
_PUT_EVENT = (
    "INSERT INTO events (id, run, seq, key, at, clock, kind, body, sum) VALUES (1, $1, $2, $3, $4, $5, $6, $7, $8)"
)
_PUT_RUN = (
    "INSERT INTO runs (run, parent, root, is_live, is_settled, last_at, state, sum)"
    " VALUES ($1, $2, $3, true, false, 1, $4, '')"
)
_OWN = "sess_2_own"
_STATE = "UPDATE runs SET state = convert_to(replace(convert_from(state, 'utf8'), $1, $2), 'utf8') WHERE run = $3"


@pytest.fixture
def host(tmp_path: Path) -> ClusterHost:
    """A store with a run that has ended, and one that waits for an answer."""

    async def flow(run: RunContext, _: Any) -> Outcome:
        if run.run == WAITING:
            await run.ask("answer", "Which?")
        return completed(run, "done")

    async def fill(made: ClusterHost) -> None:
        async with made.start(flow) as engine:
            await engine.submit(ENDED, opened())
            await engine.result(ENDED)
            await engine.submit(WAITING, RunOpened(lineage=Lineage.root(WAITING)))
            async for record in engine.events(WAITING):
                if record.event.kind == "question_asked":
                    break

    made = ClusterHost(tmp_path)
    asyncio.run(fill(made))
    with closing(PostgresSession(made.address)) as session:
        session.run(store_roles())
    return made


def login(host: ClusterHost, role: str, name: str = "") -> PostgresSession:
    """A connection of a new login with a role."""
    user = f"{name or role}_{host.address.database}"
    administer(f"DROP ROLE IF EXISTS {user}")
    administer(f"CREATE ROLE {user} LOGIN IN ROLE deputy_{role}")
    return PostgresSession(StoreAddress(host.address.url.replace("postgres@", f"{user}@")))


@pytest.fixture
def submitter(host: ClusterHost) -> Iterator[PostgresSession]:
    with closing(login(host, "submitter")) as session:
        yield session


def row(run: str, seq: int, key: str, event: Any, kind: str = "") -> tuple[Any, ...]:
    """The row of a record; `kind` lies about it."""
    made = event_row(Record(run=run, seq=seq, key=key, at=1.0, clock=1.0, event=event), encode(event))
    return (*made[:5], kind or made[5], *made[6:])


def refused(session: PostgresSession, query: str, *values: Any) -> None:
    with pytest.raises(driver().InsufficientPrivilegeError):
        session.fetch(query, *values)


@pytest.mark.rule("store.roles")
def test_a_submitter_cannot_add_records_to_runs(host: ClusterHost, submitter: PostgresSession) -> None:
    answer = QuestionAnswered(topic="question", body=b"true")  # type: ignore[arg-type]
    for values in (
        row(WAITING, 9, "answer", answer),
        row(WAITING, 9, "delivered:1", answer, kind="delivered"),
        row(ENDED, 9, "delivered:9", answer, kind="delivered"),
        row(WAITING, 9, "delivered:1", Delivered(to="me")),
        row(WAITING, 1, "requested", answer),
        row(_OWN, 1, "requested", answer, kind="run_opened"),
        # Part of the tree of another.
        row(_OWN, 1, "requested", RunOpened(lineage=Lineage.root(ENDED))),
        row(_OWN, 1, "requested", requested(ENDED)),
        row(_OWN, 1, "requested", structs.replace(requested(_OWN), parent=ENDED)),
    ):
        refused(submitter, _PUT_EVENT, *values)
    delivered = row(ENDED, last_seq(host) + 1, "delivered:1", Delivered(to="me"))
    refused(submitter, _PUT_EVENT, *delivered)
    own_by(host, submitter)
    refused(submitter, _PUT_EVENT, *row(ENDED, last_seq(host) + 2, "delivered:1", Delivered(to="me")))
    submitter.fetch(_PUT_EVENT, *delivered)
    submitter.fetch(_PUT_EVENT, *row(_OWN, 1, "requested", RunOpened(lineage=Lineage.root(_OWN), prompt="\0")))
    submitter.fetch(_PUT_EVENT, *row("sess_3_own", 1, "requested", requested("sess_3_own")))


def requested(root: str) -> Requested:
    request = Request(
        session_id=root, target=Hop("task:a", "task"), prompt="", caller=Lineage.root(root), caller_grant=Grant()
    )
    return Requested(request=request)


def last_seq(host: ClusterHost) -> int:
    return host.execute("SELECT max(seq) FROM events WHERE run = $1", ENDED)[0][0]


def own_by(host: ClusterHost, session: PostgresSession) -> None:
    """Let the ended run be of the login of a session."""
    host.execute("UPDATE runs SET login = $1 WHERE run = $2", session.fetch("SELECT session_user::text")[0][0], ENDED)


@pytest.mark.rule("store.roles")
def test_a_submitter_changes_no_state_but_that_a_result_was_delivered(
    host: ClusterHost, submitter: PostgresSession
) -> None:
    refused(submitter, _STATE, '"label":"root"', '"label":"x"', WAITING)
    # Of another login it changes nothing, not even when the run ended.
    refused(submitter, _STATE, '"seq":', '"is_delivered":true,"seq":', ENDED)
    for change in ("ended_at = 1", "last_at = 1", "is_settled = true", "sum = ''", "login = session_user"):
        refused(submitter, f"UPDATE runs SET {change} WHERE run = $1", ENDED)
    own_by(host, submitter)
    refused(submitter, _STATE, '"label":"root"', '"label":"x"', ENDED)
    refused(submitter, "UPDATE runs SET is_live = true WHERE run = $1", ENDED)
    refused(submitter, "UPDATE runs SET parent = $1 WHERE run = $2", WAITING, ENDED)
    refused(submitter, "UPDATE runs SET login = 'postgres' WHERE run = $1", ENDED)
    submitter.fetch(_STATE, '"seq":', '"is_delivered":true,"seq":', ENDED)


@pytest.mark.rule("store.roles")
def test_a_submitter_adds_only_trees_of_its_own(host: ClusterHost, submitter: PostgresSession) -> None:
    own = State(run=_OWN, lineage=Lineage.root(_OWN))
    for parent, root, state in (
        (WAITING, WAITING, own),
        (None, WAITING, own),
        (None, _OWN, structs.replace(own, run=WAITING)),
        (None, _OWN, structs.replace(own, parent=WAITING)),
        (None, _OWN, structs.replace(own, lineage=Lineage.root(WAITING))),
    ):
        refused(submitter, _PUT_RUN, _OWN, parent, root, encode_state(state))
    for odd in ("x" * 201, "a\x1b[2J", "a\nb"):
        with pytest.raises(driver().InvalidParameterValueError, match="1 to 200 printable characters"):
            submitter.fetch(_PUT_RUN, odd, None, odd, encode_state(State(run=odd, lineage=Lineage.root(odd))))
    as_another = _PUT_RUN.replace("sum)", "sum, login)").replace("'')", "'', 'postgres')")
    refused(submitter, as_another, _OWN, None, _OWN, encode_state(own))
    submitter.fetch(_PUT_RUN, _OWN, None, _OWN, encode_state(own))
    assert host.execute("SELECT login::text FROM runs WHERE run = $1", _OWN) == submitter.fetch(
        "SELECT session_user::text"
    )


@pytest.mark.rule("store.roles")
def test_a_submitter_stores_snapshots_and_no_work(host: ClusterHost, submitter: PostgresSession) -> None:
    put = "INSERT INTO bundles (repository, tip, branch, parts, body) VALUES ('r', $1, $2, '{}', '')"
    use = "INSERT INTO bundle_uses (run, repository, tip) VALUES ($1, 'r', $2)"
    host.execute(put, "theirs", "deputy/x")
    host.execute(use, ENDED, "theirs")
    refused(submitter, put, "t2", "deputy/x")
    refused(submitter, use, WAITING, "theirs")
    refused(submitter, "DELETE FROM bundle_uses")
    assert submitter.fetch("UPDATE bundles SET at = clock_timestamp() RETURNING 1") == []
    submitter.fetch(put, "t2", "")
    submitter.fetch(use, "sess_2_own", "t2")


@pytest.mark.rule("store.roles")
def test_a_submitter_places_only_new_runs(host: ClusterHost, submitter: PostgresSession) -> None:
    refused(submitter, "SELECT enqueue($1, 9, 'deputy')", WAITING)
    refused(submitter, "SELECT place(ARRAY[$1])", WAITING)
    refused(submitter, "INSERT INTO leases (run, epoch) VALUES ('sess_2_x', 1)")
    with pytest.raises(driver().UniqueViolationError):
        submitter.fetch("SELECT put_placed(ARRAY[$1], ARRAY['deputy'])", WAITING)
    for queue in ("_dbos_internal_queue", "deputies", "deputy.", "deputy.gpu\n", "deputy.\x1b[2J", None):
        with pytest.raises(driver().InvalidParameterValueError, match="is no queue of workers"):
            submitter.fetch("SELECT put_placed(ARRAY['sess_2_own'], ARRAY[$1])", queue)
    submitter.fetch("SELECT put_placed(ARRAY['sess_2_own'], ARRAY['deputy'])")
    submitter.fetch("SELECT put_placed(ARRAY['sess_2_gpu'], ARRAY['deputy.eu-gpu'])")


@pytest.mark.rule("store.roles")
@pytest.mark.parametrize("role", ["answerer", "submitter", "worker"])
def test_a_parked_run_is_woken_only_by_a_message_or_the_end_of_its_child(host: ClusterHost, role: str) -> None:
    parked = (
        "UPDATE leases SET owner = NULL, is_placed = false, is_parked = true, awaits = $2, queue = 'deputy'"
        " WHERE run = $1"
    )
    live = "sess_9_child"
    host.execute(
        "INSERT INTO runs SELECT $1, run, root, true, false, 1, NULL, state, sum FROM runs WHERE run = $2",
        live,
        WAITING,
    )
    host.execute(parked, WAITING, [live])

    def is_woken() -> bool:
        return host.lease(WAITING)["is_placed"]

    with closing(login(host, role)) as session:
        session.fetch("SELECT announce(ARRAY[$1, $2], ARRAY[$1])", WAITING, live)
        session.fetch("SELECT announce(ARRAY[$2], ARRAY[$1])", WAITING, ENDED)
        assert not is_woken()
        host.execute("UPDATE runs SET is_live = false WHERE run = $1", live)
        session.fetch("SELECT announce(ARRAY[$2], ARRAY[$1])", WAITING, live)
        assert is_woken()
        host.execute(parked, WAITING, [])
        session.fetch("INSERT INTO inbox (run, topic, key, body, sum) VALUES ($1, 'cancel', 'c', '', '')", WAITING)
        session.fetch("SELECT announce(ARRAY[$1], '{}')", WAITING)
        assert is_woken()


@pytest.mark.rule("store.roles")
@pytest.mark.parametrize("role", ["answerer", "submitter", "worker"])
def test_a_login_cannot_act_for_the_process_of_another(host: ClusterHost, role: str) -> None:
    with closing(login(host, "worker", "first")) as first, closing(login(host, role, "second")) as second:
        first.fetch("SELECT lock_batch('one', 1, '{}')")
        first.fetch("SELECT beat('one', 1, 'host', '1', 0)")
        refused(second, "SELECT beat('one', 2, 'host', '1', 0)")
        refused(second, "SELECT lock_batch('one', 2, '{}')")
        second.fetch("SELECT beat('two', 1, 'host', '1', 0)")
        if role == "worker":
            assert second.fetch("UPDATE owners SET draining = true WHERE owner = 'one' RETURNING 1") == []
            assert second.fetch("DELETE FROM owners WHERE owner = 'one' RETURNING 1") == []
            refused(second, "UPDATE owners SET login = 'first' WHERE owner = 'two'")
        assert first.fetch("SELECT batch FROM owners WHERE owner = 'one'") == [(1,)]
