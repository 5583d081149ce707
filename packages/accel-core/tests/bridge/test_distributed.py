# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A job: its ranks with a launcher and without, its store, the devices of a mask, its end, what is said of faults."""

import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from accel_core import activate, env
from accel_core.errors import NoBackendForCollectives
from accel_core.op_builder import NotImplementedBuilder
from accel_core.upstream import distributed
from accel_core.vendor import torch_threads


class Accelerator:
    """As much of an accelerator as an explanation asks for."""

    _name = "toy"

    def __init__(self, devices: int) -> None:
        self.devices = devices

    def device_count(self) -> int:
        if self.devices < 0:
            raise RuntimeError("driver lost")
        return self.devices

    def communication_backend_name(self) -> str:
        return "toyccl"


def _raising(*_: Any, **__: Any) -> None:
    raise ValueError("ToyCCL is only supported with toys")


def test_a_failure_without_a_device_names_the_accelerator_and_keeps_the_cause() -> None:
    with pytest.raises(NoBackendForCollectives, match="'toy'") as raised:
        distributed.explained(_raising, lambda: Accelerator(0))()
    assert "ToyCCL is only supported with toys" in str(raised.value)
    assert "DS_ACCELERATOR=cpu" in str(raised.value)
    assert isinstance(raised.value.__cause__, ValueError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("devices", [1, -1], ids=["a device", "a count that fails"])
def test_any_other_failure_stays_as_it_is(devices: int) -> None:
    with pytest.raises(ValueError, match=r"^ToyCCL is only supported with toys$"):
        distributed.explained(_raising, lambda: Accelerator(devices))()


class Host(Accelerator):
    """The CPU, with a builder that says what to install for the backend `ccl`."""

    _name = "cpu"

    def create_op_builder(self, name: str) -> Any:
        missing = NotImplementedBuilder()
        return SimpleNamespace(reason="no oneCCL: pip install it") if name == "CCLCommBuilder" else missing


@pytest.mark.parametrize(
    ("asked", "says"), [("ccl", "no oneCCL: pip install it"), ("nccl", "no such backend for cpu")]
)
def test_a_backend_that_is_not_there_says_what_to_install_or_to_write(asked: str, says: str) -> None:
    def stock(dist_backend: str | None = None) -> None:
        dist.init_process_group(dist_backend, store=FakeStore(), rank=0, world_size=1)

    with pytest.raises(NoBackendForCollectives) as raised:
        distributed.explained(stock, lambda: Host(1))(asked)
    assert f": {says}" in raised.value.message
    assert raised.value.do.startswith("leave dist_backend out, which gives 'toyccl'")


@pytest.fixture
def two_ranks() -> Iterator[None]:
    """torch.distributed as rank 0 of 2 sees it, without another process."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(("counted", "warned"), [(1, True), (2, False), (None, False)])
@pytest.mark.usefixtures("two_ranks")
def test_ranks_that_accelerate_does_not_count_are_a_warning(
    counted: int | None, warned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shared = {} if counted is None else {"num_processes": counted}
    state = SimpleNamespace(PartialState=SimpleNamespace(_shared_state=shared))
    monkeypatch.setitem(sys.modules, "accelerate.state", state)  # type: ignore[arg-type]
    distributed.explained(lambda: None, lambda: Accelerator(1))()
    assert bool(caplog.records) == warned
    assert not warned or "PartialState(backend='fake')" in caplog.text
    assert not warned or "InitProcessGroupKwargs(backend='fake')" in caplog.text


@pytest.mark.upstream
@pytest.mark.parametrize("first", ["accel_core", "deepspeed"])
def test_deepspeeds_own_function_is_wrapped_wherever_it_is_bound(toy: Any, first: str) -> None:
    snippet = f"""
        import {first}
        import accel_core, deepspeed, json
        import deepspeed.comm as dist
        from deepspeed.comm import comm
        functions = [deepspeed.init_distributed, dist.init_distributed, comm.init_distributed]
        print(json.dumps([f.__wrapped__.__module__ for f in functions]))
    """
    late = first == "deepspeed"  # torch's autoload would import accel_core first
    autoload = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if late else {}
    ended = toy.run(snippet, DS_ACCELERATOR="cpu" if late else "toy", **autoload)
    assert ended.report == ["deepspeed.comm.comm"] * 3


def test_a_backend_is_registered_at_the_first_use_of_its_name(children: Any, tmp_path: Path) -> None:
    record = tmp_path / "toyccl-1.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: toyccl\nVersion: 1\n")
    (record / "entry_points.txt").write_text("[torch.distributed.backends]\ntoyccl = toyccl:register\n")
    (tmp_path / "toyccl.py").write_text(
        "import torch.distributed as dist\n"
        "def register():\n"
        "    dist.Backend.register_backend('toyccl', dist.ProcessGroupGloo, devices=['cpu'])\n"
    )
    ended = children.run(
        """
        import sys, torch, torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        assert "toyccl" not in sys.modules  # other names load nothing
        groups = [dist.new_group(backend=name) for name in ("toyccl", "cpu:toyccl")]
        dist.all_reduce(torch.ones(1), group=groups[0])
        print("ok", [dist.get_backend(group) for group in groups])
        """,
        [tmp_path],
    ).expect_success()
    assert ended.out == "ok ['toyccl', 'cpu:toyccl']\n"


# --- where the store of rank 0 listens

#: Prints whether other addresses of this host than the plan's reach the store; uses it, also a second time.
_RANK = """
import os, socket
import torch.distributed as dist
for _ in range(2):
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    other = socket.socket()
    other.settimeout(60)
    print(other.connect_ex(("127.0.0.2", store.port)) == 0)
    other.close()
    dist.barrier()
    dist.destroy_process_group()
    del store
"""


@pytest.mark.sample("localhost-*")
@pytest.mark.parametrize(
    ("address", "listens", "reached"),
    [("127.0.0.1", "127.0.0.1", "False"), ("localhost", "localhost", "False"), ("127.0.0.1", "", "True")],
)
def test_rank_0s_store_listens_where_the_plan_says(
    children: Any, address: str, listens: str, reached: str
) -> None:
    variables = {"MASTER_ADDR": address, env.STORE_ADDRESS.name: listens, "RANK": "0", "WORLD_SIZE": "1"}
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))  # nobody else gets the port; torch binds it, as nobody listens
        variables["MASTER_PORT"] = str(held.getsockname()[1])
        assert children.run(_RANK, **variables).out.split() == [reached] * 2


def test_an_address_that_is_not_of_this_host_is_left_to_torch() -> None:
    assert (
        activate._listening_socket("192.0.2.1", 0) is None
    )  # an address for documentation, which nobody has
    with socket.create_server(("127.0.0.1", 0)) as used:
        assert activate._listening_socket("127.0.0.1", used.getsockname()[1]) is None


#: Starts a second store at another port than the one of torchrun's agent.
_SECOND_STORE = """
import datetime, os, socket, sys
import torch.distributed
rendezvous = sys.modules["torch.distributed.rendezvous"]  # the attribute is a function
if not hasattr(rendezvous, "_agent_store_serves"):  # torch 2.15
    rendezvous._agent_store_serves = lambda host, port: False
port, limit = int(os.environ["PORT"]), datetime.timedelta(seconds=20)
store = rendezvous._create_c10d_store("127.0.0.1", port, 0, 1, limit)
other = socket.socket()
other.settimeout(60)
print(other.connect_ex(("127.0.0.2", store.port)) == 0)
"""


def test_second_store_under_torchrun(children: Any) -> None:
    variables = {"TORCHELASTIC_USE_AGENT_STORE": "True", env.STORE_ADDRESS.name: "127.0.0.1"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        variables["PORT"] = str(held.getsockname()[1])
        assert children.run(_SECOND_STORE, **variables).out.split() == ["False"]


# --- a process whose ranks have talked through gloo ends without an abort


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


@pytest.mark.sample("deepspeed")
@pytest.mark.upstream
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_a_late_thread_of_gloo_does_not_abort_the_end(children: Any, first: str, late: str) -> None:
    for package in ("accel_cpu", "accel_ops"):
        if package in first:
            pytest.importorskip(package, reason=f"not run: package {package.replace('_', '-')}")
    done = children.run(ONE_RANK.format(first=first), LD_PRELOAD=late, DS_ACCELERATOR="cpu")
    assert "late\n" in done.err, "the fault was not planted"


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
