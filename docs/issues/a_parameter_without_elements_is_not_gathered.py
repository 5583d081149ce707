# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""ZeRO 3 on two ranks: a parameter without elements, which is gathered with another one, is an error."""

from types import SimpleNamespace

import torch
from deepspeed.runtime.zero.partition_parameters import AllGatherCoalescedHandle, ZeroParamStatus


def parameter(elements):
    """A parameter of which each of two ranks has a half."""
    part = torch.empty(elements // 2)
    part.ds_numel = elements // 2
    return SimpleNamespace(
        ds_status=ZeroParamStatus.INFLIGHT, ds_tensor=part, ds_numel=elements, ds_shape=[elements]
    )


handle = AllGatherCoalescedHandle(
    SimpleNamespace(wait=lambda: None),
    [parameter(4), parameter(0)],
    [torch.ones(2), torch.ones(2)],
    world_size=2,
)
try:
    handle.wait()
    print("no error")
except (RuntimeError, ValueError) as error:
    print(f"{type(error).__name__}:", error)
