"""A delegation on a worker that does not have the folder: its files travel there, and its work comes back."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.postgres import emptied_queue_database
from tests.support.scripts import call, turn
from tests.support.workspace_machine import Machine, content, git, repository

from deputy.client import Deputy
from deputy.core.conditions import Conditions
from deputy.core.errors import UsageError
from deputy.core.events import RunOpened
from deputy.core.outcome import Cancelled, Completed, Failed
from deputy.core.request import Grant, Lineage
from deputy.core.task import Task
from deputy.engine.call import RUN
from deputy.interfaces.stored_branches import fetch_branches, patches
from deputy.interfaces.web.run_details import run_diff
from deputy.journal.postgres.postgres_store import PostgresStore
from deputy.journal.postgres.store_address import PostgresSession, StoreAddress
from deputy.journal.transcript import transcribe
from deputy.options import DeputyOptions
from deputy.stores import open_queries
from deputy.testing import ProviderServer
from deputy.tools.git_mirror import locked
from deputy.wiring import queue_for
from deputy.worker import Worker, open_worker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from deputy.core.outcome import Outcome

__all__ = ["repository"]
MODEL = "anthropic:claude-sonnet-4-5"


class Cluster:
    """A submitter with a folder, and workers with homes of their own."""

    def __init__(self, tmp_path: Path, folder: Path) -> None:
        self.folder = folder
        self.home = tmp_path / "submitter"
        self.worker_home = tmp_path / "worker"
        self.run = ""

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[Worker]:
        stop = asyncio.Event()
        async with open_worker(DeputyOptions(home=self.worker_home)) as worker, asyncio.TaskGroup() as group:
            group.create_task(worker.work(2, stop, lambda: None))
            yield worker
            stop.set()

    async def delegate(self, *tasks: Task, **options: Any) -> list[Outcome]:
        async with (
            self.worker(),
            Deputy(workspace=self.folder, home=self.home, model=MODEL, approval="granted", **options) as deputy,
        ):
            self.run = await deputy.start(tasks)
            return [result.outcome for result in await deputy.results(self.run)]


@pytest.fixture
def cluster(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("DEPUTY_STORE", emptied_queue_database())
    monkeypatch.setenv("DEPUTY_DISPATCH", "dbos")
    monkeypatch.setenv("DEPUTY_HOME", str(tmp_path / "submitter"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Cluster(tmp_path, repository)


def use(provider: ProviderServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in provider.environ.items():
        monkeypatch.setenv(name, value)


@pytest.mark.rule("workspace.placed")
def test_a_worker_reads_the_files_and_its_changes_are_a_branch_here(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    (cluster.folder / "loose.txt").write_text("uncommitted\n")
    before = content(cluster.folder)
    turns = (
        turn("", call("Read", path="loose.txt")),
        turn("", call("Write", path="sub/new.txt", content="hello\n"), call("Note", content="A finding.")),
        turn("Written."),
    )
    with ProviderServer(*turns) as provider:
        use(provider, monkeypatch)
        outcome = asyncio.run(cluster.delegate(Task(label="scribe", prompt="Write it.", tools=("Read", "Write"))))[0]
    assert isinstance(outcome, Completed)
    assert outcome.branch.startswith("deputy/scribe-")
    assert "uncommitted" in str(provider.asked[1].body["messages"])
    assert content(cluster.folder) == before
    queries = open_queries(cluster.home)
    assert queries is not None
    with queries:
        state = queries.state(cluster.run)
        assert state is not None
        refs = git(cluster.folder, "for-each-ref")
        shown: Any = run_diff(queries, outcome.session_id, "")
        assert [file.path for file in shown.files] == ["sub/new.txt"]
        assert "+hello" in run_diff(queries, outcome.session_id, "sub/new.txt").patch
        # The page only reads: no branch came to the repository.
        assert git(cluster.folder, "for-each-ref") == refs
        assert fetch_branches(queries, state) == []
        ((run, patch),) = patches(queries, state)
        notes = getattr(transcribe(queries.records(run)), "notes", ())
    assert git(cluster.folder, "show", f"{outcome.branch}:sub/new.txt") == "hello\n"
    assert "+++ b/sub/new.txt" in patch
    # What was noted on the worker is read here, where no file of it is.
    assert (notes, list(cluster.home.glob("subagent/*"))) == (("A finding.",), [])
    assert list(cluster.worker_home.glob("subagent/*.scratch.md")) != []


@pytest.mark.rule("workspace.moves")
def test_the_work_of_a_run_that_is_cancelled_on_another_worker_is_its_branch(cluster: Cluster, tmp_path: Path):
    store = PostgresStore(os.environ["DEPUTY_STORE"], tmp_path)
    submitter, first = Machine(tmp_path / "a", store), Machine(tmp_path / "b", store)
    snapshot = submitter.send(cluster.folder)
    lineage = Lineage.root("sess_1_root00")
    start = RunOpened(lineage=lineage, conditions=Conditions(snapshot=snapshot))

    async def go() -> Outcome:
        worktrees, place = await first.opened(snapshot, lineage.session_id)
        (first.home / "worktrees" / lineage.session_id / "new.txt").write_text("half\n")
        await worktrees.changed(place.root)
        async with open_worker(DeputyOptions(home=cluster.worker_home)) as second:
            await second.journal.begin(lineage.session_id, start)
            services: Any = second._services  # pyright: ignore[reportPrivateUsage]
            ended = await services.keep(place, "scribe", Cancelled(lineage=lineage, summary="Cancelled."))
            assert len(services._opened) == 1
            await services.tidy(set)
            assert (services._opened, services._of_root) == ({}, {})
            return ended

    outcome = asyncio.run(go())
    assert [one.path for one in outcome.artifacts] == ["new.txt"]
    submitter.bring(outcome.branch, snapshot, cluster.folder)
    assert git(cluster.folder, "show", f"{outcome.branch}:new.txt") == "half\n"


@pytest.mark.rule("workspace.placed")
def test_a_task_in_place_works_on_a_branch_of_a_worker(cluster: Cluster, monkeypatch: pytest.MonkeyPatch):
    task = Task(label="scribe", prompt="Write it.", tools=("Write",), isolation="none")
    with ProviderServer(turn("", call("Write", path="new.txt", content="hello")), turn("Written.")) as provider:
        use(provider, monkeypatch)
        outcome = asyncio.run(cluster.delegate(task))[0]
    assert (outcome.branch != "", (cluster.folder / "new.txt").exists()) == (True, False)
    assert "It worked on a branch, not in place: the worker has a copy of your folder." in outcome.warnings


@pytest.mark.rule("workspace.shared")
def test_a_shared_volume_is_found_where_each_machine_has_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    config = tmp_path / ".config" / "deputy" / "config.toml"
    config.parent.mkdir(parents=True)
    elsewhere = tmp_path / "mounted"
    elsewhere.symlink_to(tmp_path)
    config.write_text(f'[workspace]\nmode = "shared"\nroot = "{elsewhere}"\n')
    with ProviderServer(turn("", call("Read", path="a.txt")), turn("Read.")) as provider:
        use(provider, monkeypatch)
        outcome = asyncio.run(cluster.delegate(Task(label="reader", prompt="Read it.", tools=("Read",))))[0]
    assert isinstance(outcome, Completed)
    assert "first" in str(provider.asked[1].body["messages"])
    assert not (cluster.worker_home / "mirrors").exists()


@pytest.mark.rule("workspace.shared")
def test_a_worker_without_a_volume_uses_no_folder_that_a_record_names(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    config = tmp_path / ".config" / "deputy" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[workspace]\nmode = "shared"\n')

    async def go() -> Outcome:
        async with Deputy(workspace=cluster.folder, home=cluster.home, model=MODEL, approval="granted") as deputy:
            run = await deputy.start([Task(label="reader", prompt="Read it.", tools=("Read",))])
            config.unlink()
            async with cluster.worker():
                return await deputy.outcome(run)

    with ProviderServer() as provider:
        use(provider, monkeypatch)
        outcome = asyncio.run(go())
    assert isinstance(outcome, Failed)
    assert outcome.errors[0].code == "WORKSPACE_MISSING"
    assert "needs a shared volume" in outcome.errors[0].message
    assert provider.asked == []


@pytest.mark.rule("workspace.errors")
def test_a_worker_that_cannot_have_the_files_fails_the_run_with_a_remedy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    async def lose() -> None:
        async with Deputy(workspace=cluster.folder, home=cluster.home, model=MODEL, approval="granted") as deputy:
            cluster.run = await deputy.start([Task(label="reader", prompt="Read it.", tools=("Read",))])
            await asyncio.to_thread(execute, os.environ["DEPUTY_STORE"], "DELETE FROM bundles")
            async with cluster.worker():
                await deputy.results(cluster.run)

    with ProviderServer() as provider:
        use(provider, monkeypatch)
        asyncio.run(lose())
    with open_queries(cluster.home) or pytest.fail("no journal") as queries:
        outcome = queries.outcome(queries.state(cluster.run) or pytest.fail("no run"))
    assert isinstance(outcome, Failed)
    assert outcome.errors[0].code == "WORKSPACE_MISSING"
    assert "Submit the work again" in outcome.errors[0].recommendation


def execute(url: str, statement: str) -> None:
    session = PostgresSession(StoreAddress(url))
    session.run(statement)
    session.close()


@pytest.mark.rule("workspace.placed")
@pytest.mark.parametrize(
    ("tools", "is_shared", "queue"),
    [({"Read"}, False, "deputy"), ({"Read", "Write"}, False, ""), ({"Read", "Write"}, True, "deputy")],
)
def test_a_parent_that_works_in_place_stays_where_the_files_are(tools: set[str], is_shared: bool, queue: str):
    start = RunOpened(lineage=Lineage.root("sess_1_a"), command=RUN, grant=Grant(tools=frozenset(tools)))
    assert queue_for(start, "deputy", is_shared=is_shared) == queue


@pytest.mark.rule("workspace.shared")
def test_a_workspace_outside_of_the_volume_is_refused_at_submit(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    config = tmp_path / ".config" / "deputy" / "config.toml"
    config.parent.mkdir(parents=True)
    (tmp_path / "volume").mkdir()
    config.write_text(f'[workspace]\nmode = "shared"\nroot = "{tmp_path}/volume"\n')
    with ProviderServer() as provider:
        use(provider, monkeypatch)
        with pytest.raises(BaseExceptionGroup) as raised:
            asyncio.run(cluster.delegate(Task(label="reader", prompt="Read it.", tools=("Read",))))
    assert raised.group_contains(UsageError, match="work below its root")


@pytest.mark.rule("workspace.placed")
def test_a_tree_that_is_open_does_not_wait_for_the_checkout_of_another(cluster: Cluster, tmp_path: Path):
    store = PostgresStore(os.environ["DEPUTY_STORE"], tmp_path)

    async def go() -> None:
        snapshot = (await Machine(cluster.home, store).workspaces.send(str(cluster.folder))).snapshot
        start = RunOpened(lineage=Lineage.root("sess_1_open"), conditions=Conditions(snapshot=snapshot))
        async with open_worker(DeputyOptions(home=cluster.worker_home)) as worker:
            services: Any = worker._services  # pyright: ignore[reportPrivateUsage]
            first = await services._services_of("sess_1_open", start)
            # Another process works on the mirror, so the second checkout waits.
            with locked(cluster.worker_home / "mirrors" / snapshot.repository):
                second = asyncio.create_task(services._services_of("sess_2_waits", start))
                await asyncio.sleep(0)
                assert services._opening.locked()
                async with asyncio.timeout(20):
                    assert await services._services_of("sess_1_open") is first
                assert not second.done()
            assert await second is not first

    asyncio.run(go())
