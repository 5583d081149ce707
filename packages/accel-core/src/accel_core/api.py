# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The public functions: the process's one current accelerator, with selection connected to DeepSpeed."""

from __future__ import annotations

from types import ModuleType

from accel_core.selection.current import CurrentAccelerator, Explanation, explain_current
from accel_core.upstream import cpu_info, hooks, inference_v2
from accel_core.upstream.backends import StockDeepSpeed

#: The accelerator of this process.
CURRENT = CurrentAccelerator(StockDeepSpeed())

get_accelerator = CURRENT.get
set_accelerator = CURRENT.set
using = CURRENT.using
is_current_accelerator_supported = CURRENT.is_supported

__all__ = ["explain", "get_accelerator", "is_current_accelerator_supported", "set_accelerator", "using"]


def explain() -> Explanation:
    """Explain the choice of the accelerator, selecting it if necessary. Does not raise for a failed selection."""
    return explain_current(CURRENT)


def on_accelerator(module: ModuleType) -> None:
    """Import hook of `deepspeed.accelerator.real_accelerator`."""
    hooks.join_accelerator(module, CURRENT)


def on_op_builder(module: ModuleType) -> None:
    """Import hook of `deepspeed.ops.op_builder`."""
    hooks.join_op_builder(module, CURRENT)


def on_builder_import(module: ModuleType) -> None:
    """Import hook of the modules that import a builder from a submodule of `deepspeed.ops.op_builder`."""
    hooks.join_builder_import(module, CURRENT)


def on_cpu_info(module: ModuleType) -> None:
    """Import hook of `cpuinfo` (py-cpuinfo)."""
    cpu_info.patch_cpu_info(module)


def on_distributed(module: ModuleType) -> None:
    """Import hook of `deepspeed.comm.comm`."""
    hooks.join_distributed(module, CURRENT)


def on_runner(module: ModuleType) -> None:
    """Import hook of `deepspeed.launcher.runner`, the `deepspeed` command."""
    hooks.join_runner(module, CURRENT)


def on_zenflow(module: ModuleType) -> None:
    """Import hook of `deepspeed.runtime.zenflow.engine`."""
    hooks.join_zenflow(module, CURRENT)


def on_inference_v2(module: ModuleType) -> None:
    """Import hook of the modules of `deepspeed.inference.v2` whose functions are in InferenceCoreBuilder."""
    inference_v2.join(module, CURRENT.get)
