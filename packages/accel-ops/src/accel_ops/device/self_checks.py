# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Run the self-check of an op on a device whose errors may come late."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from accel_core.errors import AccelError, in_short
from accel_core.lost_devices import wrong_sum
from accel_ops.device.driver_kernels import KernelNotStarted, KernelsUnusable
from accel_ops.op import Unusable


class DeviceFailed(AccelError, RuntimeError, code="ACC-531"):
    """An op failed its self-check, and the device no longer computes."""


def unsupported_reason(op: str, device: torch.device | str, *checks: Callable[[], str | None]) -> str:
    """Run the self-checks of an op; return the reason not to use it, empty if there is none.

    checks: each reads its results back and returns what is wrong with them, or raises.
    Raises `DeviceFailed` if the device no longer computes afterwards, and the error of earlier work as it is.
    """
    runtime: Any = torch.get_device_module(device)
    # Work on torch_npu's stream of this type is not handed to a queue thread, which an error would end.
    immediate = getattr(runtime, "SyncLaunchStream", None)
    runtime.synchronize()
    cause: Exception | None = None
    try:
        with runtime.stream(immediate()) if immediate else nullcontext():
            reason = next(filter(None, (check() for check in checks)), "")
            runtime.synchronize()
    except (KernelsUnusable, KernelNotStarted) as error:
        cause, reason = error, in_short(error)
    except Exception as error:
        # One short line: torch lists all its dispatch keys below.
        cause, reason = error, f"{op} raises {type(error).__name__}: {in_short(error)[:200]}"
    wrong = wrong_sum(device) if reason else ""
    if wrong:
        raise DeviceFailed(
            f"{_failed.setdefault(str(device), op)} failed its self-check, and {device} no longer "
            f"computes: {reason}; then {wrong}",
            do=(
                "end this process, whose results would be wrong. Without the op: an optimizer of torch "
                '(`"torch_adam": true`), no quantization (zero_quantized_weights, zero_quantized_gradients)'
            ),
        ) from cause
    return reason


def require(op: str, device: torch.device | str, *checks: Callable[[], str | None]) -> None:
    """Raise `Unusable` with the reason of `unsupported_reason`, if there is one."""
    reason = unsupported_reason(op, device, *checks)
    if reason:
        raise Unusable(reason)


#: The op after which a device no longer computed: the self-checks of later ones fail, too.
_failed: dict[str, str] = {}
