# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Devices, processes, streams, graphs, tensors, random numbers: wrong types, wrong indices, ignored arguments."""

import os
import random
import sys
from contextlib import contextmanager, nullcontext, suppress
from functools import cache, partial
from types import ModuleType

import numpy
import torch
from accel_good.accelerator import GOOD_Accelerator as Good
from accel_good.runtime import Event, Stream

from accel_core.errors import InvalidEnvironment
from broken import after, answers, breaks, table

table(
    ("NameDropsIndexZero",
     "device.current_device_name_is_that_of_the_current_device device.device_with_an_index_keeps_it",
     "device_name", lambda self, device_index=None: f"cpu:{device_index}" if device_index else "cpu"),
    ("NotAvailable", "device.device_is_available", "is_available", lambda self: False),
    ("CurrentNameIsTheType", "device.answer_is_of_the_current_device device.current_device_can_be_set",
     "current_device_name", lambda self: "cpu"),
    ("SetDeviceTakesAnyIndex", "device.current_device_can_be_set",
     "set_device", lambda self, device_index: Good.set_device(
         self, device_index if device_index in (0, 1) or not isinstance(device_index, int) else 0)),
    ("SynchronizeReturnsAnEvent", "device.synchronize_takes_each_form",
     "synchronize", lambda self, device_index=None: Event()),
    ("CurrentDeviceIsTheLocalRank", "device.variables_of_a_launcher_choose_nothing",
     "current_device", lambda self: int(os.environ.get("LOCAL_RANK", Good.current_device(self)))),
)  # fmt: skip


@breaks("device.device_that_is_set_gets_the_tensors")
class SameDeviceIsNotSetAgain(Good):
    _last: object = None

    def set_device(self, device_index):
        if device_index != self._last:
            super().set_device(device_index)
            self._last = device_index


@breaks("device.setting_the_current_device_changes_nothing")
class LaunchersChooseADevice(Good):
    _is_set = False

    def current_device(self):
        alone = not self._is_set and os.environ.get("LOCAL_RANK") == "1" and "RANK" not in os.environ
        return 1 if alone else super().current_device()

    def set_device(self, device_index):
        self._is_set = True
        super().set_device(0 if os.environ.get("LOCAL_RANK") == "1" else device_index)


# --- fresh processes: contexts that are opened early, devices that are not visible, machines without one

table(
    ("VisibleDevicesAreIgnored", "processes.process_has_the_devices_that_it_is_shown[one]",
     "device_count", lambda self: 2,
     "is_available", lambda self: True),
    ("CurrentDeviceIsTheRank", "processes.lazy_calls_come_with_the_first_use",
     "current_device", lambda self: int(os.environ.get("RANK", Good.current_device(self))) % 2),
    ("EverythingIsAvailableAtFirst", "processes.lazy_calls_come_with_the_first_use",
     "available_memory", lambda self, device_index=None: self.total_memory(device_index)),
    ("UnusedDevicesHaveNoStream", "processes.lazy_calls_come_with_the_first_use",
     "current_stream", lambda self, device_index=None: (
         Good.current_stream(self, device_index) if device_index in (None, self.current_device()) else {}[0])),
    # Its runtime is initialized by synchronize().
    ("EarlyLazyCallsAreDropped", "processes.lazy_calls_come_with_the_first_use", "ready", False,
     "synchronize", after(Good.synchronize, lambda self, device_index=None: setattr(self, "ready", True)),
     "lazy_call", lambda self, callback: callback() if self.ready else None),
    started="seen", module=__name__,
)  # fmt: skip


@breaks("processes.nothing_is_opened_before_the_first_use", started="seen")
class AskingOpensAContext(Good):
    """Its context belongs to the process that opened it."""

    _opened = 0

    def is_available(self):
        self._opened = self._opened or os.getpid()
        return super().is_available()

    def device(self, device_index=None):
        if self._opened not in (0, os.getpid()):
            raise RuntimeError("Cannot re-initialize the device in forked subprocess")
        return super().device(device_index)


_PROBE = "processes.probe_counts_what_the_process_has"


@breaks(*(f"{_PROBE}[{name}]" for name in ("absent", "none", "one")), started="seen")
def probe_counts_all_devices(site, monkeypatch):
    site.edit("probe.py", "runtime.count_visible()", "runtime.DEVICES")


@breaks("probe.confirmation_tells_of_lists_that_are_refused")
class RefusalIsNotTold(Good):
    """Lists that do not ascend are refused, and confirm() does not say so of a variable that has one."""

    def set_visible_devices_envs(self, current_env, local_accelerator_ids):
        if list(local_accelerator_ids) == [1, 0]:
            raise InvalidEnvironment("no order: 1, 0", do="sort them")
        super().set_visible_devices_envs(current_env, local_accelerator_ids)


# --- streams, events, lazy calls: work elsewhere, events that are never done, callbacks that are forgotten


class Pending(Event):
    def query(self):
        return False


class Waitless(Stream):
    wait_event = None


def _give_streams_that_do_not_wait(self):
    streams = self.device_module.streams
    streams.default[:] = streams.current[:] = [Waitless(0), Waitless(1)]


class Seconds(Event):
    def elapsed_time(self, end):
        return super().elapsed_time(end) / 1000


table(
    ("DefaultStreamIsTheCurrentOne", "streams.default_stream_stays",
     "default_stream", lambda self, device_index=None: Good.current_stream(self, device_index)),
    ("CurrentStreamIsNew", "streams.blocks_nest streams.current_stream_is_the_default_at_first "
     "streams.stream_is_chosen_for_one_thread streams.stream_is_left_by_an_exception "
     "streams.stream_is_of_the_device_named graphs.capture_is_on_its_stream_and_pool",
     "current_stream", lambda self, device_index=None: Stream(device_index or 0)),
    ("StreamsIgnoreTheIndex",
     "device_index.index_chooses_the_device[current_stream] streams.stream_is_of_the_device_named",
     "current_stream", lambda self, device_index=None: Good.current_stream(self)),
    ("StreamsDoNotWait", "asynchrony.device_waits_for_a_stream",
     "__init__", after(Good.__init__, _give_streams_that_do_not_wait)),
    ("EventIsNeverDone", "streams.event_is_done_once_its_work_is", "Event", property(lambda self: Pending)),
    ("EventsTellSeconds", "streams.events_tell_milliseconds", "Event", property(lambda self: Seconds)),
    ("LazyCallForgets", "streams.lazy_call_calls", "lazy_call", lambda self, callback: None),
)  # fmt: skip


@breaks("streams.stream_is_left_by_an_exception")
class StreamSwallowsExceptions(Good):
    @contextmanager
    def stream(self, stream):
        with suppress(RuntimeError), super().stream(stream):
            yield


@breaks("streams.blocks_nest")
class LeavingMeansTheDefaultStream(Good):
    @contextmanager
    def stream(self, stream):
        streams = self.device_module.streams
        try:
            with super().stream(stream):
                yield
        finally:
            streams.current[:] = streams.default


@breaks("streams.event_is_done_once_its_work_is")
class EventsAreAPool(Good):
    _pool = []  # noqa: RUF012

    @property
    def Event(self):
        def take(**settings):
            pool = type(self)._pool
            pool.append(Event(**settings) if len(pool) < 16 else pool.pop(0))
            return pool[-1]

        return take


@breaks("graphs.no_graph_captures_nothing streams.lazy_call_calls")
class ErrorsAreSwallowed(Good):
    def stream(self, stream):
        return suppress(KeyError) if stream is None else super().stream(stream)

    def lazy_call(self, callback):
        with suppress(KeyError):
            return callback()


# --- graphs that do not replay, or capture what they should not

table(
    ("CaptureForgetsItsStream", "graphs.capture_is_on_its_stream_and_pool",
     "capture_to_graph", lambda self, graph, pool=None, stream=None: Good.capture_to_graph(self, graph, pool)),
    ("CaptureForgetsItsPool", "graphs.capture_is_on_its_stream_and_pool", "capture_to_graph",
     lambda self, graph, pool=None, stream=None: Good.capture_to_graph(self, graph, None, stream)),
    ("CaptureIsNotNoticed", "graphs.capture_ends_with_an_exception",
     "is_current_stream_capturing", lambda self: False),
    ("CaptureIsAFunction", "graphs.capture_is_on_its_stream_and_pool "
     "graphs.code_in_a_capture_is_usable_after_a_replay graphs.replay_uses_new_data "
     "graphs.capture_ends_with_an_exception graphs.no_graph_captures_nothing",
     "capture_to_graph", lambda self, graph, pool=None, stream=None: partial(nullcontext, graph)),
    ("OneGraphForAll", "graphs.replay_uses_new_data", "create_graph", cache(Good.create_graph)),
    ("ReplayRunsTheWorkTwice", "graphs.replay_uses_new_data",
     "replay_graph", after(Good.replay_graph, Good.replay_graph)),
    ("ChosenStreamsCapture", "graphs.no_graph_captures_nothing",
     "is_current_stream_capturing", lambda self: (
         Good.is_current_stream_capturing(self) or self.runtime.streams.current != self.runtime.streams.default)),
)  # fmt: skip


@breaks("graphs.capture_is_on_its_stream_and_pool graphs.capture_ends_with_an_exception")
class CaptureSwallowsExceptions(Good):
    @contextmanager
    def capture_to_graph(self, graph, pool=None, stream=None):
        with suppress(LookupError), super().capture_to_graph(graph):
            yield


@breaks("graphs.no_graph_captures_nothing")
class NoGraphIsACapture(Good):
    _inside = False

    @contextmanager
    def capture_to_graph(self, graph, pool=None, stream=None):
        if graph is not None:
            with super().capture_to_graph(graph, pool, stream):
                yield
            return
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def is_current_stream_capturing(self):
        return self._inside or super().is_current_stream_capturing()


# --- data types and tensors: lists that lie, tensors elsewhere


def _constructs(dtype, device):
    return property(lambda self: partial(torch.tensor, dtype=dtype, device=device))


answers({"is_fp64_supported": False}, "tensors.double_precision_computes")
answers(
    {"supported_dtypes": (torch.float32, torch.float16, torch.bfloat16)}, "tensors.list_begins_with_float32"
)
answers(
    {"on_accelerator": False},
    "tensors.device_tensor_is_on_the_accelerator device.constructor_uses_the_current_device",
)
table(
    ("ListForgetsBfloat16", "tensors.list_begins_with_float32",
     "supported_dtypes", lambda self: [torch.float32, torch.float16]),
    ("ListHasATypeThatHoldsNothing",
     "tensors.copies_keep_the_values tensors.listed_types_are_trained_in",
     "supported_dtypes", lambda self: [*Good.supported_dtypes(self), torch.float4_e2m1fn_x2]),
    ("FloatTensor_has_another_type", "tensors.constructor_takes_data[FloatTensor]",
     "FloatTensor", _constructs(torch.float64, "cpu")),
    ("FloatTensor_is_elsewhere",
     "tensors.constructor_takes_data[FloatTensor]",
     "FloatTensor", _constructs(torch.float32, "meta")),
)  # fmt: skip


@breaks("tensors.triton_is_answered_without_it")
class TritonIsImportedToAnswer(Good):
    def is_triton_supported(self):
        sys.modules.setdefault("triton", ModuleType("triton"))
        return False


# --- random numbers: states that are not restored, seeds that reach too few or too many devices

table(
    ("StateIsAList", "random.default_generator_is_the_one_in_use random.restored_state_repeats_the_numbers "
     "random.seed_reaches_its_devices random.state_is_a_byte_tensor_on_the_host "
     "device_index.state_is_restored_on_one_device random.seeding_the_device_leaves_the_host_alone",
     "get_rng_state", lambda self, device_index=None: Good.get_rng_state(self, device_index).tolist()),
    ("ReadingTheStateDraws", "random.recomputation_draws_the_same_numbers",
     "get_rng_state", lambda self, device_index=None: (
         Good.get_rng_state(self, device_index), torch.rand(1))[0]),
    ("StateIsNotRestored",
     "random.restored_state_repeats_the_numbers device_index.state_is_restored_on_one_device",
     "set_rng_state", lambda self, new_state, device_index=None: None),
    ("SeedIsConstant", "random.every_way_to_seed_gives_one_state",
     "manual_seed", lambda self, seed: Good.manual_seed(self, 0)),
    ("SeedReachesAll", "random.seed_reaches_its_devices",
     "manual_seed", lambda self, seed: self.manual_seed_all(seed)),
    ("SeedingAllSeedsOne", "random.seed_reaches_its_devices",
     "manual_seed_all", lambda self, seed: self.manual_seed(seed)),
    ("GeneratorOfItsOwn",
     "random.default_generator_is_the_one_in_use device_index.index_chooses_the_device[default_generator] "
     "device_index.state_is_restored_on_one_device",
     "default_generator", lambda self, device_index: torch.Generator()),
    ("RandomModuleIsPythons", "random.random_module_can_fork", "random", lambda self: random),
    ("SeedsNumpyToo", "random.seeding_the_device_leaves_the_host_alone",
     "manual_seed_all", after(Good.manual_seed_all, lambda self, seed: numpy.random.seed(seed % 2**32))),
)  # fmt: skip


@breaks("random.state_is_a_byte_tensor_on_the_host random.seed_reaches_its_devices")
class StateIsReadIntoOneBuffer(Good):
    def __init__(self):
        super().__init__()
        self._buffers = {}

    def get_rng_state(self, device_index=None):
        index = self.current_device() if device_index is None else device_index
        state = super().get_rng_state(index)
        return self._buffers.setdefault(index, state).copy_(state)
