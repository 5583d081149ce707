# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZenFlow accepts an optimizer that it cannot use, and fails at its first step."""

import types

from _engine import engine, step
from deepspeed.ops.adagrad import cpu_adagrad

# Nothing is compiled: the step fails before it computes.
op = types.SimpleNamespace(create_adagrad=lambda *_: None, destroy_adagrad=lambda *_: None)
cpu_adagrad.CPUAdagradBuilder.load = lambda *_: op
trained = engine(
    None,
    optimizer={"type": "Adagrad", "params": {"lr": 1e-3}},
    zero_optimization={
        "stage": 2,
        "offload_optimizer": {"device": "cpu"},
        "zenflow": {"topk_ratio": 0.5, "update_interval": 2, "full_warm_up_rounds": 0, "overlap_step": False},
    },
)
print("initialize: no error")
try:
    for _ in range(3):
        step(trained)
except TypeError as error:
    print("step:", error)
