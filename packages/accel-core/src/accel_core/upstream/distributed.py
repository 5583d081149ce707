# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""`deepspeed.init_distributed` with two explanations: no device for the collectives, and a wrong count of ranks.

DeepSpeed's own function does the work, and its result and its errors are not changed.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from accel_core import env
from accel_core.errors import NoDeviceForCollectives, in_short
from accel_core.upstream import world_of_one

_log = logging.getLogger("accel_core")


def explained(stock: Callable[..., None], current: Callable[[], Any]) -> Callable[..., None]:
    """Return `init_distributed` that explains why it fails without a device, and warns of accelerate's count.

    Without a launcher it makes a job of one rank (`world_of_one`).
    """

    @functools.wraps(stock)
    def init_distributed(*args: Any, **kwargs: Any) -> None:
        _say_once_a_host()
        added = world_of_one.prepare(_bound(stock, args, kwargs))
        try:
            stock(*args, **kwargs)
        except Exception as error:
            for name in added:
                os.environ.pop(name, None)
            accel = current()
            if _has_no_device(accel):
                raise _no_device(accel, error) from error
            raise
        _warn_if_accelerate_counts_one()

    return init_distributed


def _say_once_a_host() -> None:
    """Let only the first rank of a host print which library DeepSpeed has loaded for its collectives."""
    module = sys.modules.get("deepspeed.comm.torch")
    if module is None or env.is_local_rank_zero():
        return

    def quieter(*values: object, **options: Any) -> None:
        if not (values and str(values[0]).endswith("built successfully")):
            print(*values, **options)  # noqa: T201  # DeepSpeed's own

    vars(module)["print"] = quieter


def _bound(stock: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return inspect.signature(stock).bind(*args, **kwargs).arguments
    except TypeError:  # which DeepSpeed's own function will raise
        return kwargs


def _has_no_device(accel: Any) -> bool:
    try:
        return bool(accel.device_count() == 0)
    except Exception:
        return False  # the original error says more


def _no_device(accel: Any, error: Exception) -> NoDeviceForCollectives:
    name = accel._name
    return NoDeviceForCollectives(
        what=f"torch.distributed cannot be initialized for the accelerator {name!r}",
        found=f"no {name} device in this process; {type(error).__name__}: {in_short(error)}",
        expected=f"a device for the collectives of {accel.communication_backend_name()!r}",
        do="run on a machine with the device (`accel doctor` says what it finds here), or set DS_ACCELERATOR=cpu",
    )


def _warn_if_accelerate_counts_one() -> None:
    """Warn if accelerate has counted one process in a job of several: each rank would train on all of the data."""
    import torch.distributed as dist

    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    counted = getattr(state, "_shared_state", {}).get("num_processes")
    if (
        counted != 1
        or not dist.is_initialized()
        or dist.get_world_size() == 1
        or not env.is_local_rank_zero()
    ):
        return
    _log.warning(
        "accelerate counts 1 process, torch.distributed %d ranks: every rank would train on all of the data. Set "
        "ACCELERATE_USE_DEEPSPEED=true, call accelerate.PartialState(backend=%r) ahead of TrainingArguments, and give "
        'these accelerator_config={"use_configured_state": True}; docs/huggingface.md of accel has the lines',
        dist.get_world_size(),
        dist.get_backend(),
    )
