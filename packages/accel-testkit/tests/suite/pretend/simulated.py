# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A good accelerator on the simulated NPU, and variants that only a device with memory of its own can show.

`main` runs the suite's checks of tensors, devices and streams on the good one, and on each variant the files of the
checks that have to notice it.
"""

import dataclasses
import json
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch_npu
from accel_good.op_builder import TABLE
from accel_good.op_builder.builders import FusedAdamBuilder
from accel_good.runtime import Stream
from broken import VARIANTS, Variant, breaks
from broken import table as table_of
from torch.utils.weak import WeakIdKeyDictionary

from accel_core.device import TorchDeviceAccelerator
from accel_core.op_builder import OpTable
from accel_ops.inference import INFERENCE, TransformerFunctions
from accel_ops.optimizers.fused import ADAM, multi_tensor_adam

_RUNTIME = torch_npu.npu


class Good(TorchDeviceAccelerator):
    """The control."""

    def __init__(self):
        super().__init__("npu", collectives="hccl", ops=OpTable("accel_good.op_builder", {}))

    def visible_devices_envs(self):
        return ["ASCEND_RT_VISIBLE_DEVICES"]


_FILES = ("asynchrony", "device", "tensors", "streams", "random", "memory")
table = partial(table_of, module=__name__, good=Good)


def event(**members):
    """Events with other members."""
    kind = type("Event", (_RUNTIME.Event,), members)
    return property(lambda self: kind)


# --- tensors, devices, memory


class _KeptFunctions(TransformerFunctions):
    def release_workspace(self):
        return True


_Builder = dataclasses.replace(INFERENCE, plain=_KeptFunctions).builder(__name__)


@breaks("op_attention.released_workspace_is_free")
class WorkspaceIsKept(Good):
    """Keys and values stay in memory after release_workspace()."""

    def create_op_builder(self, class_name):
        return _Builder() if class_name == "InferenceBuilder" else super().create_op_builder(class_name)


@breaks("tensors.answer_follows_the_data_of_a_tensor")
class OnAcceleratorOnceIsForGood(Good):
    """It answers once for each tensor object."""

    def __init__(self):
        super().__init__()
        self._answers = WeakIdKeyDictionary()

    def on_accelerator(self, tensor):
        return self._answers.setdefault(tensor, super().on_accelerator(tensor))


table(
    # Its streams are no streams of torch.
    ("StreamsOfItsOwn",
     "asynchrony.device_waits_for_a_stream[stream.wait_stream(other)] "
     "asynchrony.host_waits_for_a_stream[stream.synchronize()] "
     "streams.blocks_nest streams.tensor_remembers_its_streams",
     "Stream", property(lambda self: partial(Stream, 0))),
    ("HostCountsAsDevice", "tensors.device_tensor_is_on_the_accelerator",
     "on_accelerator", lambda self, tensor: True),
    ("OnlyTheCurrentDeviceCounts", "device.constructor_uses_the_current_device[LongTensor]",
     "on_accelerator", lambda self, tensor: (
         Good.on_accelerator(self, tensor) and tensor.device.index == self.current_device())),
)  # fmt: skip

# --- what does not wait

_SYNCHRONIZE = "asynchrony.synchronize_waits"
_HOST = "asynchrony.host_waits_for_a_stream"
_DEVICE = "asynchrony.device_waits_for_a_stream"
_NAMED = "asynchrony.event_makes_the_named_stream_wait"

table(
    ("SynchronizeDoesNothing",
     " ".join((
         *(f"{_SYNCHRONIZE}[{form}]" for form in ("None", "index", "index by name", "nothing")),
         *(f"{_SYNCHRONIZE}_for_its_device[{pair}]" for pair in ("0-1", "1-0", "1-None", "1-1")))),
     "synchronize", lambda self, device_index=None: None),
    ("SynchronizeWaitsForOneStream", f"{_SYNCHRONIZE}[nothing]",
     "synchronize", lambda self, device_index=None: self.current_stream(device_index).synchronize()),
    ("NothingIsInFlight", "asynchrony.synchronized_device_needs_no_wait",
     "is_synchronized_device", lambda self: True),
    ("EventWaitDoesNothing",
     f"{_DEVICE}[default_stream().wait_event(event)] {_DEVICE}[event.wait()] {_DEVICE}[event.wait(stream)] "
     f"{_NAMED}",
     "Event", event(wait=lambda self, stream=None: None)),
    ("EventWaitIgnoresTheStream", _NAMED,
     "Event", event(wait=lambda self, stream=None: _RUNTIME.Event.wait(self))),
    ("EventIsAlwaysDone", "asynchrony.event_that_is_done_is_of_work_that_is",
     "Event", event(query=lambda self: True)),
    ("EventSynchronizeDoesNothing",
     f"{_HOST}[event.record(), event.synchronize()] {_HOST}[event.record(stream), event.synchronize()] "
     "asynchrony.events_are_marks_of_their_own",
     "Event", event(synchronize=lambda self: None)),
)  # fmt: skip


@breaks("streams.stream_is_left_by_an_exception")
class StreamStaysAfterAnException(Good):
    @contextmanager
    def stream(self, stream):
        context = super().stream(stream)
        context.__enter__()
        yield
        context.__exit__(None, None, None)


# --- what waits where work is only queued or asked for

_QUEUEING = "asynchrony.queueing_does_not_wait"


def _synchronized(*arguments):
    multi_tensor_adam(*arguments)
    _RUNTIME.synchronize()


def _in_the_default_stream(*arguments):
    with _RUNTIME.stream(_RUNTIME.default_stream()):
        multi_tensor_adam(*arguments)


def _adam(function):
    op = dataclasses.replace(ADAM, plain=lambda: SimpleNamespace(multi_tensor_adam=function))
    return type("FusedAdamBuilder", (FusedAdamBuilder,), {"OP": op})


class _WithAdam(Good):
    """Something is wrong with its fused Adam."""

    def __init__(self):
        super().__init__()
        self.op_table = TABLE

    def get_op_builder(self, class_name):
        return self.adam if class_name == "FusedAdamBuilder" else super().get_op_builder(class_name)


@breaks("asynchrony.step_does_not_wait[FusedAdamBuilder]")
class StepsSynchronize(_WithAdam):
    adam = _adam(_synchronized)


@breaks("op_devices.call_is_in_the_current_stream[FusedAdamBuilder]")
class AdamIsInTheDefaultStream(_WithAdam):
    adam = _adam(_in_the_default_stream)


_RESOLVED = "asynchrony.resolved_dependency_needs_no_wait"
table(
    ("RangesSynchronize", "asynchrony.asking_does_not_wait[range_push(), range_pop()]",
     "range_push", lambda self, msg, domain=None, category=None: self.synchronize()),
    ("EventsMakeTheHostWait",
     f"{_QUEUEING}[event.wait() of another stream] {_QUEUEING}[event.wait(stream)] "
     f"{_QUEUEING}[stream.wait_event(event)]",
     "Event", event(wait=lambda self, stream=None: self.synchronize())),
    ("ReplaySynchronizes", "asynchrony.replay_does_not_wait",
     "replay_graph", lambda self, graph: (Good.replay_graph(self, graph), self.synchronize())),
    # Work is in the wrong stream.
    ("DependenciesAreResolvedByNobody",
     f"{_RESOLVED}[a read after a write in the default stream] {_RESOLVED}[a read after a write] "
     f"{_RESOLVED}[a write after a read] {_RESOLVED}[memory used again]",
     "resolves_data_dependency", lambda self: True),
)  # fmt: skip


@breaks("asynchrony.replay_is_in_the_current_stream[chosen stream]")
class ReplayIsInTheDefaultStream(Good):
    def replay_graph(self, graph):
        with self.stream(self.default_stream()):
            super().replay_graph(graph)


def failed(variant, folder):
    """Ids of the checks that fail on a class."""
    import accel_testkit.suite as suite

    results = folder / f"{variant.name}.json"
    files = [str(Path(suite.__path__[0]) / f"test_{name}.py") for name in variant.files or _FILES]
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    options = ["-q", "-c", str(folder / "pytest.ini"), "-p", "no:cacheprovider", "-p", "accel_testkit.plugin"]
    target = ["--accel-class", f"{__name__}:{variant.name}", "--results", str(results)]
    pytest.main([*options, *target, *files])
    checks = json.loads(results.read_text(encoding="utf-8"))["checks"]
    return {check["id"] for check in checks if check["outcome"] == "failed"}


def main(out):
    """Run the control and the variants; `out` gets what was not noticed, and the checks that noticed something."""
    with tempfile.TemporaryDirectory() as folder:
        control = sorted(failed(Variant("Good", (), Good), Path(folder)))
        unnoticed = {name: sorted(set(v.fails) - failed(v, Path(folder))) for name, v in VARIANTS.items()}
    proved = sorted({check.partition("[")[0] for variant in VARIANTS.values() for check in variant.fails})
    answer = {"unnoticed": unnoticed, "control": control, "proved": proved}
    Path(out).write_text(json.dumps(answer), encoding="utf-8")
