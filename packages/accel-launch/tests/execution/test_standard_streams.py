# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Standard streams that are closed, or cannot be written: the job runs, and what is lost is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import free_port

LAUNCH = f"{sys.executable} -m accel_core.cli launch --num_accelerators 1"


def _shell(command: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command.replace(LAUNCH, f"{LAUNCH} --master_port {free_port()}")],
        env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("closed", ["", ">&-", "2>&-", ">&- 2>&-"])
def test_a_rank_reads_its_input_whatever_stream_of_the_launcher_is_closed(
    closed: str, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(
        "import sys; open('read', 'w').write(sys.stdin.readline()); print('out')"
    )
    done = _shell(f"echo hello | {LAUNCH} script.py {closed}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "read").read_text() == "hello\n"
    assert "Traceback" not in done.stderr
    assert closed or done.stdout == "out\n"


def test_output_that_cannot_be_written_is_said_and_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('out')")
    done = _shell(f"{LAUNCH} script.py > /dev/full", tmp_path)
    assert done.returncode == 1
    assert "output cannot be written: No space left on device" in done.stderr
