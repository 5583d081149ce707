# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Rows of the contract's table that no rule gives: ids of checks in a tuple, or the reason why there are none."""

from __future__ import annotations

from accel_testkit.suite.contract_results import PIN_HOOK, RANGES, REGISTERS, Entry

#: Done a second time, beside `answers.answer_stays`.
REPEATS: dict[str, Entry] = {
    "capture_to_graph": ("graphs.capture_can_be_noticed",),
    "create_graph": ("graphs.each_graph_is_its_own",),
    "create_op_builder": ("op_loading.builders_are_new",),
    "default_generator": ("device_index.index_chooses_the_device[default_generator]",),
    "empty_cache": ("memory.reserved_peak_stays",),
    "get_op_builder": ("op_loading.builders_are_new",),
    "is_pinned": ("pinned_memory.copy_is_pinned", "pinned_copies.answer_follows_the_data_of_a_tensor"),
    "lazy_call": ("lazy_calls.lazy_call_calls",),
    "manual_seed": ("random.seed_repeats_the_numbers",),
    "manual_seed_all": ("random.seeding_all_seeds_the_current_device",),
    "on_accelerator": (
        "tensors.device_tensor_is_on_the_accelerator",
        "tensors.answer_follows_the_data_of_a_tensor",
    ),
    "pin_aligned": ("pinned_memory.copy_is_pinned",),
    "pin_empty": ("pinned_memory.empty_buffers",),
    "pin_empty_like": ("pinned_memory.empty_buffers",),
    "pin_memory": ("pinned_memory.copy_is_pinned",),
    "range_pop": ("ranges.range_takes_a_message",),
    "range_push": ("ranges.range_takes_a_message",),
    "register_host_memory": REGISTERS,
    "replay_graph": ("graphs.each_replay_runs_the_work",),
    **dict.fromkeys(
        ("reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats"),
        ("device_index.reset_reaches_one_device",),
    ),
    "set_compile_backend": ("answers.each_compile_backend_can_be_set_again",),
    "set_device": ("current_device.set_device_takes_each_form",),
    "set_rng_state": ("device_index.state_is_restored_on_one_device",),
    "set_visible_devices_envs": ("environment.visible_devices_are_written",),
    "stream": ("streams.no_stream_leaves_the_stream", "streams.blocks_nest"),
    "synchronize": ("device.synchronize_waits_for_the_device",),
    **dict.fromkeys(("torch_empty_pinned", "torch_is_pinned", "torch_pin_memory"), PIN_HOOK),
    "unpin_memory": "frees at once, or does nothing",
    "unregister_host_memory": REGISTERS,
}
_STATELESS = "depends on its arguments alone"
#: A second object, beside `answers.second_object_answers_alike`.
OBJECTS: dict[str, Entry] = {
    "capture_to_graph": ("graphs.two_graphs_are_replayed_in_any_order",),
    "create_op_builder": ("op_loading.builders_are_new", "op_steps.optimizers_do_not_share_anything"),
    "default_generator": ("random.each_device_has_its_generator",),
    "empty_cache": ("memory.each_device_has_its_figures",),
    "get_op_builder": ("op_loading.builders_are_new",),
    "is_pinned": ("pinned_copies.neighbours_of_pinned_memory_are_not_pinned",),
    "lazy_call": _STATELESS,
    "manual_seed": ("random.seed_reaches_the_current_device_alone",),
    "manual_seed_all": ("random.seeding_all_seeds_every_device",),
    "on_accelerator": (
        "current_device.constructor_uses_the_current_device",
        "tensors.tensor_of_any_index_is_on_the_accelerator",
    ),
    **dict.fromkeys(
        ("pin_aligned", "pin_empty_like", "pin_memory"), ("pinned_copies.copy_has_memory_of_its_own",)
    ),
    "pin_empty": _STATELESS,
    "range_pop": RANGES,
    "range_push": RANGES,
    "register_host_memory": REGISTERS,
    "replay_graph": ("graphs.two_graphs_are_replayed_in_any_order",),
    **dict.fromkeys(
        ("reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats"),
        ("device_index.reset_reaches_one_device",),
    ),
    "set_compile_backend": "the choice is the object's",
    "set_device": ("answers.second_object_answers_alike[current_device]",),
    "set_rng_state": ("device_index.state_is_restored_on_one_device",),
    "set_visible_devices_envs": ("environment.visible_devices_of_this_process_stay",),
    "stream": ("streams.each_device_has_its_streams", "streams.stream_of_another_device_is_left"),
    "synchronize": ("asynchrony.synchronize_waits_for_every_stream",),
    **dict.fromkeys(("torch_empty_pinned", "torch_is_pinned", "torch_pin_memory"), PIN_HOOK),
    "unpin_memory": _STATELESS,
    "unregister_host_memory": REGISTERS,
}
_NOTHING_HELD = "holds nothing that an exception could leave behind"
#: Exceptions, nesting, threads.
FAILURES: dict[str, Entry] = {
    "capture_to_graph": (
        "graphs.capture_ends_with_an_exception",
        "traits.absent_streams_and_graphs_change_nothing",
    ),
    **dict.fromkeys(
        (
            "create_op_builder", "default_generator", "empty_cache", "get_op_builder", "is_pinned",
            "manual_seed", "manual_seed_all", "on_accelerator", "pin_aligned", "pin_empty", "pin_empty_like",
            "pin_memory", "replay_graph", "set_visible_devices_envs", "unpin_memory",
        ),
        _NOTHING_HELD,
    ),
    "current_device": ("current_device.each_thread_has_its_current_device",),
    "lazy_call": ("lazy_calls.lazy_calls_keep_their_order_and_errors",),
    "range_pop": ("ranges.range_takes_a_message",),
    "range_push": ("ranges.range_takes_a_message",),
    "register_host_memory": REGISTERS,
    **{
        name: (f"current_device.current_device_stays[{name}]",)
        for name in (
            "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_memory_stats", "synchronize",
            "get_rng_state", "memory_stats", "total_memory", "available_memory",
        )
    },
    "set_compile_backend": ("answers.setting_that_fails_changes_nothing[set_compile_backend]",),
    "set_device": (
        "answers.setting_that_fails_changes_nothing[set_device]",
        "current_device.each_thread_has_its_current_device",
    ),
    "set_rng_state": ("answers.setting_that_fails_changes_nothing[set_rng_state]",),
    "stream": (
        "streams.stream_is_left_by_an_exception",
        "streams.blocks_nest",
        "streams.stream_is_chosen_for_one_thread",
        "traits.absent_streams_and_graphs_change_nothing",
    ),
    **dict.fromkeys(("torch_empty_pinned", "torch_is_pinned", "torch_pin_memory"), PIN_HOOK),
    "unregister_host_memory": REGISTERS,
}  # fmt: skip
