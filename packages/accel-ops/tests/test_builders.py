# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Stock DeepSpeed's optimizers run unchanged on the host builders."""

import inspect
import warnings
from typing import Any

import pytest
import torch

from accel_ops import library
from accel_ops.library import HostBuilder
from accel_ops.op_builder import (
    CPUAdagradBuilder,
    CPUAdamBuilder,
    CPULionBuilder,
    FusedAdamBuilder,
    PinMemoryBuilder,
    UtilsBuilder,
)

BUILDERS = [
    CPUAdagradBuilder, CPUAdamBuilder, CPULionBuilder, PinMemoryBuilder, UtilsBuilder, FusedAdamBuilder
]  # fmt: skip


@pytest.mark.parametrize("builder", BUILDERS)
def test_a_builder_works_without_a_compiler_and_never_raises(builder: Any, without_library: None) -> None:
    assert builder().is_compatible()
    assert builder().reason
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert builder().load() is not None
    if issubclass(builder, HostBuilder):
        assert builder().reason == library.load().reason


@pytest.fixture
def on_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's optimizer uses this builder, whatever accelerator is current."""
    from deepspeed.ops.adam import cpu_adam

    monkeypatch.setattr(cpu_adam, "CPUAdamBuilder", CPUAdamBuilder)


def train(optimizer: Any, params: list[torch.nn.Parameter]) -> None:
    torch.manual_seed(1)
    for _ in range(10):
        for param in params:
            param.grad = torch.randn(param.shape).to(param.dtype)
        optimizer.step()


def parameters(dtype: torch.dtype) -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in ((33, 5), (7,))]


@pytest.mark.usefixtures("on_host", "with_and_without_library")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("wide", [True, False])
def test_deepspeed_cpu_adam_takes_half_parameters_and_states(dtype: torch.dtype, wide: bool) -> None:
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    mine, exact = parameters(dtype), [torch.nn.Parameter(p.detach().float()) for p in parameters(dtype)]
    optimizer = DeepSpeedCPUAdam(mine, lr=1e-2, fp32_optimizer_states=wide, eps=1e-4)
    train(optimizer, mine)
    states = optimizer.state[mine[0]]
    assert states["exp_avg"].dtype == (torch.float32 if wide else dtype)
    train(torch.optim.AdamW(exact, lr=1e-2, weight_decay=0, eps=1e-4), exact)
    for one, other in zip(mine, exact, strict=True):
        assert (one.float() - other).abs().max() < 0.1


def test_the_functions_have_upstream_s_parameters() -> None:
    """Names and order are those of DeepSpeed's C++."""
    op = CPUAdamBuilder().load()
    assert list(inspect.signature(op.adam_update).parameters)[:12] == [
        "optimizer_id", "step", "lr", "beta1", "beta2", "epsilon", "weight_decay", "bias_correction",
        "params", "grads", "exp_avg", "exp_avg_sq",
    ]  # fmt: skip
    assert list(inspect.signature(op.create_adam).parameters) == [
        "optimizer_id", "alpha", "betta1", "betta2", "eps", "weight_decay", "adamw_mode", "should_log",
    ]  # fmt: skip
