# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with ZeRO-Infinity: says what DeepSpeed cannot load from a file system into an engine."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from accel_core import env
from accel_core.errors import UnloadableCheckpoint

_log = logging.getLogger("accel_core")


def refusing(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return `_load_zero_checkpoint`, which would fail after it has replaced a part, that refuses ahead of it."""

    @functools.wraps(stock)
    def load_zero_checkpoint(engine: Any, *args: Any, **kwargs: Any) -> Any:
        groups = getattr(engine.optimizer, "fp16_partitioned_groups_flat", ())
        outside = sum(group is None for group in groups)
        if outside and not engine.load_universal_checkpoint():
            raise UnloadableCheckpoint(
                what="DeepSpeed cannot load a checkpoint into parameters that are on NVMe",
                found=f"{outside} of {len(groups)} groups of parameters on NVMe, the optimizer in memory",
                expected="parameters in memory",
                do="give offload_param a max_in_cpu of at least the rank's number of parameters, or the device cpu: "
                "the files of a checkpoint are the same",
            )
        return stock(engine, *args, **kwargs)

    return load_zero_checkpoint


def warning(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return `load_checkpoint` that warns of optimizer states on NVMe, which are not all restored."""

    @functools.wraps(stock)
    def load_checkpoint(engine: Any, *args: Any, **kwargs: Any) -> Any:
        loaded = stock(engine, *args, **kwargs)
        if (
            loaded[0] is not None
            and getattr(engine.optimizer, "swap_optimizer", False)
            and env.is_local_rank_zero()
        ):
            _log.warning(
                "DeepSpeed has not restored all of the optimizer's states on NVMe: the losses differ from those of a "
                "run that was not interrupted. To continue exactly, save and load with offload_optimizer on cpu; "
                "docs/upstream.md of accel has the cause"
            )
        return loaded

    return load_checkpoint
