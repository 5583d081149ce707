# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A good accelerator on the simulated NPU, and variants that only a device with memory of its own can show.

    python -m simulated OUT

runs the suite's checks of tensors, devices and streams on each; OUT gets the ids of the failed ones.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch_npu  # noqa: F401  (registers torch.npu)
from accel_good.streams import Stream
from torch.utils.weak import WeakIdKeyDictionary

from accel_core.device import NoPinnedMemory, TorchDeviceAccelerator
from accel_core.op_builder import OpTable
from accel_core.vendor import Feature, Trait
from accel_ops.inference import InferenceBuilder, TransformerFunctions

FILES = (
    "test_asynchrony.py",
    "test_device.py",
    "test_tensors.py",
    "test_streams.py",
    "test_random.py",
    "test_memory.py",
)


class Good(TorchDeviceAccelerator):
    """The control."""

    def __init__(self) -> None:
        super().__init__("npu", collectives="hccl", ops=OpTable("accel_good.op_builder", {}))

    def visible_devices_envs(self) -> list[str]:
        return ["ASCEND_RT_VISIBLE_DEVICES"]


class RemembersTheDeviceItself(Good):
    """set_device() changes this object, and not the runtime."""

    fails = (
        "asynchrony.synchronize_waits_for_its_device[1-None]",
        "device.device_that_is_set_gets_the_tensors[by index-here]",
        "streams.stream_is_of_the_device_named",
    )
    _index = 0

    def set_device(self, device_index: Any) -> None:
        index = torch.device(device_index).index if isinstance(device_index, str) else device_index
        if index not in range(self.device_count()):
            raise RuntimeError(f"no device {index}")
        self._index = index

    def current_device(self) -> int:
        return self._index

    def manual_seed(self, seed: int) -> None:
        self.default_generator(self._index).manual_seed(seed)


class StreamsOfItsOwn(Good):
    """Its streams are no streams of torch."""

    fails = (
        "asynchrony.device_waits_for_a_stream[stream.wait_stream(other)]",
        "asynchrony.host_waits_for_a_stream[stream.synchronize()]",
        "streams.blocks_nest",
        "streams.tensor_remembers_its_streams",
    )

    @property
    def Stream(self) -> Any:
        return partial(Stream, 0)


class ConstructorsStayOnTheHost(Good):
    """As it is on mps in DeepSpeed 0.19: FloatTensor is torch.FloatTensor."""

    fails = ("tensors.constructor_takes_data[FloatTensor]",)

    @property
    def FloatTensor(self) -> Any:
        return torch.FloatTensor


class HostCountsAsDevice(Good):
    fails = (
        "tensors.tensor_elsewhere_is_not_on_the_accelerator",
        "tensors.tensor_elsewhere_is_not_on_the_accelerator",
    )

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return True


class _KeptFunctions(TransformerFunctions):
    def release_workspace(self) -> bool:
        return True


class _Builder(InferenceBuilder):
    functions = _KeptFunctions


class WorkspaceIsKept(Good):
    """Keys and values stay in memory after release_workspace()."""

    files = ("test_op_attention.py",)
    fails = ("op_attention.released_workspace_is_free",)

    def create_op_builder(self, class_name: str) -> Any:
        return _Builder() if class_name == "InferenceBuilder" else super().create_op_builder(class_name)


class OnlyTheCurrentDeviceCounts(Good):
    fails = ("tensors.tensor_of_any_index_is_on_the_accelerator",)

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return super().on_accelerator(tensor) and tensor.device.index == self.current_device()


class OnAcceleratorOnceIsForGood(Good):
    """It answers once for each tensor object."""

    fails = ("tensors.answer_follows_the_data_of_a_tensor",)

    def __init__(self) -> None:
        super().__init__()
        self._answers = WeakIdKeyDictionary()

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        if tensor not in self._answers:
            self._answers[tensor] = super().on_accelerator(tensor)
        return bool(self._answers[tensor])


class PinningIsDeclaredMissing(NoPinnedMemory, Good):
    """torch pins for it, and it neither says nor does so."""

    files = ("test_pinned_memory.py", "test_traits.py")
    fails = ("traits.declared_feature_is_missing[pinned_memory]",)

    def __init__(self) -> None:
        super().__init__()
        self.traits = {Feature.PINNED_MEMORY: Trait.unsupported("nobody has looked for it")}


VARIANTS: tuple[Any, ...] = (
    WorkspaceIsKept,
    PinningIsDeclaredMissing,
    OnlyTheCurrentDeviceCounts,
    OnAcceleratorOnceIsForGood,
    RemembersTheDeviceItself,
    StreamsOfItsOwn,
    ConstructorsStayOnTheHost,
    HostCountsAsDevice,
)


def failed(kind: Any, folder: Path) -> list[str]:
    """Ids of the checks that fail on a class."""
    import accel_testkit.suite as suite

    results = folder / f"{kind.__name__}.json"
    files = [str(Path(suite.__path__[0]) / name) for name in getattr(kind, "files", FILES)]
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    options = ["-c", str(folder / "pytest.ini"), "-p", "no:cacheprovider", "-p", "accel_testkit.plugin"]
    pytest.main(
        [
            *options,
            "-q",
            "--accel-class",
            f"{kind.__module__}:{kind.__name__}",
            "--results",
            str(results),
            *files,
        ]
    )
    checks = json.loads(results.read_text(encoding="utf-8"))["checks"]
    return sorted(check["id"] for check in checks if check["outcome"] == "failed")


def main(out: str) -> None:
    """Run the control and the variants."""
    import asynchronous
    import waiting
    import work_order

    kinds = (Good, *VARIANTS, *asynchronous.VARIANTS, *waiting.VARIANTS, *work_order.VARIANTS)
    with tempfile.TemporaryDirectory() as folder:
        found = {kind.__name__: failed(kind, Path(folder)) for kind in kinds}
    wanted = {kind.__name__: sorted(getattr(kind, "fails", ())) for kind in kinds}
    unnoticed = {name: sorted(set(checks) - set(found[name])) for name, checks in wanted.items()}
    answer = {"unnoticed": unnoticed, "control": found[Good.__name__]}
    Path(out).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    # Under the name by which --accel-class imports it, so that there is one of each class.
    import simulated

    simulated.main(sys.argv[1])
