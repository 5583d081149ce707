# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Third-party proof: a package that core has never heard of installs, is detected, wins and serves its op."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

_EXPLAINED = """
import json, accel_core
said = accel_core.explain()
print(json.dumps({"chosen": said.chosen, "error": said.error,
                  "states": {f.label: [f.state.value, f.devices, f.reason] for f in said.candidates}}))
"""


def test_the_installed_package_is_detected_and_wins_by_priority(children: Any, toy: Path) -> None:
    said = children.run(_EXPLAINED, [toy]).report
    assert said["chosen"] == "toy"
    assert said["states"]["toy"] == ["chosen", 2, "the toy driver counts 2 devices"]


_ADAM = """
    import torch
    gradient, parameter = torch.full((3,), 0.5), torch.ones(3)
    lists = [[gradient], [parameter], [torch.zeros(3)], [torch.zeros(3)]]
    op.multi_tensor_adam(2048, torch.zeros(1, dtype=torch.int), lists, 0.1, 0.9, 0.999, 1e-8, 1, 1, 1, 0.0)
    # The first step of Adam is the learning rate, against the sign of the gradient.
    assert torch.allclose(parameter, torch.full((3,), 0.9)), parameter
"""


@pytest.mark.upstream
def test_it_serves_its_op_through_deepspeed(children: Any, toy: Path) -> None:
    children.run(
        f"""
    from deepspeed.ops.op_builder import FusedAdamBuilder
    op = FusedAdamBuilder().load()
    assert op.__name__ == "accel_toy.ops.fused_adam"
    {_ADAM}
        """,
        [toy],
    )
    assert children.compiled() == []


@pytest.mark.upstream
def test_deepspeed_trains_on_it_with_its_op(children: Any, toy: Path) -> None:
    losses = children.run(
        """
        import json, deepspeed, torch
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        config = {"train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"lr": 0.02}},
                  "zero_optimization": {"stage": 1}}
        deepspeed.init_distributed(dist_backend="gloo", auto_mpi_discovery=False, rank=0, world_size=1,
                                   init_method="tcp://127.0.0.1:0")
        engine, optimizer, _, _ = deepspeed.initialize(model=model, config=config)
        inner = getattr(optimizer, "optimizer", optimizer)
        assert type(inner).__name__ == "FusedAdam"
        assert inner.multi_tensor_adam.__module__ == "accel_toy.ops.fused_adam"
        batch, losses = torch.randn(4, 8), []
        for _ in range(8):
            loss = engine(batch).square().mean()
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
        print(json.dumps(losses))
        """,
        [toy],
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="1",
    ).report
    assert losses[-1] < losses[0] / 2
    assert children.compiled() == []


def test_a_missing_op_says_why_with_the_traits_reason(children: Any, toy: Path) -> None:
    failed = children.attempt(
        "import accel_core; accel_core.get_accelerator().create_op_builder('CPUAdamBuilder').load()", [toy]
    )
    assert failed.status == 1
    assert "[ACC-401] CPUAdamBuilder cannot be loaded on cpu" in failed.err
    assert "not implemented: one optimizer is enough for a toy" in failed.err
