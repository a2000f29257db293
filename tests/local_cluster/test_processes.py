"""Processes: known by id and start, ended for certain."""

import subprocess
import sys
from pathlib import Path

from e2e.cluster.processes import find, start, stop, tail
from e2e.cluster.state import ProcessRecord
from e2e.cluster.waiting import wait_until

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


def test_a_process_that_ignores_sigterm_is_ended(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "stubborn.log"
    child, record = start("stubborn", [sys.executable, "-c", STUBBORN], log=log, cwd=tmp_path)
    wait_until("it ignores SIGTERM", lambda: tail(log) == "ready")
    assert find(record) is not None
    stop([record], grace=0.1)
    assert find(record) is None
    assert child.wait() == -9


def test_a_reused_id_is_another_process(tmp_path: Path) -> None:
    child, record = start("sleep", ["sleep", "600"], log=tmp_path / "log", cwd=tmp_path)
    earlier = record.model_copy(update={"started": record.started - 3600})
    assert find(earlier) is None
    stop([earlier], grace=0.1)
    assert child.poll() is None
    stop([record], grace=5)
    child.wait()


def test_what_has_ended_is_passed_over(tmp_path: Path) -> None:
    child, record = start("true", ["true"], log=tmp_path / "log", cwd=tmp_path)
    wait_until("it has ended, not yet reaped", lambda: find(record) is None)
    stop([record, ProcessRecord(name="never", pid=2**22 + 1, started=0.0)], grace=0.1)
    assert child.wait() == 0


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child, _ = start("sh", ["sh", "-c", "seq 30; echo last >&2"], log=log, cwd=tmp_path)
    child.wait()
    assert tail(log, lines=2) == "30\nlast"
    assert tail(tmp_path / "none") == "(no log)"


def test_a_child_is_out_of_reach_of_the_terminals_signals(tmp_path: Path) -> None:
    child, record = start("sleep", ["sleep", "600"], log=tmp_path / "log", cwd=tmp_path)
    session = subprocess.run(
        ["ps", "-o", "sid=", "-p", str(child.pid)], capture_output=True, text=True, check=True
    )
    assert int(session.stdout) == child.pid
    stop([record], grace=5)
    child.wait()
