# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A job: its ranks with a launcher and without, its store, the devices of a mask, its end, what is said of faults."""

import socket
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

from ..site_packages import SitePackages


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


def test_failure_without_device_is_explained() -> None:
    with pytest.raises(NoBackendForCollectives, match="'toy'") as raised:
        distributed.explained(_raising, lambda: Accelerator(0))()
    assert "ToyCCL is only supported with toys" in str(raised.value)
    assert "DS_ACCELERATOR=cpu" in str(raised.value)
    assert isinstance(raised.value.__cause__, ValueError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("devices", [1, -1], ids=["a device", "a count that fails"])
def test_other_failure_is_unchanged(devices: int) -> None:
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
def test_missing_backend_names_remedy(asked: str, says: str) -> None:
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
def test_warning_if_accelerate_counts_fewer_ranks(
    counted: int | None, warned: bool, monkeypatch: Any, caplog: Any
) -> None:
    shared = {} if counted is None else {"num_processes": counted}
    state = SimpleNamespace(PartialState=SimpleNamespace(_shared_state=shared))
    monkeypatch.setitem(sys.modules, "accelerate.state", state)
    distributed.explained(lambda: None, lambda: Accelerator(1))()
    assert bool(caplog.records) == warned
    assert not warned or "PartialState(backend='fake')" in caplog.text
    assert not warned or "InitProcessGroupKwargs(backend='fake')" in caplog.text


@pytest.mark.upstream
@pytest.mark.parametrize("first", ["accel_core", "deepspeed"])
def test_init_distributed_is_wrapped_everywhere(toy: Any, first: str) -> None:
    snippet = f"""
        import {first}
        import accel_core, deepspeed, json
        import deepspeed.comm as dist
        from deepspeed.comm import comm
        functions = [deepspeed.init_distributed, dist.init_distributed, comm.init_distributed]
        print(json.dumps([f.__wrapped__.__module__ for f in functions]))
    """
    variables = {"DS_ACCELERATOR": "toy"}
    if first == "deepspeed":  # torch's autoload would import accel_core first
        variables = {"DS_ACCELERATOR": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    assert toy.run(snippet, **variables).report == ["deepspeed.comm.comm"] * 3


def test_backend_is_registered_at_first_use(children: Any, tmp_path: Path) -> None:
    points = {"torch.distributed.backends": {"toyccl": "toyccl:register"}}
    site = SitePackages(tmp_path)
    site.distribution("toyccl", entry_points=points)
    site.module(
        "toyccl.py",
        """
        import torch.distributed as dist
        def register():
            dist.Backend.register_backend('toyccl', dist.ProcessGroupGloo, devices=['cpu'])
        """,
    )
    ended = children.on(tmp_path).run(
        """
        import sys, torch, torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        assert "toyccl" not in sys.modules  # other names load nothing
        groups = [dist.new_group(backend=name) for name in ("toyccl", "cpu:toyccl")]
        dist.all_reduce(torch.ones(1), group=groups[0])
        print("ok", [dist.get_backend(group) for group in groups])
        """
    )
    assert ended.out == "ok ['toyccl', 'cpu:toyccl']\n"


# --- where the store of rank 0 listens


@pytest.fixture
def port() -> Iterator[str]:
    """A port that no other program gets. torch can bind it, as nobody listens."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("", 0))
        yield str(held.getsockname()[1])


#: Prints if another address of this host than the plan's reaches the store.
_CONNECT = """
import os, socket, sys
import torch.distributed as dist

def connect(store):
    other = socket.socket()
    other.settimeout(60)
    print(other.connect_ex(("127.0.0.2", store.port)) == 0)
    other.close()
"""
#: Uses the store, also a second time.
_RANK = """
for _ in range(2):
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    connect(store)
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
    children: Any, port: str, address: str, listens: str, reached: str
) -> None:
    rank = {"MASTER_ADDR": address, "MASTER_PORT": port, "RANK": "0", "WORLD_SIZE": "1"}
    ended = children.run(_CONNECT + _RANK, **{env.STORE_ADDRESS.name: listens}, **rank)
    assert ended.out.split() == [reached] * 2


def test_address_of_another_host_is_left_to_torch() -> None:
    # An address for documentation, which nobody has.
    assert activate._listening_socket("192.0.2.1", 0) is None
    with socket.create_server(("127.0.0.1", 0)) as used:
        assert activate._listening_socket("127.0.0.1", used.getsockname()[1]) is None


#: Starts a second store at another port than the one of torchrun's agent.
_SECOND_STORE = """
import datetime
rendezvous = sys.modules["torch.distributed.rendezvous"]  # the attribute is a function
if not hasattr(rendezvous, "_agent_store_serves"):  # torch 2.15
    rendezvous._agent_store_serves = lambda host, port: False
port, limit = int(os.environ["PORT"]), datetime.timedelta(seconds=20)
connect(rendezvous._create_c10d_store("127.0.0.1", port, 0, 1, limit))
"""


def test_second_store_under_torchrun(children: Any, port: str) -> None:
    variables = {"TORCHELASTIC_USE_AGENT_STORE": "True", env.STORE_ADDRESS.name: "127.0.0.1"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "PORT": port}
    assert children.run(_CONNECT + _SECOND_STORE, **variables).out.split() == ["False"]


# --- a process whose ranks have talked through gloo ends without an abort

FIRST = {
    "deepspeed": "import torch, deepspeed",
    "register_backend": "import torch, accel_cpu; accel_cpu.register_backend()",
}


@pytest.mark.upstream
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_threads_of_torch_end_last(children: Any, first: str) -> None:
    if "accel_cpu" in first:
        pytest.importorskip("accel_cpu", reason="not run: package accel-cpu")
    ended = children.run(
        f"""
        import atexit
        from accel_core.vendor import torch_threads
        torch_threads.wait_until_idle = lambda: print("threads of torch")
        {first}
        atexit.register(print, "program")
        """,
        DS_ACCELERATOR="cpu",
    )
    assert ended.out == "program\nthreads of torch\n"


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


@pytest.mark.parametrize("name", ["pt_autograd_0", "pt_gloo_runloop"])
def test_busy_thread_is_waited_for(name: str) -> None:
    def compute(ends: threading.Event) -> None:
        while not ends.is_set():
            sum(range(1000))

    with running(name, compute):
        assert not torch_threads.wait_until_idle(limit=0.1)
    assert torch_threads.wait_until_idle()


def test_sleeping_thread_is_not_waited_for() -> None:
    with running("pt_gloo_runloop", threading.Event.wait):
        assert torch_threads.wait_until_idle(limit=60)
