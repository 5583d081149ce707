# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The matrix: ZeRO stages, types, loss scaling, offload, accumulation, checkpoints, overlap, and the three Adams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

STEPS = 8
LEARNING_RATE = 5e-3
WEIGHT_DECAY = 0.01
CLIPPING = 1.0
TYPES = ("fp32", "bf16", "fp16")


#: DeepSpeed's pull request 8393.
_UNSCALED = "at stage 0 engine.backward() leaves the loss unscaled, and the optimizer divides by the scale"
_HALVED = "in the step after which the scale doubles, gradients are divided by the doubled one"


@dataclass(frozen=True)
class Scaling:
    """Loss scaling of float16.

    power:   the first scale is 2 to this power. Gradients of the first step overflow from 2**20 on.
    dynamic: halved when a step overflows, doubled after `window` further good ones.
    """

    power: int = 21
    dynamic: bool = True
    window: int = 1000

    def config(self) -> dict[str, Any]:
        """DeepSpeed's section `fp16`."""
        if not self.dynamic:
            return {"enabled": True, "loss_scale": 2**self.power}
        scale = {"initial_scale_power": self.power, "loss_scale_window": self.window}
        # Without hysteresis: else the first overflow leaves the scale as it is.
        return {"enabled": True, "loss_scale": 0, "hysteresis": 1, **scale}


@dataclass(frozen=True)
class Configuration:
    """One run of the engine.

    settings:   laid over the common DeepSpeed config.
    optimizer:  `torch` AdamW; `fused`, DeepSpeed's FusedAdam, whose op the accelerator builds; `host`, its CPU Adam.
    accumulate: micro-batches a step.
    resume:     half-way through, a new engine goes on from a checkpoint.
    moves:      half-way through, an engine on another number of ranks goes on from it.
    scaling:    of float16; fixed at 1 for the other types.
    fault:      why DeepSpeed trains it differently from plain PyTorch, on every accelerator (docs/upstream.md).
    quick:      part of the quick subset.
    """

    name: str
    dtype: str
    settings: dict[str, Any] = field(default_factory=dict)
    optimizer: str = "torch"
    accumulate: int = 1
    resume: bool = False
    moves: bool = False
    scaling: Scaling = Scaling()
    fault: str = ""
    quick: bool = False

    @property
    def stage(self) -> int:
        """The ZeRO stage."""
        return int(self.settings["zero_optimization"]["stage"])

    @property
    def same_arithmetic(self) -> bool:
        """True if the optimizer is PyTorch's own code on every accelerator."""
        return self.optimizer == "torch"

    @property
    def warms_up(self) -> bool:
        """Return whether DeepSpeed first takes a step on zero gradients, which counts for Adam (docs/upstream.md)."""
        return self.stage == 0 and self.dtype != "fp32"

    def deepspeed_config(self, ranks: int, batch: int) -> dict[str, Any]:
        """Return the whole DeepSpeed config. batch: rows that the ranks share."""
        adam = {"lr": LEARNING_RATE, "weight_decay": WEIGHT_DECAY, "adam_w_mode": True}
        return {
            "train_micro_batch_size_per_gpu": batch // ranks // self.accumulate,
            "gradient_accumulation_steps": self.accumulate,
            "gradient_clipping": CLIPPING,
            "optimizer": {"type": "AdamW", "params": {**adam, "torch_adam": self.optimizer == "torch"}},
            # Lets torch's own AdamW run on the host, where nothing has to be compiled for it.
            "zero_force_ds_cpu_optimizer": self.optimizer == "host",
            **({"bf16": {"enabled": True}} if self.dtype == "bf16" else {}),
            **({"fp16": self.scaling.config()} if self.dtype == "fp16" else {}),
            **self.settings,
        }


def _zero(stage: int, **more: Any) -> dict[str, Any]:
    return {"zero_optimization": {"stage": stage, **more}}


def _offload(stage: int, **more: Any) -> dict[str, Any]:
    return _zero(stage, offload_optimizer={"device": "cpu", "pin_memory": True}, **more)


_QUICK = {(0, "fp32"), (1, "fp16"), (2, "bf16"), (3, "fp32")}
_ONE = Scaling(0, dynamic=False)
_PINNED = {"device": "cpu", "pin_memory": True}

MATRIX = (
    *(
        Configuration(
            f"{dtype} stage {stage}", dtype, _zero(stage), quick=(stage, dtype) in _QUICK,
            fault=_UNSCALED if (stage, dtype) == (0, "fp16") else "",
        )
        for dtype in TYPES
        for stage in range(4)
    ),
    Configuration("fp16 stage 0 scale 1", "fp16", _zero(0), scaling=_ONE),
    *(Configuration(f"{dtype} stage 0 fused Adam", dtype, _zero(0), "fused", scaling=_ONE, quick=dtype == "fp32")
      for dtype in TYPES),
    *(Configuration(f"{dtype} stage 2 fused Adam", dtype, _zero(2), "fused") for dtype in TYPES),
    Configuration("fp16 stage 2 fixed scale", "fp16", _zero(2), scaling=Scaling(7, dynamic=False)),
    *(
        Configuration(
            f"fp16 stage {stage} growing scale", "fp16", _zero(stage), scaling=Scaling(20, window=2), fault=_HALVED
        )
        for stage in (1, 3)
    ),
    Configuration("fp32 stage 2 accumulation", "fp32", _zero(2), accumulate=2, quick=True),
    Configuration("bf16 stage 1 accumulation", "bf16", _zero(1), accumulate=2),
    Configuration("fp16 stage 3 accumulation", "fp16", _zero(3), accumulate=2),
    *(Configuration(f"fp32 stage {stage} offload", "fp32", _offload(stage)) for stage in (1, 2, 3)),
    Configuration("bf16 stage 3 offload", "bf16", _offload(3)),
    Configuration("fp16 stage 2 offload", "fp16", _offload(2)),
    Configuration("fp32 stage 3 parameter offload", "fp32", _offload(3, offload_param=_PINNED)),
    Configuration("fp32 stage 2 offload CPU Adam", "fp32", _offload(2), "host", quick=True),
    Configuration("bf16 stage 3 offload CPU Adam", "bf16", _offload(3), "host"),
    *(Configuration(f"fp32 stage {stage} resumed", "fp32", _zero(stage), resume=True, quick=stage == 3)
      for stage in range(4)),
    Configuration("bf16 stage 2 resumed", "bf16", _zero(2), resume=True),
    *(Configuration(f"fp16 stage {stage} resumed", "fp16", _zero(stage), resume=True) for stage in (1, 3)),
    *(Configuration(f"fp32 stage {stage} moved", "fp32", _zero(stage), moves=True) for stage in range(4)),
    Configuration("bf16 stage 1 moved", "bf16", _zero(1), moves=True),
    Configuration("fp32 stage 1 overlap", "fp32", _zero(1, overlap_comm=True)),
    Configuration("fp32 stage 2 overlap", "fp32", _zero(2, overlap_comm=True, contiguous_gradients=True), quick=True),
    Configuration("fp32 stage 3 overlap", "fp32", _zero(3, overlap_comm=True)),
    Configuration("bf16 stage 2 overlap", "bf16", _zero(2, overlap_comm=True, contiguous_gradients=True)),
)  # fmt: skip
