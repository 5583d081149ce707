# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Parameters of unusual shapes and layouts; losses of DeepSpeed and of plain torch."""

import contextlib
from typing import Any

import offload
import torch
from torch import nn

_CLIP = 0.5


class Model(nn.Module):
    """Parameters without dimensions, of one element, without elements, and whose memory is not contiguous."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 4, 2)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.one = nn.Parameter(torch.full((1,), 0.3))
        self.column = nn.Parameter(torch.arange(1.0, 6.0)[None].t())
        self.transposed = nn.Parameter(torch.linspace(-1, 1, 20).view(4, 5).t())
        self.none = nn.Parameter(torch.empty(0))
        self.frozen = nn.Parameter(torch.tensor(1.5), requires_grad=False)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        values = self.convolution(given).mean((2, 3)) * self.scale + self.one
        mixed = (values @ self.transposed.t() * self.column.t()).tanh() * self.frozen
        return (mixed + self.none.sum()).float().square().mean()


def _change(module: nn.Module) -> None:
    with torch.no_grad():
        for param in module.parameters(recurse=False):
            param.mul_(1.01).add_(0.01)


def model() -> Model:
    """Under zero.Init, too, a function is applied to all parameters."""
    torch.manual_seed(0)
    made = Model()
    made.apply(_change)
    return made


def batches() -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(1)
    return [torch.randn(2, 3, 4, 4, generator=source) for _ in range(4)]


def loss(made: Any, batch: torch.Tensor) -> torch.Tensor:
    return made(batch)


def train(stage: int, bf16: bool) -> list[float]:
    """The losses of DeepSpeed; ZeRO 3 with zero.Init, the others with a channels_last model."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_set_full_fp32_param

    config = offload.sgd(stage, 0.1, bf16=bf16, gradient_clipping=_CLIP)
    config["zero_optimization"]["stage3_param_persistence_threshold"] = 0
    with deepspeed.zero.Init(config_dict_or_path=config) if stage == 3 else contextlib.nullcontext():
        made = model()
    if stage == 3:
        with deepspeed.zero.GatheredParameters(list(made.parameters()), modifier_rank=0):
            made.scale.data += 0.0
            assert made.scale.shape == ()
    else:
        made.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    trained = [param for param in made.parameters() if param.requires_grad]
    engine = deepspeed.initialize(model=made, model_parameters=trained, config=config)[0]
    kind = torch.bfloat16 if bf16 else torch.float32
    losses = offload.engine_losses(engine, [batch.to(kind) for batch in batches()], loss)
    if stage == 3:
        for param in (made.scale, made.transposed, made.convolution.bias):
            value = torch.full(param.ds_shape, 0.125)
            safe_set_full_fp32_param(param, value)
            assert torch.equal(safe_get_full_fp32_param(param).cpu(), value)
        _edit(made)
    return losses


def _edit(made: Model) -> None:
    """An edit of gathered parameters changes the edited elements of the float32 parameters alone."""
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_set_full_fp32_param

    params = [made.scale, made.transposed, made.convolution.bias, made.frozen]
    values = [torch.full(param.ds_shape, 1 / 3) for param in params]
    for param, value in zip(params[:3], values, strict=False):
        safe_set_full_fp32_param(param, value)
        param.ds_tensor.fill_(1 / 3)
    with deepspeed.zero.GatheredParameters(params, modifier_rank=0):
        if deepspeed.comm.get_rank() == 0:
            for param in params:
                param.data.view(-1)[-1] = 2.0
    for param, value in zip(params[:3], values, strict=False):
        value.view(-1)[-1] = 2.0
        assert torch.equal(safe_get_full_fp32_param(param).cpu(), value)


def main(store: str) -> None:
    """Print [losses of plain torch, {stage and type: losses}]."""
    offload.init(store)
    kinds = {f"ZeRO {stage}{' bf16' * bf16}": (stage, bf16) for stage in range(4) for bf16 in (False, True)}
    plain = offload.torch_losses(model(), batches(), loss, 0.1, _CLIP)
    offload.report([plain, {name: train(*kind) for name, kind in kinds.items()}])


class Expert(nn.Module):
    """An expert with a parameter without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(8, 8), nn.Parameter(torch.tensor(0.5))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.linear(given) * self.scale


def experts(store: str, ranks: int) -> None:
    """Print the losses of a mixture of experts by ZeRO stage: float32, then bf16. ranks: that share the experts."""
    import deepspeed
    from deepspeed.moe.layer import MoE
    from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

    offload.init(store)
    found: dict[str, Any] = {}
    for stage in range(3):
        for bf16 in (False, True):
            torch.manual_seed(0)
            layer = MoE(8, Expert(), num_experts=12, ep_size=ranks, k=1, min_capacity=32, use_rts=False)
            params: Any = {"params": list(layer.parameters()), "name": "all"}
            engine = deepspeed.initialize(
                model=layer,
                model_parameters=split_params_into_different_moe_groups_for_optimizer(params),
                # Not Adam, of which ZeRO 0 in bf16 counts a step too many.
                config=offload.sgd(stage, 1.0, rows=32, bf16=bf16),
            )[0]
            rows = torch.linspace(-1, 1, 256).view(32, 8).to(torch.bfloat16 if bf16 else torch.float32)
            found[f"ZeRO {stage}{' bf16' * bf16}"] = offload.engine_losses(
                engine, [rows] * 3, lambda engine, rows: engine(rows)[0].float().square().mean()
            )
    offload.report(found)
