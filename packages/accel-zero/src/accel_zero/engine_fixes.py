# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Replacements of functions of the engine and its collectives: checkpoints on NVMe, ZenFlow, Open MPI, ZeRO++."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from accel_core import env
from accel_core.errors import DOCUMENTATION
from accel_core.launchers import OPEN_MPI
from accel_zero.errors import UnsupportedConfiguration

_log = logging.getLogger("accel_core")
Stock = Callable[..., Any]


def configure(stock: Stock, *args: Any, **kwargs: Any) -> None:
    """Hide Open MPI's local rank, which DeepSpeed compares with LOCAL_RANK: torchrun under mpirun sets another."""
    (name,) = OPEN_MPI.local_rank
    other = os.environ.pop(name, None) if os.environ.get("LOCAL_RANK") else None
    try:
        stock(*args, **kwargs)
    finally:
        if other is not None:
            os.environ[name] = other


def load_zero_checkpoint(stock: Stock, engine: Any, *args: Any, **kwargs: Any) -> Any:
    """Refuse to load into parameters on NVMe, where the stock method fails after it has replaced a part."""
    groups = getattr(engine.optimizer, "fp16_partitioned_groups_flat", ())
    outside = sum(group is None for group in groups)
    if outside and not engine.load_universal_checkpoint():
        raise UnsupportedConfiguration(
            f"DeepSpeed cannot load a checkpoint into parameters that are on NVMe: {outside} of "
            f"{len(groups)} groups of parameters on NVMe, the optimizer in memory",
            do=(
                "give offload_param a max_in_cpu of at least the rank's number of parameters, or the device cpu: "
                "the files of a checkpoint are the same"
            ),
        )
    return stock(engine, *args, **kwargs)


def load_checkpoint(stock: Stock, engine: Any, *args: Any, **kwargs: Any) -> Any:
    """Warn of optimizer states on NVMe, which are not all restored."""
    loaded = stock(engine, *args, **kwargs)
    swaps = getattr(engine.optimizer, "swap_optimizer", False)
    if loaded[0] is not None and swaps and env.is_local_rank_zero():
        _log.warning(
            "DeepSpeed has not restored all of the optimizer's states on NVMe: the losses differ from those of a "
            "run that was not interrupted. To continue exactly, save and load with offload_optimizer on cpu; "
            "%s/deepspeed-issues.md has the cause",
            DOCUMENTATION,
        )
    return loaded


#: Adam's, where the configuration has none; and the largest that float16 rounds to 0.
_EPS, _ZERO_IN_FP16 = 1e-8, 2.0**-25


def configure_zenflow(stock: Stock, engine: Any) -> None:
    """Refuse options that give NaN; the engine calls this ahead of making its optimizer."""
    used = engine.zenflow_config() is not None
    if used and engine.fp16_enabled():
        _refuse_nan(engine)
    stock(engine)
    if used and engine._config.gradient_accumulation_steps == 0:
        # The update interval "auto", by which the engine divides each loss.
        engine._config.gradient_accumulation_steps = 1


def _refuse_nan(engine: Any) -> None:
    """Raise UnsupportedConfiguration if the step on the selected columns, also with float16 states, gives NaN."""
    eps = float((engine.optimizer_params() or {}).get("eps", _EPS))
    if engine.dynamic_loss_scale():
        found = "a dynamic loss scale: the selected columns take a step when gradients have overflowed, too"
    elif eps <= _ZERO_IN_FP16:
        found = f"eps={eps:g}, which is 0 in float16: a gradient of 0 makes its parameter NaN"
    else:
        return
    raise UnsupportedConfiguration(
        f"ZenFlow cannot train in fp16 with these options: {found}; expected bf16, or fp16 with a "
        '"loss_scale" above 0 and an "eps" of 1e-7 or more',
        do='replace the fp16 section of the configuration by "bf16": {"enabled": true}',
    )


def all_gather(
    stock: Stock, backend: Any, output_tensor: Any, input_tensor: Any, *args: Any, **kwargs: Any
) -> Any:
    """Gather a tensor of any shape into a vector, as ZeRO++ gathers its scales.

    gloo refuses a shape that a piece of the vector does not have; the backends of devices compare numbers of elements.
    """
    if output_tensor.dim() == 1 and input_tensor.dim() != 1 and input_tensor.is_contiguous():
        input_tensor = input_tensor.view(-1)
    return stock(backend, output_tensor, input_tensor, *args, **kwargs)


#: Operations that DeepSpeed's comms logger does not know, and those whose bandwidth is computed alike.
_LIKE = {"all_gather_object": "broadcast", "monitored_barrier": "barrier"}


def comms_logger(logger: Any) -> Any:
    """Let each operation have its own time, to which the former ones are added otherwise, and none end the process."""
    append = logger.append

    def append_one(raw_name: str, record_name: str, latency: float, size: int) -> None:
        from deepspeed.comm import comm

        append(_LIKE.get(raw_name, raw_name), record_name, latency, size)
        comm.timers(record_name).reset()

    logger.append = append_one
    return logger
