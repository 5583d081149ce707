# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of settings and of zeros notice: what an op leaves behind, and what it takes for nothing."""

from __future__ import annotations

from typing import Any

import torch
from accel_good.accelerator import GOOD_Accelerator
from accel_good.op_builder.others import UtilsBuilder
from accel_good.runtime import TheRuntime

from broken import breaks
from broken.by_rule_ops import register_calls, with_builder

_SETTINGS = "op_devices.op_leaves_settings"
_FORM = "op_steps.every_form_is_stepped"
_NOTHING = "op_steps.nothing_comes_of_nothing"


def _with_one_thread(op: Any, *arguments: Any) -> Any:
    torch.set_num_threads(torch.get_num_threads() % 2 + 1)
    return op.lion_update(*arguments)


def _drawing(op: Any, *arguments: Any) -> Any:
    torch.rand(1)
    return op.lamb(*arguments)


def _default_rate(op: Any, chunk: int, flag: Any, lists: Any, rate: float, *arguments: Any) -> None:
    op.multi_tensor_adam(chunk, flag, lists, rate or 1e-3, *arguments)


def _least_squares(op: Any, *arguments: Any) -> Any:
    result = op.adagrad_update(*arguments)
    arguments[-1].clamp_(min=1e-30)
    return result


def _numbers_again(op: Any, number: int, *arguments: Any) -> Any:
    result = op.adam_update(number, *arguments)
    arguments[-4].nan_to_num_()
    return result


register_calls(
    "CPULionBuilder", "LionSetsThreads", f"{_SETTINGS}[CPULionBuilder]", lion_update=_with_one_thread
)
register_calls("FusedLambBuilder", "LambDraws", f"{_SETTINGS}[FusedLambBuilder]", lamb=_drawing)
register_calls(
    "FusedAdamBuilder",
    "NoRateIsADefault",
    f"{_FORM}[no lr-FusedAdamBuilder]",
    multi_tensor_adam=_default_rate,
)
register_calls(
    "CPUAdagradBuilder", "SumsHaveALeastNumber", *(f"{_NOTHING}[{t}-CPUAdagradBuilder]" for t in ("fp32", "bf16")),
    adagrad_update=_least_squares,
)  # fmt: skip
register_calls(
    "CPUAdamBuilder", "ParametersAreNeverNaN", "op_steps.gradient_that_is_not_finite_is_seen[CPUAdamBuilder]",
    adam_update=_numbers_again,
)  # fmt: skip


def _copies(tensors: Any) -> Any:
    if isinstance(tensors, torch.Tensor):
        return tensors.flatten().clone().view(torch.uint8)
    return [_copies(tensor) for tensor in tensors]


breaks("op_host.tensors_are_bytes", name="BytesAreCopies")(
    with_builder("UtilsBuilder", FUNCTIONS={**UtilsBuilder.FUNCTIONS, "cast_to_byte_tensor": _copies})
)


@breaks("graphs.work_in_a_stream_is_no_capture")
class ChosenStreamsCapture(GOOD_Accelerator):
    def is_current_stream_capturing(self) -> bool:
        streams = TheRuntime.now.streams
        return super().is_current_stream_capturing() or streams.current != streams.default
