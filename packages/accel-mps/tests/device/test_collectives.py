# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""gloo on mps tensors, alone: what DeepSpeed does with one rank..

Two ranks are checked by the conformance suite.
"""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist

from accel_core.vendor import host_collectives
from accel_mps.accelerator import MPS_Accelerator


@pytest.fixture(scope="module", autouse=True)
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    MPS_Accelerator()
    meeting = tmp_path_factory.mktemp("group") / "meeting"
    dist.init_process_group("gloo", init_method=meeting.as_uri(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def ones() -> torch.Tensor:
    return torch.ones(4, device="mps")


def test_kernels_are_given_to_torch_once():
    before = host_collectives.register("mps")
    MPS_Accelerator()
    assert host_collectives.register("mps") is before is not None


@pytest.mark.parametrize("asynchronous", [False, True])
def test_results_are_on_the_device(asynchronous):
    tensor = ones()
    pending = dist.all_reduce(tensor, async_op=asynchronous)
    if asynchronous:
        pending.wait()
        assert pending.is_completed()
    dist.broadcast(tensor, src=0)
    assert tensor.device.type == "mps"
    assert tensor.cpu().tolist() == [1.0] * 4
    assert not host_collectives._pending


def test_distributed_data_parallel_averages_gradients():
    model = torch.nn.Linear(4, 1, bias=False).to("mps")
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    parallel(torch.full((2, 4), 3.0, device="mps")).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.cpu().tolist() == [[6.0] * 4]
    assert not host_collectives._pending
