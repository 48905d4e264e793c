import asyncio
import gc
import select
import subprocess
import threading
from pathlib import Path

import pytest

from deputy.processes.child_process import StopSignal, interruptible, watch


def test_a_job_that_fails_because_it_is_cancelled_prints_no_error():
    has_begun, complaints = threading.Event(), []

    def job(stop: StopSignal) -> None:
        has_begun.set()
        select.select([stop], [], [], 60)
        raise OSError("stopped")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        task = asyncio.ensure_future(interruptible(job))
        await asyncio.to_thread(has_begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()

    asyncio.run(main())
    gc.collect()
    assert complaints == []


def test_a_child_that_is_stopped_has_its_grace_to_tidy_up(tmp_path: Path):
    said = tmp_path / "said"
    tidy = f"trap 'echo tidied >{said}; exit' TERM; echo ready; while :; do sleep 0.01; done"
    stop = StopSignal()
    with subprocess.Popen(["sh", "-c", tidy], stdout=subprocess.PIPE, start_new_session=True) as child:

        def once_ready(_: bytes) -> bool:
            stop.request_stop()
            return True

        ended = watch(child, {child.stdout: once_ready}, stop=stop, seconds=60, grace_seconds=60)
    stop.close()
    assert (ended.how, said.read_text()) == ("stopped", "tidied\n")
