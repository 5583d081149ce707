# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`deepspeed.init_distributed`: a missing device and a wrong count of ranks are said; all else is DeepSpeed's."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from accel_core.errors import NoBackendForCollectives, NoDeviceForCollectives
from accel_core.op_builder import NotImplementedBuilder
from accel_core.upstream import distributed


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
    with pytest.raises(NoDeviceForCollectives, match="'toy'") as raised:
        distributed.explained(_raising, lambda: Accelerator(0))()
    assert "ToyCCL is only supported with toys" in str(raised.value)
    assert "DS_ACCELERATOR=cpu" in str(raised.value)
    assert isinstance(raised.value.__cause__, ValueError)
    assert isinstance(raised.value, ValueError)


@pytest.mark.parametrize("devices", [1, -1], ids=["a device", "a count that fails"])
def test_any_other_failure_stays_as_it_is(devices: int) -> None:
    with pytest.raises(ValueError, match=r"^ToyCCL is only supported with toys$"):
        distributed.explained(_raising, lambda: Accelerator(devices))()


def test_arguments_are_passed_on_and_the_signature_is_kept() -> None:
    seen: list[Any] = []

    def stock(dist_backend: str | None = None, *, timeout: int = 3) -> None:
        seen.append((dist_backend, timeout))

    wrapped = distributed.explained(stock, lambda: Accelerator(1))
    wrapped("gloo", timeout=5)
    assert seen == [("gloo", 5)]
    assert inspect.signature(wrapped) == inspect.signature(stock)


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
    assert raised.value.found.startswith(says)
    assert raised.value.do.startswith("leave dist_backend out, which gives 'toyccl'")


def test_a_tensor_of_any_shape_is_gathered_into_a_vector() -> None:
    given: list[Any] = []
    backend = type(
        "Backend",
        (),
        {"get_all_gather_function": classmethod(lambda _: lambda *tensors: given.append(tensors))},
    )
    distributed.gather_flat(backend)
    gather: Any = backend
    gather = gather.get_all_gather_function()
    vector, matrix = torch.empty(4), torch.ones(2, 1)
    gather(vector, matrix)
    gather(torch.empty(4, 1), matrix)
    assert [tuple(tensors[1].shape) for tensors in given] == [(2,), (2, 1)]
    assert given[0][1].data_ptr() == matrix.data_ptr()


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
def test_deepspeeds_own_function_is_wrapped_wherever_it_is_bound(
    children: Any, toy: Path, first: str
) -> None:
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
    ended = children.run(snippet, [toy], DS_ACCELERATOR="cpu" if late else "toy", **autoload)
    assert ended.report == ["deepspeed.comm.comm"] * 3


@pytest.mark.upstream
def test_a_job_on_a_machine_without_the_device_ends_with_the_explanation(children: Any, toy: Path) -> None:
    snippet = """
        import deepspeed, json
        try:
            store = "file:///nonexistent/store"
            deepspeed.init_distributed(dist_backend="nccl", init_method=store, rank=0, world_size=1)
        except ValueError as error:
            print(json.dumps(type(error).__name__))
    """
    ended = children.run(snippet, [toy], DS_ACCELERATOR="toy", TOY_DEVICES="0")
    assert ended.report == "NoDeviceForCollectives"


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
