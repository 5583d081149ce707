# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The table of methods of DeepSpeed that are replaced for speed, and the state of each in this process.

A new release of DeepSpeed: `accel doctor` names what is off because its source differs. Compare the sources, adapt the
replacement, then add the fingerprint that `patches.fingerprint` gives for the new source.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import ModuleType

from accel_core.vendor import deepspeed_folder, distribution_version, in_range
from accel_ops.offload import fast_writer, fixes, patches
from accel_ops.offload.patches import MethodPatch, Status

_log = logging.getLogger("accel_core")
_STAGE_1_AND_2 = "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer"
_STAGE_3 = "deepspeed.runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3"
#: Later releases of the series count, too: the fingerprints decide.
_NEWEST, _ALL_RELEASES = ">=0.19.8,<0.20", ">=0.18.7,<0.20"

# Rows of (method, fingerprints of known sources, replacement). Methods without a replacement are relied upon.
_GRADIENTS_2 = (
    ("set_norm_for_param_grad_in_gpu", "16b37b737c514f40", "zero12:norm"),
    ("update_offload_overflow_tracker_for_param_grad", "30a38ebc97695bf8", "zero12:track_overflow"),
    ("async_inplace_copy_grad_to_fp32_buffer_from_gpu", "9ddd3b9dd8ae0da4", "zero12:copy"),
    ("complete_grad_norm_calculation_for_cpu_offload", "b1686d2400bfaf1d", "zero12:complete_norm"),
    ("reset_cpu_buffers", "50795fc20d85439b", "zero12:forget"),
    ("copy_grads_in_partition", "05b8472624904487", "zero12:copy_in_partition"),
    ("async_accumulate_grad_in_cpu_via_gpu", "ea280a89910f7c88", "zero12:accumulate"),
    ("update_offload_overflow_tracker", "6a06114fc6fb1944", ""),
    ("clear_grad_attribute", "7238ef32df47ee8b", ""),
    ("get_param_gradient_attribute", "3ec9927d2f4c8067", ""),
    ("get_grad_position", "97a9e53c63ac3717", ""),
    ("_restore_cpu_offload_grad_to_gpu", "5b2788ba4bc12318", ""),
    ("_finalize_cpu_offload_gradient_accumulation", "70351eabeda266ca", ""),
)
_GRADIENTS_2_OF_0_18 = (
    ("set_norm_for_param_grad_in_gpu", "0e6f2d77c725c057", "zero12:norm"),
    ("update_offload_overflow_tracker_for_param_grad", "30a38ebc97695bf8", "zero12:track_overflow"),
    ("async_inplace_copy_grad_to_fp32_buffer_from_gpu", "4188257d988ac36b", "zero12:copy"),
    ("complete_grad_norm_calculation_for_cpu_offload", "b1686d2400bfaf1d", "zero12:complete_norm"),
    ("reset_cpu_buffers", "81037ca908716d2a", "zero12:forget"),
    ("copy_grads_in_partition", "896a7fb967d02566", ""),
    ("async_accumulate_grad_in_cpu_via_gpu", "60ab9203eb0df89c", ""),
    ("update_offload_overflow_tracker", "6a06114fc6fb1944", ""),
    ("clear_grad_attribute", "7238ef32df47ee8b", ""),
    ("get_param_gradient_attribute", "3ec9927d2f4c8067", ""),
    ("get_grad_position", "2a9249c2d8b7c56d", ""),
)
_STEP_2 = (
    ("unscale_and_clip_grads", "ed40ae4f6d6bd111 442d76d83f02048f", "zero12:unscale"),
    ("_optimizer_step", "eb08e6cc5d6b77ff", "zero12:step_group"),
    ("reset_cpu_buffers", "50795fc20d85439b 81037ca908716d2a", "zero12:reset"),
    ("step", "5a522828a63eded2 44750b4ab49af6bb", ""),
)
_AVERAGE_2 = (
    ("average_tensor", "8714fe05536fe747", "zero12:average"),
    ("allreduce_and_scatter", "1feb42e7b8b8129e", ""),
    ("allreduce_and_copy_with_multiple_ranks", "f8921afc1aa0f0f9", ""),
    ("allreduce_bucket", "9536df5f99374aca", ""),
    ("gradient_reduction_w_predivide", "9590fc512fbf7380", ""),
)
_GRADIENTS_3 = (
    ("_offload_grad_partition_at_boundary", "9eea82cddee25fcf", "zero3:copy_at_boundary"),
    ("complete_grad_norm_calculation_for_cpu_offload", "7dd98e51c7ca6997", "zero3:complete_norm"),
    ("reset_cpu_buffers", "9644eb97084ab048", "zero3:reset"),
    ("partition_grads", "ef0ab1c41f74894c", ""),
    ("_constant_buffered_norm2", "0e40fbdf9b3d5ffd", ""),
    ("set_grad_positions", "023eaac7f300e630", ""),
    ("_finalize_offload_gradient_accumulation", "679a033b22b124c6", ""),
)
_AVERAGE_3 = (
    ("__avg_scatter_grads", "039f10e607c5ad2c", "zero3:average"),
    ("__reduce_and_partition_ipg_grads", "84d08310e73d908e", ""),
    ("_gradient_averaging_world_size", "77fdfca8ba1e450f", ""),
    ("_get_param_partition_group", "08a05273f480121b", ""),
    ("partition_grads", "ef0ab1c41f74894c", ""),
)
_STEP_3 = (
    ("unscale_and_clip_grads", "0fe1c92e67ff4e17", "zero3:unscale"),
    ("_optimizer_step", "fe3c9c5813087a7e", "zero3:step_group"),
    ("_reassign_or_swap_out_partitioned_parameters", "082dcb44891af112", "zero3:reassign"),
    ("step", "588aaf2c337d5634", ""),
)
_OVERFLOW_3 = (("has_overflow", "4778da6df5e7534e", "zero3:find_overflow"),)

SPEEDUPS = (
    MethodPatch(
        "zero2-gradients", _STAGE_1_AND_2, _NEWEST, methods=_GRADIENTS_2,
        reason="ZeRO 1 and 2: one pass accumulates, converts and copies a gradient and computes its norm and overflow",
    ),
    MethodPatch(
        "zero2-gradients", _STAGE_1_AND_2, ">=0.18.7,<=0.18.9", methods=_GRADIENTS_2_OF_0_18,
        reason="ZeRO 1 and 2: one pass converts and copies a gradient and computes its norm and overflow",
    ),
    MethodPatch(
        "zero2-step", _STAGE_1_AND_2, _ALL_RELEASES, methods=_STEP_2, needs="zero2-gradients",
        reason="ZeRO 1 and 2: the optimizer's kernel unscales and clips, and writes the 16-bit parameters",
    ),
    MethodPatch(
        "zero2-average", _STAGE_1_AND_2, _NEWEST, methods=_AVERAGE_2,
        reason="ZeRO 1 and 2: averaging over one rank copies nothing",
    ),
    MethodPatch(
        "zero3-gradients", _STAGE_3, _NEWEST, methods=_GRADIENTS_3,
        reason="ZeRO 3: one pass converts and copies a gradient and computes its norm",
    ),
    MethodPatch(
        "zero3-step", _STAGE_3, _NEWEST, methods=_STEP_3, needs="zero3-gradients",
        reason="ZeRO 3: the optimizer's kernel unscales and clips, and writes the 16-bit parameters",
    ),
    MethodPatch(
        "zero3-average", _STAGE_3, _NEWEST, methods=_AVERAGE_3,
        reason="ZeRO 3: averaging over one rank copies nothing",
    ),
    MethodPatch(
        "zero3-overflow", _STAGE_3, _ALL_RELEASES, methods=_OVERFLOW_3,
        reason="ZeRO 3, fp16: one pass over the gradients instead of two masks",
    ),
)  # fmt: skip
#: What ACCEL_SPEEDUPS and ACCEL_FIXES name.
_ALL = (*SPEEDUPS, *fast_writer.CHANGES, *fixes.FIXES)
#: The modules that have replaced methods.
MODULES = tuple(dict.fromkeys(speedup.module for speedup in SPEEDUPS))


def join(module: ModuleType) -> None:
    """Import hook of modules with such methods: replace what is on. Never raises; a failure leaves stock DeepSpeed."""
    for switch, name in patches.unknown_names(_ALL):
        known = ", ".join(dict.fromkeys(speedup.name for speedup in _ALL if speedup.switch is switch))
        _log.warning("%s has an unknown name %r; there are %s", switch.name, name, known)
    try:
        apply(module)
    except Exception:
        _log.exception("stock DeepSpeed for %s", module.__name__)


def apply(module: ModuleType) -> list[Status]:
    """Replace the methods of an imported module, as far as their sources are known and no switch is off."""
    rows = [row for row in (*SPEEDUPS, *fixes.FIXES) if row.module == module.__name__]
    return _in_order(rows, lambda row: patches.apply(row, module))


def restore(module: ModuleType) -> None:
    """Put the stock methods of an imported module back."""
    for speedup in SPEEDUPS:
        if speedup.module == module.__name__:
            patches.restore(speedup, module)


def examined() -> list[Status]:
    """Return what a process that imports deepspeed would speed up, from DeepSpeed's files. Imports nothing of it."""
    return _examined((*SPEEDUPS, *fast_writer.CHANGES))


def examined_fixes() -> list[Status]:
    """Return which faults of the installed release it would fix."""
    version = distribution_version("deepspeed") or ""
    return _examined([row for row in fixes.FIXES if in_range(version, row.releases)])


def _examined(rows: Sequence[MethodPatch]) -> list[Status]:
    folder = deepspeed_folder()
    return _in_order(rows, lambda row: patches.examine(row, folder))


def _in_order(speedups: Sequence[MethodPatch], run: Callable[[MethodPatch], Status]) -> list[Status]:
    """Return one status by name: on if each of its classes has a row that is on, and so has what it needs."""
    found: dict[tuple[str, str], Status] = {}

    def state(name: str) -> Status:
        of_classes = [status for (owner, _), status in found.items() if owner == name]
        return next((status for status in of_classes if not status.on), of_classes[0])

    for row in speedups:
        if row.needs and not state(row.needs).on:
            status = Status(row.name, False, f"needs {row.needs}, which is off")
        else:
            status = run(row)
        key = row.name, row.target
        if key not in found or status.on:
            found[key] = status
    return [state(name) for name in dict.fromkeys(name for name, _ in found)]
