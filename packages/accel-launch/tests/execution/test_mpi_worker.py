# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The worker as mpirun and srun start, place and kill it."""

import os
import signal
import subprocess

import pytest

from accel_launch.job import Job
from accel_launch.protocol import GUARD

ARGUMENTS = ("--rank-from", "PMI_RANK", "--local-rank-from", "MPI_LOCALRANKID")


def worker(job: Job, rank: int, local_rank: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*GUARD, *ARGUMENTS],
        env={**os.environ, **job.to_environment(), "PMI_RANK": str(rank), "MPI_LOCALRANKID": str(local_rank)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


@pytest.mark.parametrize("whole_group", [False, True])
def test_a_worker_that_its_engine_kills_leaves_nothing(start, make, tmp_path, whole_group: bool) -> None:
    # `start` only gives the means to look for processes of the job; its own launcher has ended.
    job = start("true", ranks=1)
    job.wait()
    script = "trap '' TERM; setsid sleep 301 & echo > up; sleep 302; sleep 303"
    process = worker(Job(make(["sh", "-c", script], ranks=1, more={"JOB_MARK": job.mark})), 0, 0)
    job.file("up")
    if whole_group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    assert job.gone_within(60), job.alive()
    process.communicate()


def test_a_signal_to_a_worker_reaches_its_rank(start, make) -> None:
    job = start("true", ranks=1)
    job.wait()
    script = "trap 'exit 9' TERM; echo > up; sleep 300 & wait"
    process = worker(Job(make(["sh", "-c", script], ranks=1, more={"JOB_MARK": job.mark})), 0, 0)
    job.file("up")
    process.terminate()
    process.communicate(timeout=120)
    assert process.returncode == 9
    assert job.gone_within(60)


def test_a_rank_that_the_engine_placed_elsewhere_is_reported(make) -> None:
    job = Job(make(["true"], ranks=2))
    process = worker(job, 1, 0)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "ACC-613" in err.decode()
    assert '"kind": "end", "rank": 1, "code": 1' in err.decode()
