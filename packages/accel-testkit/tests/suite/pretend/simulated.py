# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A good accelerator on the simulated NPU, and variants that only a device with memory of its own can show.

    python -m simulated OUT

runs the suite's checks of tensors, devices and streams on each; OUT gets the ids of the failed ones.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch_npu
from accel_good.op_builder import TABLE
from accel_good.op_builder.optimizers import PlainTorch
from accel_good.streams import Stream
from torch.utils.weak import WeakIdKeyDictionary

from accel_core.device import TorchDeviceAccelerator
from accel_core.op_builder import OpTable
from accel_ops.fused_optimizers import multi_tensor_adam
from accel_ops.inference import InferenceBuilder, TransformerFunctions

_RUNTIME = torch_npu.npu
FILES = tuple(
    f"test_{name}.py" for name in ("asynchrony", "device", "tensors", "streams", "random", "memory")
)
_STREAMS, _ORDER = ("test_asynchrony.py", "test_streams.py"), ("test_asynchrony.py",)
VARIANTS: dict[str, Any] = {}


class Good(TorchDeviceAccelerator):
    """The control. files: of the suite; fails: ids of the checks that have to fail."""

    files: tuple[str, ...] = FILES
    fails: tuple[str, ...] = ()

    def __init__(self) -> None:
        super().__init__("npu", collectives="hccl", ops=OpTable("accel_good.op_builder", {}))

    def visible_devices_envs(self) -> list[str]:
        return ["ASCEND_RT_VISIBLE_DEVICES"]


def breaks(*fails: str, files: tuple[str, ...] = FILES) -> Any:
    """Register a class, which the runs find by its name."""

    def register(kind: Any) -> Any:
        kind.fails, kind.files = fails, files
        VARIANTS[kind.__name__] = kind
        globals()[kind.__name__] = kind
        return kind

    return register


def broken(name: str, *fails: str, files: tuple[str, ...] = _STREAMS, **members: Any) -> None:
    """Register a good accelerator with other members."""
    breaks(*fails, files=files)(type(name, (Good,), {**members, "__module__": "simulated"}))


def event(name: str, *fails: str, files: tuple[str, ...] = _STREAMS, **members: Any) -> None:
    """Register a good accelerator whose events have other members."""
    kind = type("Event", (_RUNTIME.Event,), members)
    broken(name, *fails, files=files, Event=property(lambda self: kind))


# --- tensors, devices, memory


class _KeptFunctions(TransformerFunctions):
    def release_workspace(self) -> bool:
        return True


class _Builder(InferenceBuilder):
    functions = _KeptFunctions


@breaks("op_attention.released_workspace_is_free", files=("test_op_attention.py",))
class WorkspaceIsKept(Good):
    """Keys and values stay in memory after release_workspace()."""

    def create_op_builder(self, class_name: str) -> Any:
        return _Builder() if class_name == "InferenceBuilder" else super().create_op_builder(class_name)


@breaks("tensors.answer_follows_the_data_of_a_tensor")
class OnAcceleratorOnceIsForGood(Good):
    """It answers once for each tensor object."""

    def __init__(self) -> None:
        super().__init__()
        self._answers = WeakIdKeyDictionary()

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        if tensor not in self._answers:
            self._answers[tensor] = super().on_accelerator(tensor)
        return bool(self._answers[tensor])


# Its streams are no streams of torch.
broken(
    "StreamsOfItsOwn",
    "asynchrony.device_waits_for_a_stream[stream.wait_stream(other)]",
    "asynchrony.host_waits_for_a_stream[stream.synchronize()]",
    "streams.blocks_nest",
    "streams.tensor_remembers_its_streams",
    files=FILES,
    Stream=property(lambda self: partial(Stream, 0)),
)
broken(
    "HostCountsAsDevice",
    "tensors.tensor_elsewhere_is_not_on_the_accelerator",
    files=FILES,
    on_accelerator=lambda self, tensor: True,
)
broken(
    "OnlyTheCurrentDeviceCounts",
    "tensors.tensor_of_any_index_is_on_the_accelerator",
    files=FILES,
    on_accelerator=lambda self, tensor: (
        Good.on_accelerator(self, tensor) and tensor.device.index == self.current_device()
    ),
)

# --- what does not wait

_SYNCHRONIZE = "asynchrony.synchronize_waits"
_FORMS = [f"{_SYNCHRONIZE}[{form}]" for form in ("None", "index", "index by name", "nothing")]
_EVERY_STREAM = "asynchrony.synchronize_waits_for_every_stream"
_ITS_DEVICE = "asynchrony.synchronize_waits_for_its_device"
_HOST = "asynchrony.host_waits_for_a_stream"
_DEVICE = "asynchrony.device_waits_for_a_stream"
_IN_USE = "asynchrony.host_waits_for_the_stream_in_use"
_AGAIN = "asynchrony.event_recorded_again_marks_the_later_work"
_DONE = "asynchrony.event_that_is_done_is_of_work_that_is"
_NAMED = "asynchrony.event_makes_the_named_stream_wait"
_OWN = "asynchrony.events_are_marks_of_their_own"
_AFTER = "asynchrony.work_after_an_exception_is_in_the_former_stream"
_DEFAULT = f"{_DEVICE}[default_stream().wait_event(event)]"
_WAITS = (f"{_DEVICE}[event.wait()]", f"{_DEVICE}[event.wait(stream)]")
_RECORD = f"{_HOST}[event.record(), event.synchronize()]"
_RECORD_IN = f"{_HOST}[event.record(stream), event.synchronize()]"

broken(
    "SynchronizeDoesNothing",
    *_FORMS,
    _EVERY_STREAM,
    *(f"{_ITS_DEVICE}[{pair}]" for pair in ("0-1", "1-0", "1-None", "1-1")),
    synchronize=lambda self, device_index=None: None,
)
broken(
    "SynchronizeWaitsForOneStream",
    _EVERY_STREAM,
    synchronize=lambda self, device_index=None: self.current_stream(device_index).synchronize(),
)
broken(
    "NothingIsInFlight",
    "asynchrony.synchronized_device_needs_no_wait",
    is_synchronized_device=lambda self: True,
)
event(
    "EventWaitDoesNothing",
    *(_DEFAULT, *_WAITS, f"{_AGAIN}[device]", _NAMED),
    wait=lambda self, stream=None: None,
)
event("EventWaitIgnoresTheStream", _NAMED, wait=lambda self, stream=None: _RUNTIME.Event.wait(self))
event("EventIsAlwaysDone", _DONE, query=lambda self: True)
event(
    "EventSynchronizeDoesNothing",
    *(_RECORD, _RECORD_IN, f"{_IN_USE}[event]", f"{_AGAIN}[host]", _OWN),
    synchronize=lambda self: None,
)


@contextmanager
def _staying(self: Any, stream: Any) -> Iterator[None]:
    context = Good.stream(self, stream)
    context.__enter__()
    yield
    context.__exit__(None, None, None)


broken("StreamStaysAfterAnException", _AFTER, "streams.stream_is_left_by_an_exception", stream=_staying)

# --- what waits where work is only queued or asked for

_ASKING = "asynchrony.asking_does_not_wait"
_QUEUEING = "asynchrony.queueing_does_not_wait"


class _Adam(PlainTorch):
    """Fused Adam, of which something is wrong."""

    NAME = "fused_adam"
    step: Any

    def load(self, verbose: bool = True) -> Any:
        return SimpleNamespace(multi_tensor_adam=type(self).step)


def _synchronized(*arguments: Any) -> None:
    multi_tensor_adam(*arguments)
    _RUNTIME.synchronize()


def _in_the_default_stream(*arguments: Any) -> None:
    with _RUNTIME.stream(_RUNTIME.default_stream()):
        multi_tensor_adam(*arguments)


class _Synchronized(_Adam):
    step = staticmethod(_synchronized)


class _InTheDefaultStream(_Adam):
    step = staticmethod(_in_the_default_stream)


broken(
    "RangesSynchronize",
    f"{_ASKING}[range_push(), range_pop()]",
    files=_ORDER,
    range_push=lambda self, msg, domain=None, category=None: self.synchronize(),
)
event(
    "EventsMakeTheHostWait",
    *(f"{_QUEUEING}[event.wait() of another stream]", f"{_QUEUEING}[event.wait(stream)]"),
    f"{_QUEUEING}[stream.wait_event(event)]",
    files=_ORDER,
    wait=lambda self, stream=None: self.synchronize(),
)
broken(
    "ReplaySynchronizes",
    "asynchrony.replay_does_not_wait",
    files=_ORDER,
    replay_graph=lambda self, graph: (Good.replay_graph(self, graph), self.synchronize()),
)
broken(
    "StepsSynchronize",
    "asynchrony.step_does_not_wait[FusedAdamBuilder]",
    files=_ORDER,
    get_op_builder=lambda self, class_name: (
        _Synchronized if class_name == "FusedAdamBuilder" else TABLE.builder(class_name, "npu", {})
    ),
)

# --- work in the wrong stream

_RESOLVED = "asynchrony.resolved_dependency_needs_no_wait"
_REPLAY = "asynchrony.replay_is_in_the_current_stream"


def _in_the_default(self: Any, graph: Any) -> None:
    with self.stream(self.default_stream()):
        Good.replay_graph(self, graph)


broken(
    "DependenciesAreResolvedByNobody",
    f"{_RESOLVED}[a read after a write in the default stream]",
    f"{_RESOLVED}[a read after a write]",
    f"{_RESOLVED}[a write after a read]",
    f"{_RESOLVED}[memory used again]",
    files=_ORDER,
    resolves_data_dependency=lambda self: True,
)
broken("ReplayIsInTheDefaultStream", f"{_REPLAY}[chosen stream]", files=_ORDER, replay_graph=_in_the_default)


@breaks("op_devices.step_is_in_the_current_stream[FusedAdamBuilder]", files=("test_op_devices.py",))
class AdamIsInTheDefaultStream(Good):
    def __init__(self) -> None:
        super().__init__()
        self.op_table = TABLE

    def get_op_builder(self, class_name: str) -> Any:
        return _InTheDefaultStream if class_name == "FusedAdamBuilder" else super().get_op_builder(class_name)


def failed(kind: Any, folder: Path) -> list[str]:
    """Ids of the checks that fail on a class."""
    import accel_testkit.suite as suite

    results = folder / f"{kind.__name__}.json"
    files = [str(Path(suite.__path__[0]) / name) for name in kind.files]
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    options = ["-q", "-c", str(folder / "pytest.ini"), "-p", "no:cacheprovider", "-p", "accel_testkit.plugin"]
    target = ["--accel-class", f"{kind.__module__}:{kind.__name__}", "--results", str(results)]
    pytest.main([*options, *target, *files])
    checks = json.loads(results.read_text(encoding="utf-8"))["checks"]
    return sorted(check["id"] for check in checks if check["outcome"] == "failed")


def main(out: str) -> None:
    """Run the control and the variants."""
    kinds = (Good, *VARIANTS.values())
    with tempfile.TemporaryDirectory() as folder:
        found = {kind.__name__: failed(kind, Path(folder)) for kind in kinds}
    unnoticed = {kind.__name__: sorted(set(kind.fails) - set(found[kind.__name__])) for kind in kinds}
    proved = sorted({check.partition("[")[0] for kind in kinds for check in kind.fails})
    answer = {"unnoticed": unnoticed, "control": found[Good.__name__], "proved": proved}
    Path(out).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    # Under the name by which --accel-class imports it, so that there is one of each class.
    import simulated

    simulated.main(sys.argv[1])
