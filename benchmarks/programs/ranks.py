# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs of two processes: torch's own parallelism, and DeepSpeed's."""

import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from benchmarks.programs import Programs

PROGRAMS = Programs()
STEPS = 3
WIDTH = 16


class _Block(nn.Module):
    """A feed-forward block whose two layers tensor parallelism shards."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(_Block(), _Block(), nn.Linear(WIDTH, 4))


def _batch(device: str, part: int) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(10 + part)
    return torch.randn(8, WIDTH, generator=source).to(device), torch.randn(8, 4, generator=source).to(device)


def _mesh(device: str) -> Any:
    return dist.device_mesh.init_device_mesh(device, (dist.get_world_size(),))


def _fit(model: Any, device: str, part: int, steps: int = STEPS) -> list[float]:
    # A model of which a part is sharded has two kinds of parameters: torch's foreach operators take one.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
    x, target = _batch(device, part)
    losses = []
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.item()))
    return losses


@PROGRAMS("DDP")
def ddp(device: str) -> list[float]:
    """Train replicas that average their gradients."""
    model = nn.parallel.DistributedDataParallel(_model().to(device))
    return _fit(model, device, dist.get_rank())


@PROGRAMS("FSDP2")
def fsdp2(device: str) -> list[float]:
    """Train with sharded parameters."""
    return _fit(_sharded(device), device, dist.get_rank())


def _sharded(device: str) -> nn.Sequential:
    from torch.distributed.fsdp import fully_shard

    model, mesh = _model().to(device), _mesh(device)
    for part in (*model, model):
        # Collectives of mlu and hpu have no average, which is FSDP2's default.
        fully_shard(part, mesh=mesh).set_force_sum_reduction_for_comms(enable=device in ("mlu", "hpu"))
    return model


@PROGRAMS("init_device_mesh and DTensor")
def dtensor(device: str) -> list[float]:
    """Shard a matrix, multiply it, change its placement, and read all of it."""
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    mesh = _mesh(device)
    assert mesh.device_type == device
    whole = torch.arange(16.0, device=device).reshape(4, 4)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    assert rows.to_local().shape == (4 // dist.get_world_size(), 4)
    product = rows @ distribute_tensor(whole.T.contiguous(), mesh, [Replicate()])
    assert isinstance(product, DTensor)
    columns = product.redistribute(mesh, [Shard(1)])
    assert torch.equal(columns.full_tensor(), whole @ whole.T)
    return [float(columns.full_tensor().sum().item()), float(rows.sum().full_tensor().item())]


@PROGRAMS("tensor parallel")
def tensor_parallel(device: str) -> list[float]:
    """Train with each block's layers split over the ranks."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    model = _model().to(device)
    plan = {f"{block}.up": ColwiseParallel() for block in (0, 1)}
    plan |= {f"{block}.down": RowwiseParallel() for block in (0, 1)}  # type: ignore[dict-item]
    parallelize_module(model, _mesh(device), plan)  # type: ignore[arg-type]
    return _fit(model, device, 0)


@PROGRAMS("distributed checkpoint")
def checkpoint(device: str) -> list[float]:
    """Save a sharded model by torch.distributed.checkpoint, load it into another one, and compare."""
    from torch.distributed import checkpoint as dcp

    model = _sharded(device)
    losses = _fit(model, device, dist.get_rank(), 1)
    place = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(place, 0)
    dcp.save({"model": model.state_dict()}, checkpoint_id=place[0])
    other = _sharded(device)
    state = {"model": other.state_dict()}
    dcp.load(state, checkpoint_id=place[0])
    other.load_state_dict(state["model"])
    x, target = _batch(device, dist.get_rank())
    after = [nn.functional.mse_loss(each(x), target).item() for each in (model, other)]
    assert after[0] == after[1], after
    return [*losses, *after]


def _configuration(**more: Any) -> dict[str, Any]:
    adam = {"type": "AdamW", "params": {"lr": 1e-2}}
    return {"train_micro_batch_size_per_gpu": 4, "optimizer": adam, "steps_per_print": 10**9, **more}


@PROGRAMS("DeepSpeed Ulysses")
def ulysses(device: str) -> list[float]:
    """Train attention whose sequence is split over the ranks."""
    import deepspeed
    from deepspeed.sequence.layer import DistributedAttention

    group: Any = dist.new_group(list(range(dist.get_world_size())))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(WIDTH, 3 * WIDTH)
            self.attention = DistributedAttention(_attend, group, scatter_idx=2, gather_idx=1)
            self.last = nn.Linear(WIDTH, 4)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            parts = self.project(x).view(*x.shape[:2], 3, 4, WIDTH // 4).unbind(2)
            mixed = self.attention(*(part.contiguous() for part in parts), 0)
            return nn.functional.mse_loss(self.last(mixed.flatten(2)), target)

    torch.manual_seed(0)
    engine, *_ = deepspeed.initialize(model=Model(), config=_configuration())
    x, target = _batch(device, dist.get_rank())
    return _steps(engine, x.view(2, 4, WIDTH), target.view(2, 4, 4))


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_: Any) -> torch.Tensor:
    heads_first = [part.transpose(1, 2) for part in (q, k, v)]
    return (
        nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True).transpose(1, 2).contiguous()
    )


@PROGRAMS("DeepSpeed MoE")
def moe(device: str) -> list[float]:
    """Train experts that are spread over the ranks."""
    import deepspeed
    from deepspeed.moe.layer import MoE
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(WIDTH, WIDTH)
            self.experts = MoE(WIDTH, _Block(), num_experts=4, ep_size=2, k=1, min_capacity=4, use_rts=False)
            self.last = nn.Linear(WIDTH, 4)

        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            mixed, auxiliary, _ = self.experts(self.first(x))
            return nn.functional.mse_loss(self.last(mixed), target) + 0.01 * auxiliary

    torch.manual_seed(0)
    model = Model()
    parameters: Any = {"params": list(model.parameters()), "name": "all"}
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=split_params_into_different_moe_groups_for_optimizer(parameters),
        config=_configuration(),
    )
    return _steps(engine, *_batch(device, dist.get_rank()))


# The last one: DeepSpeed keeps its process groups for what comes after.
@PROGRAMS("DeepSpeed pipeline")
def pipeline(device: str) -> list[float]:
    """Train two stages with two micro batches in flight."""
    import deepspeed
    from deepspeed.pipe import PipelineModule

    layers = [nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 4)]
    torch.manual_seed(0)
    for layer in layers:
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
    module = PipelineModule(layers=layers, num_stages=2, loss_fn=nn.MSELoss(), partition_method="uniform")
    engine, *_ = deepspeed.initialize(
        model=module, config=_configuration(gradient_accumulation_steps=2, train_batch_size=8)
    )
    x, target = _batch("cpu", 0)
    return [
        float(engine.train_batch(iter([(x[:4], target[:4]), (x[4:], target[4:])])).item())
        for _ in range(STEPS)
    ]


def _steps(engine: Any, *batch: torch.Tensor) -> list[float]:
    losses = []
    for _ in range(STEPS):
        loss = engine(*batch)
        engine.backward(loss)
        engine.step()
        losses.append(float(loss.item()))
    return losses
