import subprocess
from pathlib import Path

from deputy.processes.child_process import StopSignal, watch


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
