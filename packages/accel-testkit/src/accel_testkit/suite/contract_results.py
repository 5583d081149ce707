# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The column of the contract's table that says what a method returns or does: ids of checks, or a reason."""

from __future__ import annotations

Entry = tuple[str, ...] | str

_STEPS = "op_steps.every_step_is_right"
PIN_HOOK = "a hook of pin_memory() and pin_empty(), through which it is checked"
REGISTERS = "only DeepSpeed's native allocator registers memory; what a runtime registers cannot be asked"
RANGES = "no runtime tells which ranges are open"

#: What a method returns or does.
RESULTS: dict[str, Entry] = {
    **{
        name: (f"tensors.constructor_takes_data[{name}]", f"tensors.constructor_keeps_shape_and_precision[{name}]")
        for name in (
            "BFloat16Tensor", "ByteTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor",
        )
    },
    **{
        name: (f"memory.figure_is_a_number_of_bytes[{name}]", *checks)
        for name, checks in {
            "available_memory": (
                "memory.what_is_available_is_part_of_the_total",
                "agreement.cached_memory_is_not_available",
                "memory_figures.available_memory_falls",
                "memory_figures.what_is_held_is_not_available",
                "fresh_processes.memory_that_is_used_first_is_not_available",
            ),
            "max_memory_allocated": (
                "memory.peak_stays",
                "memory_figures.peak_is_no_less_than_the_present",
                "memory_figures.peak_is_the_highest_that_was_allocated",
            ),
            "max_memory_cached": ("memory.old_names_give_the_same_figures",),
            "max_memory_reserved": ("memory.reserved_peak_stays",),
            "memory_allocated": ("memory.allocated_memory_follows_tensors",),
            "memory_cached": ("memory.old_names_give_the_same_figures",),
            "memory_reserved": (
                "memory.reserved_memory_follows_tensors",
                "memory_figures.what_is_reserved_holds_what_is_allocated",
            ),
            "total_memory": (
                "memory.what_is_available_is_part_of_the_total",
                "memory_figures.total_stays",
                "memory_figures.figures_are_sums_of_aligned_blocks",
            ),
        }.items()
    },
    "Event": (
        "events.event_is_done_once_its_work_is",
        "events.events_tell_milliseconds",
        "events.each_event_is_its_own",
        "asynchrony.host_waits_for_a_stream",
        "asynchrony.device_waits_for_a_stream",
        "asynchrony.event_without_a_stream_is_of_the_current_one",
    ),
    "Stream": (
        "streams.streams_wait_for_each_other",
        "streams.stream_can_be_waited_for",
        "asynchrony.host_waits_for_a_stream",
        "asynchrony.device_waits_for_a_stream",
    ),
    "build_extension": ("op_table.extensions_can_be_built", "op_loading.extension_command_takes_options"),
    "capture_to_graph": (
        "graphs.replay_uses_new_data",
        "graphs.code_in_a_capture_is_usable_after_a_replay",
    ),
    "communication_backend_name": ("collectives.backend_has_a_name", "collectives.backend_is_registered"),
    "communication_backend_version": ("agreement.version_of_the_collectives_is_a_version",),
    "create_graph": ("graphs.replay_uses_new_data",),
    "create_op_builder": (
        "op_table.every_op_has_a_builder",
        "op_loading.compatible_op_loads",
        _STEPS,
        "op_devices.op_computes_where_its_tensors_are",
        "op_devices.step_is_in_the_current_stream",
    ),
    "current_device": ("device.current_device_is_an_index", "device.current_device_can_be_set"),
    "current_device_name": ("device.current_device_name_is_that_of_the_current_device",),
    "current_stream": (
        "streams.current_stream_is_the_default_at_first",
        "streams.chosen_stream_is_current_inside",
        "asynchrony.host_waits_for_the_stream_in_use[current_stream]",
    ),
    "default_generator": ("random.default_generator_is_the_one_in_use",),
    "default_stream": (
        "streams.default_stream_stays",
        "asynchrony.host_waits_for_the_stream_in_use[default_stream]",
    ),
    "device": ("device.device_without_an_index_is_the_type",),
    "device_count": ("probe.confirmation_counts_the_devices", "fresh_processes.one_visible_device_is_device_0"),
    "device_name": ("identity.name_is_the_torch_device_type",),
    "empty_cache": ("memory.reserved_memory_follows_tensors",),
    "export_envs": (
        "environment.exports_reach_the_collectives", "environment.exports_leave_out_what_is_a_node_s_own",
    ),
    "get_compile_backend": ("environment.default_compile_backend_is_registered",),
    "get_op_builder": ("op_table.class_and_instance_are_of_one_kind",),
    "get_rng_state": ("random.state_is_a_byte_tensor_on_the_host", "random.restored_state_repeats_the_numbers"),
    "handles_memory_backpressure": (
        "device.answer_is_yes_or_no[handles_memory_backpressure]",
        "agreement.synchronized_device_leaves_nothing_to_do[handles_memory_backpressure]",
        "agreement.runtime_that_waits_for_memory_orders_its_use",
    ),
    "initial_seed": ("random.initial_seed_is_the_seed",),
    "is_available": ("device.device_is_available", "fresh_processes.process_without_a_device_says_so"),
    "is_bf16_supported": (
        "dtypes.list_agrees_with_the_answers[bf16]",
        "agreement.type_that_is_not_declared_missing_is_supported[bf16]",
    ),
    "is_current_stream_capturing": ("graphs.capture_can_be_noticed",),
    "is_fp16_supported": ("dtypes.answer_is_yes_or_no[is_fp16_supported]", "dtypes.list_agrees_with_the_answers[fp16]"),
    "is_fp64_supported": (
        "dtypes.double_precision_computes",
        "agreement.type_that_is_not_declared_missing_is_supported[fp64]",
    ),
    "is_pinned": (
        "pinned_memory.copy_is_pinned",
        "pinned_memory.ordinary_memory_is_not_pinned",
        "pinned_copies.views_of_pinned_memory_are_pinned",
        "pinned_copies.freed_memory_is_not_pinned",
    ),
    "is_synchronized_device": (
        "agreement.synchronized_device_has_no_streams",
        "asynchrony.synchronized_device_needs_no_wait",
        "device.answer_is_yes_or_no[is_synchronized_device]",
    ),
    "is_triton_supported": (
        "dtypes.answer_is_yes_or_no[is_triton_supported]",
        "dtypes.triton_is_not_imported_to_answer",
        "traits.declared_feature_is_missing[triton]",
    ),
    "lazy_call": (
        "lazy_calls.lazy_call_calls",
        "lazy_calls.lazy_calls_keep_their_order_and_errors",
        "fresh_processes.lazy_calls_come_with_the_first_use",
    ),
    "manual_seed": (
        "random.seed_repeats_the_numbers",
        "random.seeds_have_64_bits",
        "random.seeding_the_device_leaves_the_host_alone",
    ),
    "manual_seed_all": ("random.seeding_all_seeds_every_device", "random.seeding_all_seeds_the_current_device"),
    "memory_stats": (
        "memory.stats_have_torch_s_keys",
        "memory.stats_agree_with_the_figures",
        "memory_figures.keys_of_the_stats_mean_what_they_say",
        "memory_figures.counters_of_the_stats_count",
        "memory_figures.stats_keep_their_keys",
    ),
    "on_accelerator": (
        "tensors.device_tensor_is_on_the_accelerator",
        "tensors.host_tensor_is_not_on_the_accelerator",
        "tensors.tensor_elsewhere_is_not_on_the_accelerator",
    ),
    "op_builder_dir": ("op_table.package_of_builders_can_be_imported", "upstream_contract.op_report_lists_the_table"),
    "pin_aligned": ("pinned_memory.copy_has_the_data[align_bytes]", "pinned_copies.whole_pages_begin_at_a_page"),
    "pin_empty": (
        "pinned_memory.empty_buffers",
        "pinned_memory.buffers_are_new_host_memory",
        "pinned_memory.pinned_memory_is_host_memory",
    ),
    "pin_empty_like": ("pinned_memory.empty_buffers", "pinned_memory.buffers_are_new_host_memory"),
    "pin_memory": ("pinned_memory.copy_has_the_data", "pinned_copies.any_tensor_is_copied"),
    "pin_memory_alignment": REGISTERS,
    "prefer_triton_grouped_mm": (
        "dtypes.answer_is_yes_or_no[prefer_triton_grouped_mm]",
        "dtypes.triton_is_not_preferred_without_support",
    ),
    "random": ("random.random_module_can_fork",),
    "range_pop": ("ranges.range_takes_a_message", "ranges.range_takes_a_domain"),
    "range_push": ("ranges.range_takes_a_message", "ranges.range_takes_a_domain"),
    "register_host_memory": REGISTERS,
    "replay_graph": (
        "graphs.replay_uses_new_data",
        "graphs.no_graph_captures_nothing",
        "work_order.replay_is_in_the_current_stream",
    ),
    "reset_max_memory_allocated": ("memory.peak_can_be_reset",),
    "reset_max_memory_cached": ("memory.peak_can_be_reset",),
    "reset_peak_memory_stats": ("memory.peak_can_be_reset", "memory.peak_of_one_device_is_reset_alone"),
    "resolves_data_dependency": (
        "device.answer_is_yes_or_no[resolves_data_dependency]",
        "agreement.synchronized_device_leaves_nothing_to_do[resolves_data_dependency]",
        "work_order.resolved_dependency_needs_no_wait",
    ),
    "set_compile_backend": ("environment.compile_backend_can_be_set", "environment.unknown_compile_backend_is_refused"),
    "set_device": (
        "device.current_device_can_be_set",
        "device.another_device_can_be_current",
        "current_device.device_that_is_set_gets_the_tensors",
        "fresh_processes.rank_uses_the_device_of_its_local_rank",
    ),
    "set_rng_state": ("random.restored_state_repeats_the_numbers", "random.state_of_one_device_is_not_another_s"),
    "set_visible_devices_envs": (
        "environment.visible_devices_are_written",
        "environment.visible_devices_are_the_ids_given",
        "environment.visible_devices_of_this_process_stay",
    ),
    "stream": ("streams.chosen_stream_is_current_inside", "streams.no_stream_leaves_the_stream"),
    "supported_dtypes": ("dtypes.list_begins_with_float32", "dtypes.listed_types_compute"),
    "supports_nvtx_domain": ("ranges.domains_are_a_yes_or_no", "ranges.domain_gets_its_ranges"),
    "synchronize": (
        "device.synchronize_waits_for_the_device",
        "pinned_memory.copy_to_the_device_need_not_block",
        "asynchrony.synchronize_waits",
        "asynchrony.synchronize_waits_for_every_stream",
        "asynchrony.synchronize_waits_for_its_device",
    ),
    "torch_empty_pinned": ("pinned_memory.buffer_without_a_copy",),
    "torch_is_pinned": ("pinned_memory.copy_is_pinned",),
    "torch_pin_memory": ("pinned_memory.copy_has_the_data[plain]",),
    "torch_pins_host_memory": ("pinned_memory.locks_of_torch_are_told",),
    "unpin_memory": ("pinned_memory.memory_can_be_unpinned",),
    "unregister_host_memory": REGISTERS,
    "use_host_timers": ("agreement.events_time_where_there_are_events", "lazy_calls.host_timers_stand_in_for_events"),
    "visible_devices_envs": (
        "environment.visible_devices_have_a_variable",
        "environment.visible_devices_variable_is_its_own",
    ),
}  # fmt: skip
