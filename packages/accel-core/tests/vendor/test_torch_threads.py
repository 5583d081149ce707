# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A process whose ranks have talked through gloo ends without an abort."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accel_core.vendor import torch_threads

#: Interposed: gloo's thread, after it has said that a task is done, computes for half a second.
LATE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

int pthread_cond_broadcast(pthread_cond_t *condition) {
  static int (*real)(pthread_cond_t *);
  if (!real) real = dlvsym(RTLD_NEXT, "pthread_cond_broadcast", "GLIBC_2.3.2");
  int result = real(condition);
  char name[17] = {0};
  prctl(PR_GET_NAME, name);
  if (strcmp(name, "pt_gloo_runloop") == 0) {
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < 500);
    write(2, "late\n", 5);
  }
  return result;
}
"""

#: The tensor is a temporary: gloo's task has its last reference. What ends the program last keeps the interpreter
#: for a second (PyDLL), so that gloo's thread waits for it when it ends.
ONE_RANK = """
import atexit, ctypes
atexit.register(ctypes.PyDLL(None).usleep, 1_000_000)
{first}
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(torch.ones(3))
"""

FIRST = {
    "deepspeed": "import torch, deepspeed",
    "register_backend": "import torch, accel_cpu; accel_cpu.register_backend()",
    "checkpoint": "import torch; from accel_ops.io.checkpoint import CheckpointWriter; CheckpointWriter('unused')",
}


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library for LD_PRELOAD."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("not run: needs Linux and a C compiler")
    folder = tmp_path_factory.mktemp("late")
    (folder / "late.c").write_text(LATE)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", "late.so", "late.c", "-ldl"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return str(folder / "late.so")


@pytest.mark.upstream
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_a_late_thread_of_gloo_does_not_abort_the_end(first: str, late: str) -> None:
    for package in ("accel_cpu", "accel_ops"):
        if package in first:
            pytest.importorskip(package, reason=f"not run: package {package.replace('_', '-')}")
    done = subprocess.run(
        [sys.executable, "-c", ONE_RANK.format(first=first)],
        env={**os.environ, "LD_PRELOAD": late, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "late\n" in done.stderr, "the fault was not planted"
    assert done.returncode == 0, done.stderr[-2000:]


def test_without_threads_of_torch_nothing_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of this process, an earlier test may have left some.
    (tmp_path / "1").mkdir()
    (tmp_path / "1/comm").write_text("python\n")
    monkeypatch.setattr(torch_threads, "_TASKS", tmp_path)
    assert torch_threads.wait_until_idle(limit=0.0)


@contextmanager
def running(name: str, work: Callable[[threading.Event], object]) -> Iterator[None]:
    """A thread of this name, which works until the block ends."""
    if sys.platform != "linux":
        pytest.skip("not run: reads /proc")
    named, ends = threading.Event(), threading.Event()

    def run() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name)
        named.set()
        work(ends)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert named.wait(60)
        yield
    finally:
        ends.set()
        thread.join()


def test_a_thread_that_computes_is_waited_for_until_the_limit() -> None:
    def compute(ends: threading.Event) -> None:
        while not ends.is_set():
            sum(range(1000))

    with running("pt_autograd_0", compute):
        assert not torch_threads.wait_until_idle(limit=0.1)
    assert torch_threads.wait_until_idle()


def test_a_thread_that_waits_for_another_rank_is_not_waited_for() -> None:
    with running("pt_gloo_runloop", threading.Event.wait):
        assert torch_threads.wait_until_idle(limit=60)
