# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A few steps by a device's kernels, before they are used: `KernelsUnusable` if it computes something wrong."""

from __future__ import annotations

import torch

from accel_core.op_builder.device_kernels import KernelsUnusable
from accel_core.op_builder.kernel_arguments import Launch
from accel_core.op_builder.steps import adam as plain_adam
from accel_core.op_builder.steps import lion as plain_lion
from accel_core.op_builder.steps.adam import AdamStep
from accel_core.op_builder.steps.kernels import TYPES, KernelSteps

_NONE = torch.empty(0)
#: A small rate: SYCL devices may be off by some units in the last place in a quotient and a root.
_RATE = 0.25
_ADAM = AdamStep(_NONE, _RATE, 0.75, 0.875, 1e-3, 3, 1, 1, 0.25)
_LION = (_RATE, 0.75, 0.875, 1, 0.25)


def adam(launch: Launch, device: torch.device) -> None:
    """Take steps of AdamW and Adam in each combination of types; compare with float64 on the host."""
    kernels = KernelSteps(device.type, launch)
    for kinds in TYPES:
        for decoupled in (1, 0):
            constants = _ADAM._replace(adam_w_mode=decoupled)
            found, wanted = _lists(kinds, 2, device)
            kernels.adam(found, constants)
            plain_adam.step(wanted, constants)
            _compare("Adam", kinds, found, wanted)


def lion(launch: Launch, device: torch.device) -> None:
    """Take a step of Lion in each combination of types; compare with float64 on the host."""
    kernels = KernelSteps(device.type, launch)
    for kinds in TYPES:
        found, wanted = _lists(kinds, 1, device)
        kernels.multi_tensor_lion(0, _NONE, found, *_LION)
        plain_lion.multi_tensor_lion(0, _NONE, wanted, *_LION)
        _compare("Lion", kinds, found, wanted)


_Kinds = tuple[torch.dtype, torch.dtype, torch.dtype]
_Lists = list[list[torch.Tensor]]


def _lists(kinds: _Kinds, states: int, device: torch.device) -> tuple[_Lists, _Lists]:
    columns = kinds[0], kinds[1], *[kinds[2]] * states
    # The conversion is for `deepspeed.zero.Init`, which replaces torch.arange and ignores its dtype.
    start = [torch.arange(2, 9).div(8 + place).to(kind) for place, kind in enumerate(columns)]
    return [[tensor.to(device)] for tensor in start], [[tensor.cpu().double()] for tensor in start]


def _compare(optimizer: str, kinds: _Kinds, found: _Lists, wanted: _Lists) -> None:
    for ours, theirs in zip(found[1:], wanted[1:], strict=True):
        if not _near(ours[0].cpu(), theirs[0]):
            where = f"{TYPES[kinds]} on {ours[0].device}"
            raise KernelsUnusable(f"a trial step of {optimizer} in {where} is not what plain torch computes")


def _near(ours: torch.Tensor, wanted: torch.Tensor) -> bool:
    error = (ours.double() - wanted).abs() / wanted.abs().clamp(min=1)
    return bool((error <= 2 * torch.finfo(ours.dtype).eps).all())
