# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Fused optimizers: Adam with torch_supa_ext's op; Lamb and Lion in plain torch."""

from __future__ import annotations

import dataclasses
from contextlib import suppress

import torch

from accel_ops.optimizers.fused import ADAM, AdamStep, Lists, adam_step
from accel_ops.routes import tried_adam


def step(lists: Lists, adam: AdamStep) -> None:
    """Do one step in place on [gradients, parameters, first moments, second moments] of a Biren GPU."""
    # torch_supa_ext is closed: this is the call of Biren's code in DeepSpeed. What it does with other types is unknown.
    if not lists[0] or any(tensor.dtype != torch.float32 for tensors in lists for tensor in tensors):
        adam_step(lists, adam)
    else:  # the first argument is upstream's size of a piece
        flag = adam.noop_flag.to(lists[0][0].device)
        torch.ops.deepspeed.multi_tensor_adam(2048 * 32, flag, *lists, *adam[1:])


_ROUTE = tried_adam("deepspeed.multi_tensor_adam", step, "supa")


def _lack() -> str:
    with suppress(ImportError):
        import torch_supa_ext.deepspeed  # noqa: F401  # registers the op
    return _ROUTE.lack()


FusedAdamBuilder = ADAM.builder(__name__, dataclasses.replace(_ROUTE, lack=_lack))
