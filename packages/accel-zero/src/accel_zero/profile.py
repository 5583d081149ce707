# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where the time of an iteration goes: methods of DeepSpeed's engine and ZeRO optimizers with a clock around them."""

from __future__ import annotations

import contextlib
import functools
import pkgutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

_ENGINE = "deepspeed.runtime.engine:DeepSpeedEngine"
_ZERO_2 = "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer"
_ZERO_3 = "deepspeed.runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3"
_ZERO = (_ZERO_2, _ZERO_3)
_ZERO_0 = (
    "deepspeed.runtime.fp16.fused_optimizer:FP16_Optimizer",
    "deepspeed.runtime.fp16.unfused_optimizer:FP16_UnfusedOptimizer",
)
_MODULES_3 = ("deepspeed.runtime.zero.parameter_offload:DeepSpeedZeRoOffload",)
#: What is left of the engine's own methods.
FORWARD, BACKWARD, STEP = "forward", "backward: model", "step: rest"
COPY_OUT = "step: copy-out of parameters"

#: The parts in the order of an iteration, and the methods whose own time, without that of other methods here, they are.
PARTS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (FORWARD, (_ENGINE,), ("forward",)),
    (
        "forward: fetch and release",
        _MODULES_3,
        ("pre_sub_module_forward_function", "post_sub_module_forward_function"),
    ),
    (BACKWARD, (_ENGINE,), ("backward",)),
    (
        "backward: fetch and release",
        _MODULES_3,
        ("pre_sub_module_backward_function", "post_sub_module_backward_function"),
    ),
    ("backward: gradients to buckets", _ZERO, ("reduce_independent_p_g_buckets_and_remove_grads",)),
    ("backward: averaging", (_ZERO_2,), ("average_tensor",)),
    (
        "backward: averaging",
        (_ZERO_3,),
        (
            "_DeepSpeedZeroOptimizer_Stage3__avg_scatter_grads",
            "_DeepSpeedZeroOptimizer_Stage3__avg_scatter_contiguous_grads",
        ),
    ),
    ("backward: accumulation", (_ZERO_2,), ("async_accumulate_grad_in_cpu_via_gpu",)),
    ("backward: norm", (_ZERO_2,), ("set_norm_for_param_grad_in_gpu",)),
    ("backward: norm", (_ZERO_3,), ("_constant_buffered_norm2",)),
    ("backward: overflow", (_ZERO_2,), ("update_offload_overflow_tracker_for_param_grad",)),
    ("backward: conversion and copy", (_ZERO_2,), ("async_inplace_copy_grad_to_fp32_buffer_from_gpu",)),
    ("backward: conversion and copy", (_ZERO_3,), ("_offload_grad_partition_at_boundary",)),
    ("backward: rest of reduction", (_ZERO_2,), ("reduce_ipg_grads", "copy_grads_in_partition")),
    ("backward: rest of reduction", (_ZERO_3,), ("partition_grads",)),
    (
        "step: norm and overflow",
        _ZERO,
        ("check_overflow", "complete_grad_norm_calculation_for_cpu_offload", "get_grad_norm_direct"),
    ),
    ("step: unscale and clip", _ZERO, ("unscale_and_clip_grads",)),
    ("step: optimizer", _ZERO, ("_optimizer_step",)),
    (COPY_OUT, (_ZERO_2,), ("step", "_update_model_bit16_weights")),
    (COPY_OUT, (_ZERO_3,), ("_reassign_or_swap_out_partitioned_parameters",)),
    ("step: release and gather", (_ZERO_3,), ("_partition_all_parameters", "_post_step")),
    ("step: without ZeRO", _ZERO_0, ("step",)),
    (STEP, (_ZERO_3,), ("step",)),
    (STEP, (_ENGINE,), ("step",)),
)


@dataclass
class Profile:
    """Seconds by part of each iteration, which ends with an optimizer step. Time outside any part is not counted.

    Hooks of autograd may run in other threads; the one that called backward waits for them.
    """

    iterations: list[dict[str, float]] = field(default_factory=list)
    _seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _running: list[str] = field(default_factory=list)
    _since: float = 0.0

    def mean(self, skip: int) -> dict[str, float]:
        """Return the mean seconds by part in the order of `PARTS`, without the first iterations."""
        counted = self.iterations[skip:]
        names = dict.fromkeys(name for name, _, _ in PARTS)
        sums = {name: sum(each.get(name, 0.0) for each in counted) for name in names}
        return {name: total / len(counted) for name, total in sums.items() if total}

    @contextlib.contextmanager
    def running(self, part: str) -> Iterator[None]:
        """Add the time of this block to the part, without that of the parts inside."""
        self._add()
        self._running.append(part)
        try:
            yield
        finally:
            self._add()
            self._running.pop()

    def _add(self) -> None:
        now = time.perf_counter()
        if self._running:
            self._seconds[self._running[-1]] += now - self._since
        self._since = now

    def close_iteration(self) -> None:
        """Keep what was counted as an iteration."""
        self.iterations.append(dict(self._seconds))
        self._seconds.clear()


@contextlib.contextmanager
def profiled() -> Iterator[Profile]:
    """Measure the iterations of all engines until it ends; imports deepspeed. Times are the host's, not a device's."""
    profile = Profile()
    with contextlib.ExitStack() as stack:
        for part, targets, names in PARTS:
            for owner in map(pkgutil.resolve_name, targets):
                for name in names:
                    if name in vars(owner):
                        _replace(stack, owner, name, _timed(profile, part, vars(owner)[name]))
        engine = pkgutil.resolve_name(_ENGINE)
        _replace(stack, engine, "step", _counted(profile, engine.step))
        yield profile


def _replace(stack: contextlib.ExitStack, owner: Any, name: str, new: Callable[..., Any]) -> None:
    stack.callback(setattr, owner, name, vars(owner)[name])
    setattr(owner, name, new)


def _timed(profile: Profile, part: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with profile.running(part):
            return method(*args, **kwargs)

    return timed


def _counted(profile: Profile, step: Callable[..., Any]) -> Callable[..., Any]:
    """Close an iteration after each call of the engine's step that is at a boundary of gradient accumulation."""

    @functools.wraps(step)
    def counted(engine: Any, *args: Any, **kwargs: Any) -> Any:
        before = engine.global_steps
        result = step(engine, *args, **kwargs)
        if engine.global_steps != before:
            profile.close_iteration()
        return result

    return counted
