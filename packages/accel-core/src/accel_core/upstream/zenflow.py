# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Refuses at `deepspeed.initialize` what DeepSpeed's ZenFlow cannot train: noticed later, or as losses of NaN."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

from accel_core.errors import AccelError, InvalidZenFlow, in_short

#: Prefix of the functions of a CPUAdamBuilder's op that the overlapped step calls.
_PREFIX = "zenflow_adam_"
_WITHOUT_OVERLAP = 'set "overlap_step": false in the zenflow section of the configuration'
#: Adam's, where the configuration has none.
_EPS = 1e-8
#: What rounds to more than zero in float16 is above this.
_HALF_OF_SMALLEST_FP16 = 2.0**-25


def checked(stock: Callable[[Any], None], current: Callable[[], Any]) -> Callable[[Any], None]:
    """Return `configure_zenflow`, which the engine calls ahead of making its optimizer, with the checks.

    current: returns the accelerator.
    """

    @functools.wraps(stock)
    def configure_zenflow(engine: Any) -> None:
        config = engine.zenflow_config()
        if config is not None:
            _check_optimizer(engine, bool(config.overlap_step))
            if engine.fp16_enabled():
                _check_fp16(engine)
            if config.overlap_step:
                _check_op(current())
            if engine.zero_optimization_stage() == 3:
                _check_device(current())
        stock(engine)
        if config is not None and engine._config.gradient_accumulation_steps == 0:
            # The update interval "auto", by which the engine divides each loss.
            engine._config.gradient_accumulation_steps = 1

    return configure_zenflow


def _check_optimizer(engine: Any, overlap: bool) -> None:
    """Raise InvalidZenFlow for an optimizer whose step has no number, or that has other options than Adam's."""
    given, params = engine.client_optimizer, engine.optimizer_params()
    torch_adam = bool(params and params.get("torch_adam"))
    if given is None:
        name = engine.optimizer_name()
        if name is None or (name.lower() in ("adam", "adamw") and not torch_adam):
            return
        found = f"the optimizer {name}" + (' with "torch_adam": true' if torch_adam else "")
    elif not hasattr(given, "param_groups"):
        return  # a function that is to make it
    else:
        found = f"an optimizer of the class {type(given).__name__}"
        if params is None and engine.zero_optimization_stage() < 3:
            found += ", and none in the configuration, where ZenFlow takes its options from"
        elif "step_id" in inspect.signature(given.step).parameters or (
            overlap and hasattr(given, "ds_opt_adam")
        ):
            return
    raise InvalidZenFlow(
        what="ZenFlow cannot train with this optimizer",
        found=found,
        expected="Adam or AdamW, made by DeepSpeed from the configuration",
        do='write "optimizer": {"type": "AdamW", …} in the configuration, and pass none to initialize',
    )


def _check_fp16(engine: Any) -> None:
    """Raise InvalidZenFlow where the step on the selected columns, whose states are float16 too, gives NaN."""
    eps = float((engine.optimizer_params() or {}).get("eps", _EPS))
    if engine.dynamic_loss_scale():
        found = "a dynamic loss scale: the selected columns take a step when gradients have overflowed, too"
    elif eps <= _HALF_OF_SMALLEST_FP16:
        found = f"eps={eps:g}, which is 0 in float16: a gradient of 0 makes its parameter NaN"
    else:
        return
    raise InvalidZenFlow(
        what="ZenFlow cannot train in fp16 with these options",
        found=found,
        expected='bf16, or fp16 with a "loss_scale" above 0 and an "eps" of 1e-7 or more',
        do='replace the fp16 section of the configuration by "bf16": {"enabled": true}',
    )


def _check_device(accelerator: Any) -> None:
    """Raise InvalidZenFlow where DeepSpeed's code for ZeRO 3 makes tensors on another device than the accelerator's."""
    module = sys.modules.get("deepspeed.runtime.zenflow.engine_stage3")
    functions = [value for value in vars(module).values() if inspect.isfunction(value)] if module else []
    texts = {text for function in functions for text in function.__code__.co_consts if isinstance(text, str)}
    allowed = (accelerator.device_name(), "cpu")  # DeepSpeed's name for host memory
    others = sorted(text for text in texts if _is_device(text) and text not in allowed)
    if others:
        raise InvalidZenFlow(
            what="ZenFlow cannot train with ZeRO 3 on this accelerator",
            found=f"the device {others[0]!r}, which DeepSpeed's code for ZeRO 3 has as a text",
            expected=f"{accelerator.device_name()!r}",
            do='set "stage": 1 or 2, or remove the zenflow section of the configuration',
        )


def _is_device(text: str) -> bool:
    import torch  # this module is imported with accel_core, which needs none

    try:
        return torch.device(text).type == text
    except RuntimeError:
        return False


def _check_op(accelerator: Any) -> None:
    """Raise InvalidZenFlow where the op has not the functions that DeepSpeed's optimizer process calls."""
    utils = sys.modules.get("deepspeed.runtime.zenflow.zenflow_utils")
    process = getattr(utils, "zenflow_optimizer_process", None)
    names = [
        name for name in getattr(process, "__code__", _check_op.__code__).co_names if name.startswith(_PREFIX)
    ]
    if not names:
        return  # 0.18 calls `adam_update`
    try:
        op = accelerator.create_op_builder("CPUAdamBuilder").load()
        missing = ", ".join(name for name in names if not hasattr(op, name))
        if not missing:
            op.zenflow_adam_ctrl_size()  # raises where the op cannot overlap on this platform
            return
        found = f"the op {type(op).__name__} of {accelerator._name!r} lacks {missing}"
    except AccelError as error:
        found = in_short(error)
    raise InvalidZenFlow(
        what="ZenFlow cannot overlap the optimizer's step on this accelerator",
        found=found,
        expected="an op of CPUAdamBuilder with the functions of ZenFlow, such as that of accel-ops",
        do=_WITHOUT_OVERLAP,
    )
