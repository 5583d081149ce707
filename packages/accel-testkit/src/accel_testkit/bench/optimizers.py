# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam on the host: DeepSpeed's call of the op."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

from accel_ops.op_builder import CPUAdamBuilder
from accel_testkit.bench.stock import own_op
from accel_testkit.timing import TRIAD_BYTES, triad, warm_medians

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
#: Bytes that a step moves for a parameter with states in float32: parameter, gradient and states are read, all but the
#: gradient written.
BYTES = {"fp32": 28, "bf16": 2 * 3 + 4 * 4}
STEP = (3, 1e-3, 0.9, 0.999, 1e-8, 0.01, True)
_SIZE, _ROUNDS = 16 << 20, 9


def measure(build: bool, disk: Path) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield (what, size, seconds by contender).

    build: compile DeepSpeed's own op where it is not. disk: a folder on the disk to measure.
    """
    warnings.simplefilter("ignore")
    theirs, _ = own_op("CPUAdamBuilder", build=build)
    for threads in sorted({1, torch.get_num_threads()}):
        torch.set_num_threads(threads)
        for kind, dtype in DTYPES.items():
            calls = {**contenders(_SIZE, dtype, theirs), "limit": triad(_SIZE)}
            found = warm_medians(calls, _ROUNDS, _SIZE)
            found["limit"] *= BYTES[kind] / TRIAD_BYTES
            yield f"Adam, {threads} thread{'s' * (threads > 1)}", f"{_SIZE >> 20} Mi {kind}", found


def contenders(size: int, dtype: torch.dtype, theirs: Any) -> dict[str, Callable[[], Any]]:
    """Return a step of our op, DeepSpeed's and torch's fused optimizer, all on the same tensors."""
    param = torch.nn.Parameter(torch.randn(size).to(dtype))
    param.grad = torch.randn(size).to(dtype)
    tensors = (param.data, param.grad, torch.zeros(size), torch.zeros(size))
    ours = CPUAdamBuilder().load()
    ops = {"ours": ours} if theirs is None else {"ours": ours, "DeepSpeed": theirs}
    for op in ops.values():
        op.create_adam(0, 1e-3, 0.9, 0.999, 1e-8, 0.01, True, False)
    return {
        **{name: partial(op.adam_update, 0, *STEP, *tensors) for name, op in ops.items()},
        "torch": torch.optim.AdamW([param], fused=True).step,
    }
