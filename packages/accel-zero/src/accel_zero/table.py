# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The table of methods of DeepSpeed that are replaced, for speed or to fix them, and the state of each in this process.

A new release of DeepSpeed: `accel doctor` names what is off because its source differs. Compare the sources, adapt the
replacement, then add the fingerprint that `method_patch.fingerprint` gives for the new source.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType

from accel_core import env
from accel_core.vendor import deepspeed_folder, distribution_version, in_range
from accel_zero import method_patch
from accel_zero.method_patch import MethodPatch, PatchState

#: The interface of accel-core for which this package was written.
INTERFACE = 2

_log = logging.getLogger("accel_core")
_STAGE_1_AND_2 = "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer"
_STAGE_3 = "deepspeed.runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3"
#: Later releases of the series count, too: the fingerprints decide.
_NEWEST = ">=0.19.8,<0.20"
_WRITER = "what the checkpoint writer saves is complete, and is found when it is loaded"
_MAKER = "DeepSpeed's CPU optimizers read the CPU's maker from /proc/cpuinfo: py-cpuinfo takes seconds"

_STEP_0 = "ZeRO 0 in bf16 and fp16: gradients are converted and unscaled, and parameters copied, all at once"
_NORM = "without ZeRO: one pass finds overflow, and on the CPU the norms, of all gradients"
_MODULES = "ZeRO 3: what is constant for a module is computed once"
_PERSISTENT = "ZeRO 3: a module whose parameters are all persistent skips fetch and release"
_PIECES = "torch's Adam on the CPU updates a large partition in pieces that stay in the cache"
_HOOKS = "the hooks of a gradient look up what the first one of a backward pass has computed"
_ENGINE = "deepspeed.runtime.engine:DeepSpeedEngine"
_PIPE_ENGINE = "deepspeed.runtime.pipe.engine:PipelineEngine"
_PIPE_MODULE = "deepspeed.runtime.pipe.module:PipelineModule"
_ZERO_INIT = "deepspeed.runtime.zero.partition_parameters"
_SCALARS = "a parameter without dimensions, or whose memory is not contiguous, is broadcast"

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
_BUCKETS_2 = (
    ("process_gradients", "9fcdf51b4e2aae5c", ""),
    ("reduce_independent_p_g_buckets_and_remove_grads", "d50e1e1018408300", "zero12_buckets:add_to_bucket"),
    ("reduce_ipg_grads", "1afc75efec539f02", "zero12_buckets:reduce"),
    ("average_tensor", "8714fe05536fe747", "zero12_buckets:average"),
    ("_get_flat_partition_unpadded", "de55d81ad1d95ab8", "zero12_buckets:partition"),
    ("reduce_ready_partitions_and_remove_grads", "1a97251238d3a0a3", ""),
    ("setup_buckets", "51fa6bb821313e67", "zero12_buckets:set_up"),
    ("copy_grads_in_partition", "05b8472624904487", ""),
    ("allreduce_and_scatter", "1feb42e7b8b8129e", ""),
    ("allreduce_no_retain", "bb14f16d5f6ce79a", ""),
    ("clear_grad_attribute", "7238ef32df47ee8b", ""),
    ("get_flat_partition", "729f7638400fe20d", ""),
    ("independent_gradient_partition_epilogue", "0a9c5d44cf173210", ""),
)
_NORM_2 = (
    ("has_overflow_partitioned_grads_serial", "b54b01f27a954af8", "zero12_buckets:overflow"),
    ("get_grad_norm_direct", "3b3896f9c8f3c35c", "zero12_buckets:total_norm"),
    ("has_overflow", "7bb9d1f516f05fc4", ""),
    ("scaled_global_norm", "9b8484b91f2b73df", ""),
    ("step", "5a522828a63eded2", ""),
)
_NORMS = (
    ("get_weight_norm", "6e346b0a19bc8c46", "zero0:weight_norm"),
    ("clip_grad_norm_", "2251781e3b839260", "zero0:clip"),
    ("get_flattened_grad_norm", "810a8b0caef2319a", ""),
    ("get_global_norm", "79a80cb6d87347b1", ""),
)
_STEP_FLAT = (
    ("step", "02451e80aa4e39eb", "zero0:step_flat"),
    ("unscale_and_clip_grads", "1d351399f9d26f40", ""),
    ("_skip_invalid_grad_norm", "396ff2dc1a0013ce", ""),
    ("_get_norm_mask_idx", "7fa1015ee2624d6b", ""),
)
_STEP_EACH = (
    ("step", "a216b50f4d1aa88c", "zero0:step_each"),
    ("unscale_and_clip_grads", "945be1edc930f29d", ""),
    ("_skip_invalid_grad_norm", "6566d51cb66d1508", ""),
)
_RESIDENT = (
    ("pre_sub_module_forward_function", "d3b1cf6db6a02a26", "zero3_resident:before_forward"),
    ("post_sub_module_forward_function", "5da564c60915e92d", "zero3_resident:after_forward"),
    ("pre_sub_module_backward_function", "4404ecd28d93d121", "zero3_resident:before_backward"),
    ("post_sub_module_backward_function", "1551031b69c1e96c", "zero3_resident:after_backward"),
)
_COORDINATOR = (
    ("release_and_reset_all", "7bf0c5a36387c89a", "zero3_resident:release_all"),
    ("fetch_sub_module", "4262b2119359a263", ""),
    ("_fetch_sub_module_impl", "5e4b5038f0b13e31", ""),
    ("release_sub_module", "b072218e295b9f80", ""),
    ("trace_prologue", "4abc209079b69242", ""),
    ("reset_step", "c5327bb7f22137c4", ""),
    ("__release_param", "d1591833bf337f2e", ""),
)
_BUCKETS_3 = (
    ("__add_grad_to_ipg_bucket", "37f91bb25aa27f73", "zero3_resident:add_to_bucket"),
    ("partition_grads", "ef0ab1c41f74894c", "zero3_resident:partition"),
    ("__reduce_and_partition_ipg_grads", "84d08310e73d908e", ""),
    ("__avg_scatter_grads", "039f10e607c5ad2c", ""),
)
_NORM_3 = (
    ("get_grad_norm_direct", "fcf2a730c6c60ea7", "zero3_resident:total_norm"),
    ("_get_norm_groups", "1b079baf0be23588", ""),
)
_OVERFLOW_3 = (("has_overflow", "4778da6df5e7534e", "zero3:find_overflow"),)

SPEEDUPS = (
    MethodPatch(
        "zero2-gradients", _STAGE_1_AND_2, _GRADIENTS_2, releases=_NEWEST,
        reason="ZeRO 1 and 2: one pass accumulates, converts and copies a gradient and computes its norm and overflow",
    ),
    MethodPatch(
        "zero2-gradients", _STAGE_1_AND_2, _GRADIENTS_2_OF_0_18, releases=">=0.18.7,<=0.18.9",
        reason="ZeRO 1 and 2: one pass converts and copies a gradient and computes its norm and overflow",
    ),
    MethodPatch(
        "zero2-step", _STAGE_1_AND_2, _STEP_2, needs="zero2-gradients",
        reason="ZeRO 1 and 2: the optimizer's kernel unscales and clips, and writes the 16-bit parameters",
    ),
    MethodPatch(
        "zero2-average", _STAGE_1_AND_2, _AVERAGE_2, releases=_NEWEST,
        reason="ZeRO 1 and 2: averaging over one rank copies nothing",
    ),
    MethodPatch(
        "zero3-gradients", _STAGE_3, _GRADIENTS_3, releases=_NEWEST,
        reason="ZeRO 3: one pass converts and copies a gradient and computes its norm",
    ),
    MethodPatch(
        "zero3-step", _STAGE_3, _STEP_3, needs="zero3-gradients", releases=_NEWEST,
        reason="ZeRO 3: the optimizer's kernel unscales and clips, and writes the 16-bit parameters",
    ),
    MethodPatch(
        "zero3-average", _STAGE_3, _AVERAGE_3, releases=_NEWEST,
        reason="ZeRO 3: averaging over one rank copies nothing",
    ),
    MethodPatch(
        "zero3-overflow", _STAGE_3, _OVERFLOW_3,
        reason="ZeRO 3, fp16: one pass over the gradients instead of two masks",
    ),
    MethodPatch(
        "zero2-buckets", _STAGE_1_AND_2, _BUCKETS_2, releases=_NEWEST,
        reason="ZeRO 1 and 2: gradients of small parameters are copied and reduced many at a time",
    ),
    MethodPatch(
        "zero2-norm", _STAGE_1_AND_2, _NORM_2, releases=_NEWEST,
        reason="ZeRO 1 and 2: one pass finds overflow, and on the CPU the norms, of all gradients",
    ),
    MethodPatch(
        "zero2-weights", _STAGE_1_AND_2,
        (("_update_model_bit16_weights", "42f4fe07e5dc23d5", "zero12_buckets:point_to_weights"),),
        reason="ZeRO 1 and 2: parameters that are views of the flat tensor already are left alone", releases=_NEWEST,
    ),
    MethodPatch(
        "adam-pieces", _STAGE_1_AND_2, (("_optimizer_step", "eb08e6cc5d6b77ff", "adam_pieces:step_group"),), _PIECES,
        _NEWEST,
    ),
    MethodPatch(
        "adam-pieces", _STAGE_3, (("_optimizer_step", "fe3c9c5813087a7e", "adam_pieces:step_subgroup"),), _PIECES,
        _NEWEST,
    ),
    MethodPatch(
        "backward-hooks", _STAGE_1_AND_2,
        (("create_gradient_handling_hooks", "70ebaa6b131dd312", "backward_hooks:register_hooks"),),
        _HOOKS, _NEWEST,
    ),
    MethodPatch(
        "backward-hooks", "deepspeed.runtime.utils",
        (("count_used_parameters_in_backward", "bd141f90743f0c35", "backward_hooks:count_used"),),
        _HOOKS, _NEWEST,
    ),
    MethodPatch("zero0-step", "deepspeed.runtime.fp16.fused_optimizer:FP16_Optimizer", _STEP_FLAT, _STEP_0, _NEWEST),
    MethodPatch(
        "zero0-step", "deepspeed.runtime.fp16.unfused_optimizer:FP16_UnfusedOptimizer", _STEP_EACH, _STEP_0, _NEWEST
    ),
    MethodPatch("norms", "deepspeed.runtime.utils", _NORMS, _NORM, _NEWEST),
    MethodPatch(
        "norms", "deepspeed.runtime.utils:CheckOverflow",
        (("has_overflow_serial", "95071080e4ed7110", "zero0:overflow"),),
        _NORM, _NEWEST,
    ),
    MethodPatch(
        "ranges", "deepspeed.utils.nvtx", (("instrument_w_nvtx", "7315669a42aed901", ""),),
        "methods have no profiler ranges on accelerators that ignore them", _NEWEST,
        values=(("enable_nvtx", "zero3_engine:Ranges"),),
    ),
    MethodPatch(
        "zero3-modules", _ZERO_INIT, (("print_rank_0", "f65c080b5ffa1730", "zero3_engine:print_on_first"),),
        _MODULES, _NEWEST,
    ),
    MethodPatch(
        "zero3-modules", "deepspeed.runtime.zero.partitioned_param_coordinator",
        (("get_all_parameters", "2b54ab90bd6231a4", "zero3_engine:all_parameters"),), _MODULES, _NEWEST,
    ),
    MethodPatch(
        "zero3-modules", "deepspeed.runtime.zero.parameter_offload:DeepSpeedZeRoOffload",
        (("_register_deepspeed_module", "5e60b31c4a3fc0a4", "zero3_engine:register_module"),), _MODULES, _NEWEST,
    ),
    MethodPatch(
        "zero3-modules", "deepspeed.runtime.zero.linear",
        (("zero3_linear_wrap", "c442a889c33a597e", "zero3_engine:linear"),), _MODULES, _NEWEST,
    ),
    MethodPatch(
        "zero3-persistent", "deepspeed.runtime.zero.parameter_offload:DeepSpeedZeRoOffload", _RESIDENT,
        _PERSISTENT, _NEWEST,
    ),
    MethodPatch(
        "zero3-persistent",
        "deepspeed.runtime.zero.partitioned_param_coordinator:PartitionedParameterCoordinator", _COORDINATOR,
        _PERSISTENT, _NEWEST,
    ),
    MethodPatch(
        "zero3-gather", f"{_ZERO_INIT}:Init",
        (("_allgather_params_coalesced", "d9bd0c9bc9b5a80d", "zero3_engine:gather"),),
        "ZeRO 3: one collective gathers many small parameters", _NEWEST,
    ),
    MethodPatch(
        "zero3-buckets", _STAGE_3, _BUCKETS_3, releases=_NEWEST,
        reason="ZeRO 3: gradients of small parameters are copied once, and added many at a time",
    ),
    MethodPatch(
        "zero3-norm", _STAGE_3, _NORM_3, releases=_NEWEST,
        reason="ZeRO 3: on the CPU one pass computes the norms of all gradients",
    ),
    MethodPatch(
        "checkpoint-writer", "deepspeed.runtime.model_checkpointing.writer_factory:CheckpointWriterFactory",
        (
            ("_setup_for_aio", "d4802782c7a0a5ef cd9b76c76297d9c6", "fast_writer:set_up"),
            ("create_writer", "827bc98cccfa850f", "fast_writer:create"),
            ("release_writer", "15591b3d34b8a7f8", "fast_writer:release"),
        ),
        _WRITER,
    ),
    MethodPatch(
        "checkpoint-writer", "deepspeed.runtime.checkpoint_engine.fast_checkpoint_engine:FastCheckpointEngine",
        (("load", "e5e37e98668459e2", "fast_writer:load"),), _WRITER,
    ),
    MethodPatch(
        "checkpoint-writer", "deepspeed.runtime.model_checkpointing.utils",
        (("create_universal_parallel_info", "373119d3354ac88b", "fast_writer:parallel_info"),), _WRITER,
    ),
    MethodPatch(
        "cpu-maker", "deepspeed.ops.adam.cpu_adam:DeepSpeedCPUAdam",
        (("__init__", "3b749624f45bd5ef 44b14f5bf67501ac 35843cb98de30968", "cpu_maker:construct"),), _MAKER,
    ),
    MethodPatch(
        "cpu-maker", "deepspeed.ops.lion.cpu_lion:DeepSpeedCPULion",
        (("__init__", "8914f41b955f6b24 d01ef4d58047d157 7fbef37f1afd0324", "cpu_maker:construct"),), _MAKER,
    ),
)  # fmt: skip


_fix = functools.partial(MethodPatch, switch=env.FIXES)
FIXES = (
    _fix(
        "pipe-buffers", _PIPE_ENGINE,
        (
            ("_allocate_or_extend_buffers", "765f55e29e4f41da", "fixes:buffer"),
            ("_allocate_buffer", "d71b3aa34834c390", ""),
        ),
        "pipelines of three and more stages: a receive buffer has the dtype of what it receives",
    ),
    _fix(
        "pipe-seeds", _PIPE_MODULE,
        (("_partition_layers", "7898f12510f26b3d 375b991e19f280cd", "fixes:partition_layers"),),
        "seed_layers=True works with Python >= 3.11, and repeats with older ones",
    ),
    _fix(
        "pipe-checkpoints", _PIPE_MODULE, (("forward", "0c4629b298a0d6a6", "fixes:forward"),),
        "activation checkpointing: layers whose inputs need no gradient, such as an embedding, are trained",
    ),
    _fix(
        "pipe-backward", _PIPE_ENGINE, (("_exec_backward_pass", "11f858c9880e51e8", "fixes:backward_pass"),),
        "stages that hand on several float tensors: one backward pass, which checkpointed activations need",
    ),
    _fix(
        "pipe-scaling", _ENGINE, (("_backward_prologue_per_tensor", "a9cf9a58664ac353", "fixes:scale"),),
        "pipelines: gradients are divided by the accumulation steps once, not on each stage", "<0.19",
    ),
    _fix(
        "float32-clipping", _ENGINE, (("clip_fp32_gradients", "0b80ad2f8fa3936f", "fixes:clip"),),
        "ZeRO 0 in float32: the norm is that of all stages of a pipeline; parameters without dimensions are clipped",
    ),
    _fix(
        "scalar-parameters", _ENGINE,
        (("_broadcast_model", "1e2d9f437dd1fe2c", "fixes:broadcast_model"),), _SCALARS, ">=0.19,<0.20",
    ),
    _fix(
        "scalar-parameters", f"{_ZERO_INIT}:Init",
        (
            ("_convert_to_deepspeed_param", "c4b40ce8f1736b0b", "fixes:convert"),
            ("_zero_init_param", "ef49d0f98107947c", ""),
        ),
        _SCALARS, ">=0.19,<0.20",
    ),
    _fix(
        "scalar-parameters", f"{_ZERO_INIT}:InsertPostInitMethodToModuleSubClasses",
        (("patch_init_and_builtins", "c24e5b72c050fbb8", "fixes:patch_apply"),), _SCALARS, ">=0.19,<0.20",
    ),
    _fix(
        "gathered-parameters", f"{_ZERO_INIT}:GatheredParameters",
        (("_exit", "6c4c4cd81500de21", "fixes:leave_gathered"),),
        "GatheredParameters: an edit reaches the float32 parameters; those without dimensions are broadcast",
        ">=0.19,<0.20",
    ),
    _fix(
        "padded-parameters", "deepspeed.runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3",
        (
            ("set_full_hp_param", "d935c7637b1380fe fe22f137100f4617", "fixes:set_full"),
            ("set_local_hp_param", "7980970a3b302c46", ""),
        ),
        "ZeRO 3: safe_set_full_fp32_param and its like take parameters that the ranks divide unevenly",
    ),
    _fix(
        "empty-parameters", f"{_ZERO_INIT}:AllGatherCoalescedHandle",
        (("wait", "5302cbfd0eb823bd dd3f4287ceb95aad", "fixes:wait"),),
        "ZeRO 3 on several ranks: a parameter without elements is gathered with others",
    ),
    _fix(
        "nvme-checkpoints", _ENGINE,
        (
            ("_load_zero_checkpoint", "f96a3e2dff2fd12e", "engine_fixes:load_zero_checkpoint"),
            ("load_checkpoint", "f1dca71f53fc014b 0479aef5c18093a2", "engine_fixes:load_checkpoint"),
        ),
        "checkpoints on NVMe: what cannot be loaded is refused, and states that are not restored are a warning",
    ),
    _fix(
        "mpirun-torchrun", _ENGINE, (("_configure_with_arguments", "12f4b1f287d320d5", "engine_fixes:configure"),),
        "torchrun under mpirun: LOCAL_RANK is not compared with Open MPI's",
    ),
    _fix(
        "zenflow-numbers", "deepspeed.runtime.zenflow.engine",
        (("configure_zenflow", "f539502a8f9b756d", "engine_fixes:configure_zenflow"),),
        "ZenFlow: no losses of NaN, in fp16 and with the update interval auto",
    ),
    _fix(
        "gathered-shapes", "deepspeed.comm.torch:TorchBackend",
        (
            (
                "all_gather_into_tensor", "ebd4e2eacfd255f5 35ba5f3c0894c46f 616720378b0dd169",
                "engine_fixes:all_gather",
            ),
        ),
        "ZeRO++ over gloo: a tensor of any shape is gathered into a vector",
    ),
    _fix(
        "comms-logger", "deepspeed.comm.comm", (("timed_op", "6b514207ccbc3401", ""),),
        "the comms logger: an operation has its own time, and all_gather_object does not end the process", _NEWEST,
        values=(("comms_logger", "engine_fixes:comms_logger"),),
    ),
    _fix(
        "visible-devices", "deepspeed.launcher.runner",
        (
            ("parse_args", "b27b9b2bcba551f0 3172f4e1c9ebd299", "runner:parse_args"),
            ("parse_inclusion_exclusion", "2de055a698a77a50 cdf5fb346758f69d", "runner:choose"),
            ("parse_resource_filter", "958942690f026f50", ""),
        ),
        "the deepspeed command: ranks start on devices of an inherited visible-devices variable only",
    ),
    _fix(
        "compile-backend", "deepspeed.runtime.compiler", (("compile", "a7ffdbcaa4b587fa", "devices:compiler"),),
        "Muon: its functions are compiled by the accelerator's backend, not torch's default",
    ),
    *(
        _fix(
            "accelerator-type", target, tuple((name, known, "") for name, known in relied),
            "modules that name CUDA use the accelerator's device type",
            values=(("torch", "devices:of_accelerator"),),
        )
        for target, *relied in (
            ("deepspeed.runtime.torch_autocast", ("autocast_if_enabled", "00eed9c049f3529d")),
            (
                "deepspeed.runtime.zenflow.engine_stage3", ("update_selected_channels", "0d710abbc023ab12"),
                ("_process_selected_fp32_groups_grad", "00fbf3b3d234c60f d9ec7922a84b3781 584974c770f85ac6"),
            ),
            ("deepspeed.nvme.torch_io:TorchIO_Engine", ("_create_context", "71915ffdd9cee57a")),
            ("deepspeed.nvme.torch_fastio_engine:Torch_FastIO_Engine", ("_create_context", "18db7bdab042706e")),
        )
    ),
    *(
        _fix(
            "named-devices", f"deepspeed.inference.v2.modules.implementations.{target}", (("__init__", known, ""),),
            "inference: buffers of devices without a number, as the CPU",
            values=(("get_accelerator", "devices:named"),),
        )
        for target, known in (
            ("linear.blas_fp_linear:BlasFPLinear", "451128451af857bd"),
            ("post_norm.cuda_post_ln:DSPostLNCUDAModule", "35d65eb4654c828c"),
            ("pre_norm.cuda_pre_ln:DSPreLNCUDAModule", "a95232e1d84697a1"),
            ("pre_norm.cuda_pre_rms:DSPreRMSCUDAModule", "90959e96fa5a76db"),
        )
    ),
)  # fmt: skip


TABLE = (*SPEEDUPS, *FIXES)
#: Modules with replaced methods; accel-core calls `apply` after the import of each.
MODULES = tuple(dict.fromkeys(row.module for row in TABLE))


def apply(module: ModuleType, patches: Iterable[MethodPatch] = TABLE) -> list[PatchState]:
    """Replace the methods of an imported module, as far as their sources are known and no switch is off."""
    _warn_of_unknown_names()
    rows = [row for row in patches if row.module == module.__name__]
    return _in_order(rows, lambda row: method_patch.apply(row, module))


@functools.cache
def _warn_of_unknown_names() -> None:
    for switch in (env.SPEEDUPS, env.FIXES):
        known = dict.fromkeys(row.name for row in TABLE if row.switch is switch)
        for name in switch.names():
            if name not in {"0", "1", *known}:
                _log.warning("%s has an unknown name %r; there are %s", switch.name, name, ", ".join(known))


def restore(module: ModuleType, rows: Iterable[MethodPatch] = SPEEDUPS) -> None:
    """Put the stock methods of an imported module back, for tests and benchmarks that compare the two."""
    for row in rows:
        if row.module == module.__name__:
            method_patch.put_back(row, module)


def examined() -> Iterator[tuple[str, bool, str, str]]:
    """Yield the rows of `accel doctor` (name, on, reason, kind), from the files of DeepSpeed."""
    version, folder = distribution_version("deepspeed") or "", deepspeed_folder()
    fixes = [row for row in FIXES if in_range(version, row.releases)]
    for kind, rows in (("speed-ups", SPEEDUPS), ("fixes", fixes)):
        for state in _in_order(rows, lambda row: method_patch.examine(row, folder)):
            yield state.name, state.on, state.reason, kind


def _in_order(rows: Sequence[MethodPatch], run: Callable[[MethodPatch], PatchState]) -> list[PatchState]:
    """Return one state by name: on if each of its classes has a row that is on, and so has what it needs."""
    found: dict[tuple[str, str], PatchState] = {}

    def of_name(name: str) -> PatchState:
        of_classes = [state for (owner, _), state in found.items() if owner == name]
        return next((state for state in of_classes if not state.on), of_classes[0])

    for row in rows:
        if row.needs and not of_name(row.needs).on:
            state = PatchState(row.name, False, f"needs {row.needs}, which is off")
        else:
            state = run(row)
        key = row.name, row.target
        if key not in found or state.on:
            found[key] = state
    return [of_name(name) for name in dict.fromkeys(name for name, _ in found)]
