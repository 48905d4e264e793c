"""The page's API: the board, the stream, one run, answers and actions."""

from __future__ import annotations

import os
import tempfile
import time
import zipfile
from contextlib import aclosing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from aiohttp import web
from msgspec import MsgspecError, Struct, json

from deputy.core.errors import DeputyError, StorageCorrupt, StorageError, UnknownRun, UsageError
from deputy.interfaces.cli.commands.stats import stats_of
from deputy.interfaces.report.run_report import write_report
from deputy.interfaces.safe_text import print_error
from deputy.interfaces.web.answers import Answer, NotCounted, find_question, send_answer
from deputy.interfaces.web.board import read_position
from deputy.interfaces.web.feed import BEAT, NO_POSITION, NoJournal, what_failed
from deputy.interfaces.web.run_details import (
    again_command,
    found_run,
    run_details,
    run_diff,
    run_notes,
    run_records,
    tree_spans,
)
from deputy.interfaces.web.waiting import question_json
from deputy.journal.export import export
from deputy.journal.journal_metrics import CONTENT_TYPE, JournalMetrics
from deputy.journal.transcript import safe_id, transcribe
from deputy.processes.outgoing import outgoing_json
from deputy.stores import open_queries

if TYPE_CHECKING:
    from collections.abc import Callable

    from deputy.core.state import State
    from deputy.engine.ports.queries import Queries
    from deputy.interfaces.web.feed import Feed
    from deputy.interfaces.web.jobs import Job, Jobs

_MOST_IDS = 2000
_STATS_RUNS = 10_000
_MOST_TRANSCRIBED = 5000
_MOST_WATCHED = 32
_T = TypeVar("_T")


class _Cancel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ids: tuple[str, ...]


class _Resume(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    message: str = ""


class _Again(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prompt: str = ""
    model: str = ""


class _Pin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    off: bool = False


class WebApi:
    """The handlers of all routes below /api, and of /metrics."""

    def __init__(self, home: Path, feed: Feed, jobs: Jobs) -> None:
        self._home = home
        self._feed = feed
        self._jobs = jobs
        self._reader = feed.details
        self._metrics = JournalMetrics()

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get("/metrics", self._metrics_text),
            web.get("/api/board", self._board),
            web.get("/api/follow", self._follow),
            web.get("/api/usage", self._usage),
            web.get("/api/tree/{run}", self._reading(tree_spans)),
            web.get("/api/runs/{run}", self._reading(run_details)),
            web.get("/api/runs/{run}/records", self._records),
            web.get("/api/runs/{run}/notes", self._reading(run_notes)),
            web.get("/api/runs/{run}/transcript", self._transcript),
            web.get("/api/runs/{run}/diff", self._diff),
            web.get("/api/runs/{run}/export.zip", self._export),
            web.get("/api/runs/{run}/report.html", self._report),
            web.post("/api/runs/{run}/answer", self._answer),
            web.post("/api/runs/{run}/resume", self._resume),
            web.post("/api/runs/{run}/again", self._again),
            web.post("/api/runs/{run}/pin", self._pin),
            web.post("/api/cancel", self._cancel),
        ]

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _board(self, _request: web.Request) -> web.StreamResponse:
        return _json_response(await self._feed.board())

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        after = read_position(request.query.get("after", ""))
        # Tabs share one stream, which then carries the runs of all of them.
        runs = frozenset(request.query.get("run", "").split(",")[:_MOST_WATCHED]) - {""}
        # A reader that loses its connection before the last frame of what it missed gets all of that again.
        position = NO_POSITION if after is None else after.text
        try:
            async with aclosing(self._feed.stream(after, runs)) as stream:
                async for frames in stream:
                    parts: list[bytes] = []
                    for frame in frames or [BEAT]:
                        # A frame without a position of its own repeats the one before it.
                        position = frame.position or position
                        head = f"event: {frame.event}\nid: {position}\nlook: {frame.look}\ndata: "
                        parts.append(head.encode() + frame.data + b"\n\n")
                    await response.write(b"".join(parts))
        except ConnectionResetError:
            # The page was closed.
            pass
        return response

    def _reading(self, read: Callable[[Queries, str], Any]) -> Callable[[web.Request], Any]:
        async def handle(request: web.Request) -> web.StreamResponse:
            run = request.match_info["run"]
            return await self._read(lambda queries: outgoing_json(read(queries, run)))

        return handle

    async def _read(self, work: Callable[[Queries], bytes]) -> web.StreamResponse:
        return _json_response(await self._reader.read(work))

    async def _usage(self, _request: web.Request) -> web.StreamResponse:
        def read(queries: Queries) -> bytes:
            states = [*queries.ended(_STATS_RUNS), *queries.live()]
            return outgoing_json({by: stats_of(states, by) for by in ("model", "agent", "day", "command")})

        return await self._read(read)

    async def _metrics_text(self, _request: web.Request) -> web.StreamResponse:
        try:
            body = await self._reader.read(self._metrics.text)
        except NoJournal:
            if self._reader.problem.state != "none":
                raise
            body = self._metrics.text(None)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _records(self, request: web.Request) -> web.StreamResponse:
        run = request.match_info["run"]
        after, limit = _number(request, "after", 0), _number(request, "limit", 200)
        with_bodies = request.query.get("bodies") == "1"
        return await self._read(
            lambda queries: outgoing_json(run_records(queries, run, after, limit, with_bodies=with_bodies))
        )

    async def _transcript(self, request: web.Request) -> web.StreamResponse:
        run, after = request.match_info["run"], _number(request, "after", 0)

        def read(queries: Queries) -> bytes:
            state = found_run(queries, run)
            page = transcribe(queries.records(run, after=after, limit=_MOST_TRANSCRIBED), state)
            end = after + _MOST_TRANSCRIBED
            return outgoing_json({"transcript": page, "next": end if end < state.seq else None})

        return await self._read(read)

    async def _diff(self, request: web.Request) -> web.StreamResponse:
        run, path = request.match_info["run"], request.query.get("path", "")
        return await self._read(lambda queries: outgoing_json(run_diff(queries, run, path)))

    async def _export(self, request: web.Request) -> web.StreamResponse:
        import asyncio

        run = request.match_info["run"]
        file = await asyncio.to_thread(_zipped, self._home, run)
        name = f"{safe_id(run)}.zip"
        headers = {"Content-Type": "application/zip", "Content-Disposition": f'attachment; filename="{name}"'}
        return web.Response(body=file, headers=headers)

    async def _report(self, request: web.Request) -> web.StreamResponse:
        run = request.match_info["run"]
        page, _ = await self._reader.read(lambda queries: write_report(queries, found_run(queries, run), time.time()))
        headers = {"Content-Disposition": f'attachment; filename="{safe_id(run)}.html"'}
        return web.Response(body=page, content_type="text/html", charset="utf-8", headers=headers)

    # --- acting -------------------------------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        run, answer = request.match_info["run"], await _body(request, Answer)
        self._refuse_if_damaged()
        try:
            return await self._answered(run, answer)
        except NotCounted as refused:
            error = refused.error
            now = refused.now
            form = None if now is None else question_json(now, refused.state, (), is_answered=False)
            said = _error(str(error.code), error.message, error.recommendation)
            return web.Response(
                status=409,
                body=b'%b,"now":%b}' % (said[:-1], form or b"null"),
                content_type="application/json",
            )

    async def _answered(self, run: str, answer: Answer) -> web.StreamResponse:
        question = await self._reader.read(lambda queries: find_question(queries, run, answer))
        if question.needs_resume:
            state = await self._reader.read(lambda queries: found_run(queries, run))
            job = self._start_resume(state, await self._workspace(state), answer.words or "")
            return _json_response(outgoing_json({"counted": True, "taken": True, "job": job.form}))
        sent = await send_answer(self._home, question, answer)
        if sent["taken"] and not sent["counted"]:
            # Says which answer won, and what is asked now.
            await self._reader.read(lambda queries: find_question(queries, run, answer))
        return _json_response(outgoing_json(sent))

    async def _resume(self, request: web.Request) -> web.StreamResponse:
        run, given = request.match_info["run"], await _body(request, _Resume)
        self._refuse_if_damaged()
        state = await self._reader.read(lambda queries: found_run(queries, run))
        return _accepted(self._start_resume(state, await self._workspace(state), given.message))

    def _start_resume(self, state: State, folder: str, message: str) -> Job:
        words = ["resume", state.run, "--json", "--wait"]
        # A message is never an argument: other users of the machine can read those.
        given = ["--answer", "-"] if message.strip() else []
        return self._start("resume", state.run, [*words, *given], message.encode(), folder, is_long=True)

    async def _again(self, request: web.Request) -> web.StreamResponse:
        run, given = request.match_info["run"], await _body(request, _Again)
        self._refuse_if_damaged()
        words, stdin, folder = await self._reader.read(
            lambda queries: again_command(queries, run, given.prompt, given.model)
        )
        return _accepted(self._start("again", run, words, stdin, folder, is_long=True))

    async def _pin(self, request: web.Request) -> web.StreamResponse:
        run, given = request.match_info["run"], await _body(request, _Pin)
        self._refuse_if_damaged()
        await self._reader.read(lambda queries: found_run(queries, run))
        return _accepted(self._start("pin", run, ["pin", run, "--json", *(["--off"] if given.off else [])]))

    async def _cancel(self, request: web.Request) -> web.StreamResponse:
        given = await _body(request, _Cancel)
        self._refuse_if_damaged()
        if not 0 < len(given.ids) <= _MOST_IDS:
            raise UsageError("ids", len(given.ids), f"name 1 to {_MOST_IDS:,} runs")
        tops = await self._reader.read(lambda queries: _topmost(queries, given.ids))
        jobs = [self._start("cancel", run, ["cancel", run, "--json"]) for run in tops]
        return _json_response(outgoing_json({"jobs": [job.form for job in jobs]}), status=202)

    def _start(
        self,
        action: str,
        run: str,
        words: list[str],
        stdin: bytes = b"",
        folder: str = "",
        *,
        is_long: bool = False,
    ) -> Job:
        job = self._jobs.start(action, run, words, stdin=stdin, folder=folder, is_long=is_long)
        self._feed.wake()
        return job

    async def _workspace(self, state: State) -> str:
        root = state.run if state.lineage is None else state.lineage.root_id
        found = await self._reader.read(lambda queries: queries.state(root))
        return state.workspace if found is None else found.workspace

    def _refuse_if_damaged(self) -> None:
        if self._feed.problem.state == "damaged":
            raise StorageCorrupt(str(self._home), "the journal is damaged, so the page only reads it")


def _topmost(queries: Queries, ids: tuple[str, ...]) -> list[str]:
    """Those of these runs that are below none of the others: cancelling a run cancels everything below it."""
    parents: dict[str, str | None] = {run: found_run(queries, run).parent for run in dict.fromkeys(ids)}
    tops: list[str] = []
    for run in parents:
        above = parents[run]
        while above is not None and above not in parents:
            state = queries.state(above)
            above = None if state is None else state.parent
        if above is None:
            tops.append(run)
    return tops


def _zipped(home: Path, run: str) -> IO[bytes]:
    """A zip file of an export."""
    queries = open_queries(home)
    if queries is None:
        raise UnknownRun(run)
    with queries, tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / safe_id(run)
        export(queries, found_run(queries, run), place, time.time())
        file = tempfile.TemporaryFile()  # noqa: SIM115  the response closes it
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, _, files in os.walk(place):
                for one in sorted(files):
                    path = Path(name) / one
                    archive.write(path, path.relative_to(folder))
    file.seek(0)
    return file


# --- requests and responses -------------------------------------------------------------------------------------------


def _number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise UsageError(name, text, "give a whole number")
    return int(text)


async def _body(request: web.Request, form: type[_T]) -> _T:
    data = await request.read()
    try:
        return json.decode(data or b"{}", type=form)
    except (MsgspecError, RecursionError) as error:
        raise UsageError("body", data[:40].decode(errors="replace"), f"it must fit the API ({error})") from error


def _json_response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")


def _accepted(job: Job) -> web.Response:
    return _json_response(outgoing_json(job.form), status=202)


def _error(code: str, message: str, remedy: str) -> bytes:
    return outgoing_json({"error": {"code": code, "message": message, "remedy": remedy}})


def error_response(status: int, code: str, message: str, remedy: str = "") -> web.Response:
    """An error as every route answers it."""
    return web.Response(status=status, body=_error(code, message, remedy), content_type="application/json")


def explained(error: DeputyError | NoJournal) -> web.Response:
    """The response for an expected error."""
    match error:
        case NoJournal():
            remedy = "Run `deputy doctor`, or start a run."
            return error_response(503, "NO_JOURNAL", "There is no journal that can be read.", remedy)
        case UnknownRun():
            return error_response(404, "UNKNOWN_RUN", f"{print_error(error)}.", "It may have been pruned.")
        case UsageError():
            return error_response(400, "BAD_REQUEST", print_error(error))
        case StorageError():
            return error_response(503, "STORAGE", what_failed(error), error.remedy)
        case _:
            return error_response(409, "FAILED", print_error(error))
