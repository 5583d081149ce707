# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of ops and devices notice: another device or stream left current, one device alone computed on."""

from __future__ import annotations

from typing import Any

import torch
from accel_good.runtime import TheRuntime

from broken import breaks
from broken.by_rule_ops import register_calls, with_builder

_LEAVES = "op_devices.op_leaves_device_and_streams"
_COMPUTES = "op_devices.op_computes_where_its_tensors_are"


def _moving(op: Any, *arguments: Any) -> None:
    op.multi_tensor_adam(*arguments)
    streams = TheRuntime.now.streams
    if streams.current != streams.default:
        TheRuntime.now.set_device(1)


def _choosing_a_stream(op: Any, *arguments: Any) -> Any:
    streams = TheRuntime.now.streams
    streams.current[1] = streams.default[1]
    return op.lamb(*arguments)


def _on_device_0(op: Any, *arguments: Any) -> None:
    if TheRuntime.now.index == 0:
        op.multi_tensor_lion(*arguments)


def _normed_by_the_first_device(op: Any, output: torch.Tensor, *arguments: Any) -> None:
    op.rms_norm(output, *arguments)
    if TheRuntime.now.index:
        output.zero_()


register_calls(
    "FusedAdamBuilder", "AdamLeavesAnotherDevice", f"{_LEAVES}[FusedAdamBuilder]", multi_tensor_adam=_moving
)
register_calls(
    "FusedLambBuilder", "LambLeavesAnotherStream", f"{_LEAVES}[FusedLambBuilder]", lamb=_choosing_a_stream
)
register_calls(
    "FusedLionBuilder", "LionStepsOnDevice0", f"{_COMPUTES}[FusedLionBuilder]", multi_tensor_lion=_on_device_0
)
register_calls(
    "InferenceCoreBuilder",
    "NormIsOfDevice0",
    f"{_COMPUTES}[InferenceCoreBuilder]",
    rms_norm=_normed_by_the_first_device,
)


def _load(self: Any, verbose: bool = True) -> Any:
    TheRuntime.now.set_device(0)
    return super(type(self), self).load(verbose)


breaks(f"{_LEAVES}[QuantizerBuilder]", name="LoadingChoosesDevice0")(
    with_builder("QuantizerBuilder", load=_load)
)
