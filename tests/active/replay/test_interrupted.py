"""A replay that is interrupted or killed leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hitl.tables.write import write_table
from hitl.testing import crowd

WORKERS = 2


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("ends", ["Ctrl-C", "SIGTERM"])
def test_the_workers_of_a_replay_end_with_it(tmp_path: Path, ends: str) -> None:
    evidence, truth = crowd(np.random.default_rng(0), n_items=2_000, known=1.0)
    write_table(tmp_path / "labels.csv", evidence.annotations.table())
    known = [str(evidence.annotations.classes[code]) for code in truth]
    lines = [f"{item},{label}\n" for item, label in zip(evidence.annotations.items, known, strict=True)]
    (tmp_path / "truth.csv").write_text("item,label\n" + "".join(lines))
    command = [sys.executable, "-m", "hitl", "replay", "labels.csv", "--truth", "truth.csv", "--workers", str(WORKERS)]
    started = subprocess.Popen(
        [*command, "--batch", "1"],
        cwd=tmp_path,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        children, until = Path(f"/proc/{started.pid}/task/{started.pid}/children"), time.monotonic() + 60
        while len(children.read_text().split()) <= WORKERS and time.monotonic() < until:
            time.sleep(0.1)  # the workers, and Python's tracker of their semaphores
        time.sleep(1)
        if ends == "Ctrl-C":
            os.killpg(started.pid, signal.SIGINT)  # as a terminal does
        else:
            started.terminate()
        started.communicate(timeout=60)  # ends when no process holds the pipe
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)
    assert started.returncode == (130 if ends == "Ctrl-C" else -signal.SIGTERM)
