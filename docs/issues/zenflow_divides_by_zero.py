# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZenFlow with `"update_interval": "auto"` divides each loss by zero."""

import types

from _engine import engine
from deepspeed.ops.adam import cpu_adam

# Nothing is compiled: no step is taken.
op = types.SimpleNamespace(create_adam=lambda *_: None, destroy_adam=lambda *_: None)
cpu_adam.CPUAdamBuilder.load = lambda *_: op

trained = engine(
    None,
    optimizer={"type": "AdamW", "params": {"lr": 1e-3}},
    zero_optimization={
        "stage": 2,
        "offload_optimizer": {"device": "cpu"},
        "zenflow": {"topk_ratio": 0.5, "update_interval": "auto", "overlap_step": False},
    },
)
print("the loss is divided by", trained.gradient_accumulation_steps())
