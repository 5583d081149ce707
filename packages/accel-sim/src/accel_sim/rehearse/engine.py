# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a rehearsal changes in DeepSpeed and in our ops, once they are imported: phases, steps, host kernels, files."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from wrapt import register_post_import_hook

from accel_sim.ops import hpu
from accel_sim.ops import steps as fused_steps
from accel_sim.rehearse.kinds import Labels
from accel_sim.rehearse.phases import BACKWARD, CHECKPOINT, FORWARD, INIT, STEP, Phases
from accel_sim.rehearse.program import Watch

_FP16 = (
    "fp16 with a dynamic loss scale: a real run skips steps until it has found the scale, and allocates the states of"
    " the optimizer at the first step that it takes; here no step is skipped"
)


def install(phases: Phases, labels: Labels, watch: Watch, *, fused: bool) -> None:
    """Register the hooks. fused: the vendors' fused operators allocate nothing, as on the device."""
    if fused:
        for name, where in (("adam", fused_steps), ("sgd", fused_steps), ("_adamw", hpu)):
            vars(where)[name] = lambda *_arguments, **_options: None
    for module, change in (
        ("deepspeed.runtime.engine", functools.partial(_engine, phases, labels, watch)),
        ("deepspeed.runtime.pipe.engine", functools.partial(_pipeline, phases)),
        ("accel_ops.kernels", _host_kernels),
        ("accel_ops.fast", _fast),
        ("accel_ops.op_builder.async_io", _files),
    ):
        register_post_import_hook(change, module)


def _engine(phases: Phases, labels: Labels, watch: Watch, module: ModuleType) -> None:
    engine: Any = vars(module)["DeepSpeedEngine"]
    for name, phase in (("forward", FORWARD), ("backward", BACKWARD), ("step", STEP)):
        setattr(engine, name, phases.wrapped(getattr(engine, name), phase))
    engine.__init__ = _built(phases, labels, watch, engine.__init__)
    engine._take_model_step = _stepped(phases, engine._take_model_step)
    engine.save_checkpoint = _saved(phases, engine.save_checkpoint)
    engine.compile = watch.eager


def _pipeline(phases: Phases, module: ModuleType) -> None:
    """End the program before a batch of which a stage would receive something."""
    engine: Any = vars(module)["PipelineEngine"]
    stock = engine.train_batch

    @functools.wraps(stock)
    def train_batch(*arguments: Any, **options: Any) -> Any:
        phases.end_after(phases.steps)
        return stock(*arguments, **options)

    engine.train_batch = train_batch


def _built(phases: Phases, labels: Labels, watch: Watch, stock: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(stock)
    def init(engine: Any, /, *arguments: Any, **options: Any) -> None:
        with phases.inside(INIT):
            stock(engine, *arguments, **options)
            labels.engines.add(engine)
            if getattr(engine, "dynamic_loss_scale", lambda: False)() and engine.fp16_enabled():
                watch.note(_FP16)
            phases.learn(engine)

    return init


def _stepped(phases: Phases, stock: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(stock)
    def take_step(*arguments: Any, **options: Any) -> Any:
        with phases.inside(STEP):
            result = stock(*arguments, **options)
        phases.step_is_taken()
        return result

    return take_step


def _saved(phases: Phases, stock: Callable[..., Any]) -> Callable[..., Any]:
    """Return `save_checkpoint` that leaves the file which names the latest checkpoint as it is."""
    signature = inspect.signature(stock)

    @functools.wraps(stock)
    def save(*arguments: Any, **options: Any) -> Any:
        bound = signature.bind(*arguments, **options)
        bound.arguments["save_latest"] = False
        with phases.inside(CHECKPOINT):
            return stock(*bound.args, **bound.kwargs)

    return save


# ------------------------------------------------------------------------------------------- host kernels
def _host_kernels(kernels: ModuleType) -> None:
    """Let the host's kernels touch no memory: it is not committed."""
    vars(kernels).update(
        _run=lambda *_arguments, **_options: None,
        adam_single_tensor=lambda *_arguments, **_options: True,
        sum_of_squares=lambda *_arguments, **_options: 0.0,
        copy_gradient=lambda *_arguments, **_options: 0.0,
    )


def _fast(fast: ModuleType) -> None:
    vars(fast)["adam_update"] = lambda _functions, _options, python: python


def _files(module: ModuleType) -> None:
    """Let DeepSpeed's asynchronous files neither be written nor read: NVMe holds what fits there."""
    handle: Any = vars(module)["aio_handle"]

    def parallel(
        self: Any, _buffer: Any, _name: Any, _write: bool, _validate: bool, later: bool, *_: Any
    ) -> int:
        if not later:
            return 1
        self._pending.append(None)
        return 0

    def wait(self: Any) -> int:
        count = len(self._pending)
        self._pending.clear()
        return count

    handle._run = lambda *_arguments: None
    handle._parallel, handle.wait = parallel, wait
