# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks made by rule notice: forgotten indices, state in the object, shared answers, traits that lie.

Mistakes of DeepSpeed's own backends have their row in UPSTREAM_BUGS.md: its checks have to find them.
"""

import itertools
from functools import cache
from types import SimpleNamespace

import torch
from accel_good.accelerator import GOOD_Accelerator as Good
from accel_good.traits import TRAITS

from accel_core.vendor import Support, Trait
from broken import after, breaks, table

_MISSING = Trait.unsupported("nobody has tried this out on the device")
_INDEX = "device_index.index_chooses_the_device"
_REFUSED = "device_index.index_without_a_device_is_refused"

# --- traits


def _with_traits(**traits):
    """A class with other traits."""

    class Declaring(Good):
        def __init__(self):
            super().__init__()
            self.traits = {**TRAITS, **traits}

    return Declaring


for _name in (
    "graphs", "events", "pinned_memory", "bf16", "fp16", "fp64", "reserved_memory", "memory_peaks", "visible_devices"
):  # fmt: skip
    breaks(f"traits.declared_feature_is_missing[{_name}]", name=f"{_name}_are_declared_missing")(
        _with_traits(**{_name: _MISSING})
    )
for _name, _traits, _fails in (
    ("OpIsThereAndDeclaredMissing", {"UtilsBuilder": _MISSING}, "traits.traits_name_features_and_ops"),
    ("IndicesAreDeclaredMissing", {"indexed_devices": _MISSING},
     "traits.declared_feature_is_missing[indexed_devices] device_index.index_of_the_only_device_is_accepted"),
    ("TraitHasNoReason", {"fp16": Trait(Support.UNSUPPORTED, "")}, "traits.traits_name_features_and_ops"),
):  # fmt: skip
    breaks(_fails, name=_name)(_with_traits(**_traits))


@breaks("collectives.declared_operation_fails", started="answers")
class BroadcastIsDeclaredMissing(_with_traits(broadcast=_MISSING)):
    pass


@breaks("training.declared_failure_is_one", started="pair")
class RanksAreDeclaredMissing(_with_traits(zero3_ranks=_MISSING)):
    pass


@breaks("package.declared_change_is_made", started="report")
def change_of_the_environment_is_declared(site, monkeypatch):
    monkeypatch.setitem(TRAITS, "untouched_environment", _MISSING)


@breaks(
    "device_index.index_of_the_only_device_is_accepted[memory_allocated]",
    "traits.declared_feature_is_missing device_index.index_of_no_device_is_treated_alike",
    "device.device_without_an_index_is_the_type memory.asking_leaves_the_cache",
    "answers.answer_has_its_type[memory_allocated]",
)
class OnlyDeviceRefusesItsIndex(_with_traits(indexed_devices=_MISSING)):
    def device(self, device_index=None):
        return super().device(0)

    def memory_allocated(self, device_index=None):
        if device_index is not None:
            raise RuntimeError("there are no indices")
        return super().memory_allocated()


# --- indices

table(
    ("ZeroIsNoIndex", f"{_INDEX}[memory_allocated]",
     "memory_allocated", lambda self, device_index=None: Good.memory_allocated(
         self, 0 if isinstance(device_index, str) else device_index or None)),
    ("NoIndexIsZero", f"{_INDEX}[current_stream]",
     "current_stream", lambda self, device_index=None: Good.current_stream(self, device_index or 0)),
    ("AnyIndexIsTaken",
     f"{_REFUSED}[memory_reserved] {_REFUSED}[memory_cached] {_INDEX}[memory_cached] {_INDEX}[memory_reserved]",
     "memory_reserved", lambda self, device_index=None: Good.memory_reserved(
         self, None if device_index not in (0, 1) else device_index)),
    ("TensorIsDeniedOnDevice1", "device.constructor_uses_the_current_device[LongTensor]",
     "on_accelerator", lambda self, tensor: (
         Good.on_accelerator(self, tensor) and (self.current_device() == 0 or tensor.dtype != torch.int64))),
    ("DeviceObjectsAreDevice0", "device.device_that_is_set_gets_the_tensors[by device-here] "
     "device.device_that_is_set_gets_the_tensors[by device-in a thread]",
     "set_device", lambda self, device_index: Good.set_device(
         self, 0 if isinstance(device_index, torch.device) else device_index)),
    ("AskingChoosesTheDevice", "device.current_device_stays[total_memory]",
     "total_memory", after(Good.total_memory, lambda self, device_index=None: self.set_device(
         self.current_device() if device_index is None else device_index))),
    ("NoDeviceIsDevice0", "device.set_device_with_no_device_changes_nothing[None]",
     "set_device", lambda self, device_index: Good.set_device(self, device_index or 0)),
)  # fmt: skip


@breaks("device.each_thread_has_its_current_device")
class ThreadsShareTheCurrentDevice(Good):
    chosen = 0

    def set_device(self, device_index):
        super().set_device(device_index)
        type(self).chosen = super().current_device()

    def current_device(self):
        super().set_device(type(self).chosen)
        return super().current_device()


# --- answers

_VERSIONS = itertools.count()

table(
    ("QueuedWorkIsTimedOnTheHost",
     "answers.synchronized_device_has_no_streams",
     "is_synchronized_device", lambda self: False,
     "use_host_timers", lambda self: True),
    ("NothingIsOrderedThoughSynchronized", "answers.synchronized_device_has_no_streams",
     "resolves_data_dependency", lambda self: False),
    ("VersionIsText", "answers.version_of_the_collectives_is_a_version",
     "communication_backend_version", lambda self: "2.21.5"),
    # Each object has another one.
    ("VersionIsTheFirstObjects", "answers.answer_stays[communication_backend_version]",
     "communication_backend_version", cache(lambda self: (1, next(_VERSIONS)))),
    ("ExportsAreItsOwnList",
     "answers.answer_is_the_caller_s_own[export_envs] environment.exports_have_what_ranks_need",
     "export_envs", cache(Good.export_envs)),
    # As on mps: there is an event class, and the host's clock is used.
    ("T12_EventIsNone",
     "streams.event_is_done_once_its_work_is streams.events_tell_milliseconds",
     "Event", property(lambda self: None)),
    # As on mps.
    ("T12_HalfTypesAreDenied", "answers.type_that_is_not_declared_missing_is_supported[bf16]",
     "is_bf16_supported", lambda self: False,
     "is_fp16_supported", lambda self: False),
    # As on hpu and xpu.
    ("T28_NothingIsExported", "environment.exports_have_what_ranks_need", "export_envs", lambda self: []),
)  # fmt: skip


@breaks("operators.operator_is_the_hosts[abs] operators.operator_works_where_its_tensors_are[abs]")
class TypeIsListedThatOperatorsLack(Good):
    def supported_dtypes(self):
        return [*super().supported_dtypes(), torch.float8_e4m3fn]


@breaks("identity.runtime_has_every_function")
class RuntimeLacksAFunction(Good):
    def __init__(self):
        super().__init__()
        names = {name: getattr(self.runtime, name) for name in dir(self.runtime) if name != "empty_cache"}
        self.device_module = SimpleNamespace(**names)


@breaks("random.manual_seed_of_torch_seeds_the_device")
class DeviceIsNotSeededByTorch(Good):
    def device(self, device_index=None):
        torch.seed()  # as if the numbers came from elsewhere
        return super().device(device_index)


@breaks("answers.each_compile_backend_can_be_set")
class BackendIsSetBeforeItIsChecked(Good):
    def set_compile_backend(self, backend):
        self._compile_backend = backend
        if backend not in ("eager", "inductor"):
            raise ValueError(backend)
