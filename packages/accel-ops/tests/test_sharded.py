# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Parameters that are DTensors, as of FSDP2, step as torch's own optimizers step them."""

from pathlib import Path

import pytest
import torch

from shared.children import ranks

_TRAIN = """
import sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor, init_device_mesh
from accel_core.vendor import torch_threads
from accel_ops import optim
from accel_ops.errors import InvalidTensors
torch_threads.finish_at_exit()
rank, world, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4]
dist.init_process_group("gloo", rank=rank, world_size=world, store=dist.FileStore(path, world))
mesh = init_device_mesh("cpu", (world,))

def trained(kind, **options):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 2))  # 3 rows on 2 ranks: uneven
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    assert all(isinstance(p, DTensor) for p in model.parameters())
    optimizer = kind(model.parameters(), lr=0.1, **options)
    for step in range(4):
        model(torch.full((2, 5), rank + step + 1.0)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.full_tensor() for p in model.parameters()], optimizer

for ours, theirs, options in (
    (optim.AdamW, torch.optim.AdamW, {"fused": True}), (optim.Adagrad, torch.optim.Adagrad, {})):
    mine, optimizer = trained(ours)
    state = optimizer.state[optimizer.param_groups[0]["params"][0]]
    assert all(isinstance(v, DTensor) for k, v in state.items() if k != "step"), state
    for one, other in zip(mine, trained(theirs, **options)[0]):
        torch.testing.assert_close(one, other)
trained(optim.Lion)

# A gradient that is still a sum of parts is summed first.
param = torch.nn.Parameter(distribute_tensor(torch.ones(4), mesh, [Shard(0)]))
param.grad = distribute_tensor(torch.ones(4), mesh, [Replicate()])
optim.Lion([param], lr=0.5).step()
assert torch.equal(param.full_tensor(), torch.full((4,), 0.5)), param.full_tensor()
"""
_REFUSED = """
from torch.distributed.tensor import Partial
param = torch.nn.Parameter(DTensor.from_local(torch.ones(4), mesh, [Partial()]))
param.grad = param.detach().clone()
try:
    optim.AdamW([param]).step()
except InvalidTensors as error:
    assert "partial sum" in str(error)
else:
    raise AssertionError("not refused")
"""


@pytest.mark.skipif(not torch.distributed.is_available(), reason="not run: torch without distributed")
@pytest.mark.parametrize("world", [1, 2])
def test_sharded_parameters_step_as_with_torch(world: int, tmp_path: Path) -> None:
    ranks(_TRAIN + _REFUSED, world, tmp_path)
