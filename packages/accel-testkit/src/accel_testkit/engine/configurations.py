# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The matrix: ZeRO stages, types, optimizer offload, gradient accumulation, checkpoints, overlap, fused Adam."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

STEPS = 8
LEARNING_RATE = 5e-3
CLIPPING = 1.0
#: Static scale of float16 losses: no step is skipped, so that each has its reference.
SCALE = 128


@dataclass(frozen=True)
class Configuration:
    """One run of the engine.

    settings:   laid over the common DeepSpeed config.
    accumulate: micro-batches a step.
    resume:     half-way through, a new engine goes on from a checkpoint.
    fused:      DeepSpeed's FusedAdam, whose op the accelerator builds, rather than torch's AdamW.
    quick:      part of the quick subset.
    """

    name: str
    dtype: str
    settings: dict[str, Any] = field(default_factory=dict)
    accumulate: int = 1
    resume: bool = False
    fused: bool = False
    quick: bool = False

    def deepspeed_config(self, ranks: int, batch: int) -> dict[str, Any]:
        """The whole DeepSpeed config for so many ranks that share a batch of so many rows."""
        adam = {"lr": LEARNING_RATE, "weight_decay": 0.01, "adam_w_mode": True, "torch_adam": not self.fused}
        return {
            "train_micro_batch_size_per_gpu": batch // ranks // self.accumulate,
            "gradient_accumulation_steps": self.accumulate,
            "gradient_clipping": CLIPPING,
            "optimizer": {"type": "AdamW", "params": adam},
            # Offload with torch's own Adam on the host: nothing is compiled.
            "zero_force_ds_cpu_optimizer": False,
            **_DTYPES[self.dtype],
            **self.settings,
        }


_DTYPES: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True, "loss_scale": SCALE}},
}


def _zero(stage: int, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **more}}


def _offload(stage: int) -> dict[str, Any]:
    return _zero(stage, offload_optimizer={"device": "cpu", "pin_memory": True})


_QUICK = {(0, "fp32"), (1, "fp16"), (2, "bf16"), (3, "fp32")}

MATRIX = (
    # DeepSpeed trains half types at stage 0 with its fused optimizer wrapper only; with torch's AdamW it takes
    # its unfused one, which differs from plain AdamW on every accelerator (docs/upstream.md).
    *(
        Configuration(
            f"{dtype} stage {stage}",
            dtype,
            _zero(stage),
            fused=stage == 0 and dtype != "fp32",
            quick=(stage, dtype) in _QUICK,
        )
        for dtype in _DTYPES
        for stage in range(4)
    ),
    Configuration("fp32 stage 2 accumulation", "fp32", _zero(2), accumulate=2, quick=True),
    Configuration("bf16 stage 1 accumulation", "bf16", _zero(1), accumulate=2),
    *(Configuration(f"fp32 stage {stage} offload", "fp32", _offload(stage), quick=stage == 2) for stage in (1, 2, 3)),
    Configuration("bf16 stage 3 offload", "bf16", _offload(3)),
    Configuration("fp32 stage 0 resumed", "fp32", _zero(0), resume=True),
    Configuration("fp32 stage 2 resumed", "fp32", _zero(2), resume=True),
    Configuration("fp32 stage 3 resumed", "fp32", _zero(3), resume=True, quick=True),
    Configuration("bf16 stage 2 resumed", "bf16", _zero(2), resume=True),
    Configuration("fp32 stage 1 overlap", "fp32", _zero(1, overlap_comm=True)),
    Configuration("fp32 stage 2 overlap", "fp32", _zero(2, overlap_comm=True, contiguous_gradients=True), quick=True),
    Configuration("fp32 stage 3 overlap", "fp32", _zero(3, overlap_comm=True)),
    Configuration("fp32 stage 0 fused Adam", "fp32", _zero(0), fused=True, quick=True),
    Configuration("fp32 stage 2 fused Adam", "fp32", _zero(2), fused=True),
    Configuration("bf16 stage 2 fused Adam", "bf16", _zero(2), fused=True),
)  # fmt: skip


def chosen(quick: bool) -> list[Configuration]:
    """The whole matrix, or its quick subset."""
    return [configuration for configuration in MATRIX if configuration.quick or not quick]
