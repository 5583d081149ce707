# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Broken variants of the good accelerator. Each breaks one thing, and names the checks that have to notice.

Checks that are made by rule for every method (BY_RULE) notice many of them too. A variant that names one of these names
all that notice it; the others name only the checks that were written for them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

EVERYTHING = "*"
#: Files whose checks are made by rule: for each method, op or feature, of all figures, of tensors of all kinds.
BY_RULE = {
    "agreement",
    "answers",
    "current_device",
    "device_index",
    "memory_figures",
    "no_waiting",
    "op_attention",
    "op_compiled",
    "op_devices",
    "op_evoformer",
    "op_file_forms",
    "op_fp_codes",
    "op_fp_quantizer",
    "op_host",
    "op_host_steps",
    "op_inference",
    "op_inference_forms",
    "op_loading",
    "op_norm_extremes",
    "op_plain_forms",
    "op_quantizer",
    "op_quantizer_extremes",
    "op_quantizer_forms",
    "op_quantizer_functions",
    "op_quantizer_sizes",
    "op_refusals",
    "op_results",
    "op_runtime",
    "op_routes",
    "op_settings",
    "op_precision",
    "op_steps",
    "op_strides",
    "pinned_copies",
    "seeds",
    "traits",
}
#: The checks of call shapes: our interface's and the installed DeepSpeed's.
SHAPES = ("identity.call_shapes_are_the_interface_s", "upstream_contract.has_every_method_of_upstream")
#: The checks that count a tensor on `device(i)`.
COUNTED = (
    "memory.allocated_memory_follows_tensors",
    "memory.each_device_has_its_figures",
    "memory.peak_can_be_reset",
    "memory.peak_stays",
    "memory.reserved_memory_follows_tensors",
    "memory.reserved_peak_stays",
)
#: The checks that put a tensor on `device()`.
PLACED = (
    "device.device_without_an_index_is_the_type",
    "device.new_tensors_are_on_the_current_device",
    "dtypes.double_precision_computes",
    "dtypes.listed_types_are_trained_in",
    "dtypes.listed_types_compute",
    "events.event_is_done_once_its_work_is",
    "graphs.capture_can_be_noticed",
    "graphs.capture_ends_with_an_exception",
    "graphs.capture_is_on_its_stream_and_pool",
    "graphs.code_in_a_capture_is_usable_after_a_replay",
    "graphs.each_replay_runs_the_work",
    "graphs.replay_uses_new_data",
    "graphs.two_graphs_are_replayed_in_any_order",
    "graphs.work_in_a_stream_is_no_capture",
    "identity.name_is_the_torch_device_type",
    "lazy_calls.lazy_call_calls",
    "lazy_calls.lazy_call_calls_each_time",
    "lazy_calls.lazy_calls_keep_their_order_and_errors",
    "op_numerics.optimizer_steps_are_right[FusedAdam-AdamW]",
    "op_numerics.optimizer_steps_are_right[FusedAdam-Adam]",
    "pinned_memory.copy_to_the_device_need_not_block",
    "pinned_memory.device_memory_is_not_pinned",
    "pinned_memory.pinned_memory_like_another_is_host_memory[device]",
    "random.restored_state_repeats_the_numbers",
    "random.seed_repeats_the_numbers",
    "random.seeding_all_seeds_the_current_device",
    "random.state_can_be_addressed_by_index",
    "random.state_that_was_read_stays",
    "streams.stream_can_be_waited_for",
    "streams.streams_wait_for_each_other",
    "tensors.answer_follows_the_data_of_a_tensor",
    "tensors.constructor_takes_data",
    "tensors.copies_keep_the_values",
    "tensors.device_tensor_is_on_the_accelerator",
    "tensors.host_tensor_is_not_on_the_accelerator",
)
#: The checks that load an op in plain torch.
PLAIN_OPS = (
    "op_plain.biases_are_those_of_channels",
    "op_plain.evoformer_s_attention_and_gradients",
    "op_plain.numbers_with_an_exponent_come_back",
    "op_plain.signs_are_bits",
    "op_plain.tokens_are_kept_and_put_back",
)
#: The checks of waiting that use events.
EVENT_WAITS = (
    "asynchrony.device_waits_for_a_stream",
    "asynchrony.event_makes_the_named_stream_wait",
    "asynchrony.event_recorded_again_marks_the_later_work",
    "asynchrony.event_that_is_done_is_of_work_that_is",
    "asynchrony.event_without_a_stream_is_of_the_current_one",
    "asynchrony.events_are_marks_of_their_own",
    "asynchrony.host_waits_for_a_stream",
)
#: The checks that see whether work on `device(current_device())` was waited for.
WAITS = (
    *EVENT_WAITS,
    "asynchrony.host_waits_for_the_stream_in_use",
    "asynchrony.synchronize_waits",
    "asynchrony.synchronize_waits_for_every_stream",
    "asynchrony.synchronized_device_needs_no_wait",
    "asynchrony.work_after_an_exception_is_in_the_former_stream",
    "work_order.replay_is_in_the_current_stream",
    "work_order.resolved_dependency_needs_no_wait",
)


#: What the good accelerator cannot be broken in: its memory is the host's. See test_simulated.py.
NEEDS_DEVICE_MEMORY = {
    *WAITS,
    "asynchrony.synchronize_waits_for_its_device",
    "no_waiting.asking_does_not_wait",
    "no_waiting.queueing_does_not_wait",
    "no_waiting.replay_does_not_wait",
    "no_waiting.step_does_not_wait",
    "op_attention.released_workspace_is_free",
    "op_devices.step_is_in_the_current_stream",
    "streams.tensor_remembers_its_streams",
}


@dataclass
class Site:
    """What is on the path of a run: the good package's metadata, and files that take the place of its own.

    metadata, entry_points: text of the installed distribution.
    files:                  path below the folder -> text.
    environment:            variables for the run.
    """

    folder: Path
    metadata: str
    entry_points: str
    files: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text in the run's own copy of the good package; an empty `old` means the end of the file."""
        source = Path(__file__).parents[1] / "accel_good" / path
        text = self.files.get(f"accel_good/{path}") or source.read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {path}"
        self.files[f"accel_good/{path}"] = text.replace(old, new, 1) if old else f"{text}\n{new}"


Patch = Callable[[Site, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Variant:
    """One broken thing.

    fails:   ids of the checks that have to fail; an id without its [parameter] stands for all of them.
    kind:    the broken class, or None where `patch` breaks something else.
    started: the fixture of the suite that starts processes and whose checks are run; empty: all other checks.
    perhaps: ids of checks that notice it where memory happens to be handed out again.
    also:    the beginning of files of which other checks may notice it too: forms of ops share what they try.
    """

    name: str
    fails: tuple[str, ...]
    kind: type | None
    patch: Patch | None
    started: str = ""
    perhaps: tuple[str, ...] = ()
    also: str = EVERYTHING

    @property
    def files(self) -> set[str]:
        """The files of the suite that have its checks, such as `device`; empty for all."""
        return {check.partition(".")[0] for check in self.fails if check != EVERYTHING}

    def counts(self, file: str) -> bool:
        """Return whether it has to name the checks of a file that notice it."""
        return file not in BY_RULE or not self.files.isdisjoint(BY_RULE) or EVERYTHING in self.fails

    def counted(self, failed: set[str]) -> set[str]:
        """Return those of the failed checks that it has to name, without the parameter where it names none."""
        names = (check.partition("[")[0] for check in failed)
        found = {name if name in self.fails else check for name, check in zip(names, failed, strict=True)}
        return {
            check
            for check in found
            if check in self.fails
            or (self.counts(check.partition(".")[0]) and not check.startswith(self.also))
        }


VARIANTS: dict[str, Variant] = {}


def breaks(
    *fails: str, started: str = "", name: str = "", perhaps: tuple[str, ...] = (), also: str = EVERYTHING
) -> Callable[[Any], Any]:
    """Register a broken class, or a function that breaks the site of a run."""

    def register(thing: Any) -> Any:
        kind, patch = (thing, None) if isinstance(thing, type) else (None, thing)
        variant = Variant(name or thing.__name__, fails, kind, patch, started, perhaps, also)
        assert variant.name not in VARIANTS, f"two variants are called {variant.name}"
        VARIANTS[variant.name] = variant
        return thing

    return register


def answers(methods: dict[str, Any], *fails: str, started: str = "") -> None:
    """Register a variant for each method that then only returns the value; `{}` in an id is the method's name."""
    from accel_good.accelerator import GOOD_Accelerator

    for method, value in methods.items():
        name = f"{method}_is_{value!r}".replace(" ", "")
        kind = type(name, (GOOD_Accelerator,), {method: lambda self, *args, value=value, **kwargs: value})
        breaks(*(check.format(method) for check in fails), started=started, name=name)(kind)


def load() -> dict[str, Variant]:
    """All variants, by name."""
    for _, module, _ in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module}")
    return VARIANTS
