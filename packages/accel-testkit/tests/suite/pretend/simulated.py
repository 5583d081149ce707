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

from accel_core.device import TorchDeviceAccelerator
from accel_core.op_builder import OpTable

FILES = ("test_device.py", "test_tensors.py", "test_streams.py", "test_random.py", "test_memory.py")


class Good(TorchDeviceAccelerator):
    """The control."""

    def __init__(self) -> None:
        super().__init__("npu", collectives="hccl", ops=OpTable("accel_good.op_builder", {}))

    def visible_devices_envs(self) -> list[str]:
        return ["ASCEND_RT_VISIBLE_DEVICES"]


class RemembersTheDeviceItself(Good):
    """set_device() changes this object, and not the runtime."""

    fails = ("device.new_tensors_are_on_the_current_device",)
    _index = 0

    def set_device(self, device_index: Any) -> None:
        self._index = torch.device(device_index).index if isinstance(device_index, str) else device_index
        if self._index not in range(self.device_count()):
            raise RuntimeError(f"no device {self._index}")

    def current_device(self) -> int:
        return self._index

    def manual_seed(self, seed: int) -> None:
        self.default_generator(self._index).manual_seed(seed)


class StreamsOfItsOwn(Good):
    """Its streams are no streams of torch."""

    fails = (
        "streams.chosen_stream_is_current_inside",
        "streams.default_stream_stays",
        "streams.no_stream_leaves_the_stream",
        "streams.stream_can_be_waited_for",
        "streams.streams_wait_for_each_other",
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
        "tensors.host_tensor_is_not_on_the_accelerator",
        "tensors.tensor_elsewhere_is_not_on_the_accelerator",
    )

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return True


VARIANTS: tuple[Any, ...] = (
    RemembersTheDeviceItself,
    StreamsOfItsOwn,
    ConstructorsStayOnTheHost,
    HostCountsAsDevice,
)


def failed(kind: type, folder: Path) -> list[str]:
    """Ids of the checks that fail on a class."""
    import accel_testkit.suite as suite

    results = folder / f"{kind.__name__}.json"
    files = [str(Path(suite.__path__[0]) / name) for name in FILES]
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    options = ["-c", str(folder / "pytest.ini"), "-p", "no:cacheprovider", "-p", "accel_testkit.plugin"]
    pytest.main(
        [*options, "-q", "--accel-class", f"simulated:{kind.__name__}", "--results", str(results), *files]
    )
    checks = json.loads(results.read_text(encoding="utf-8"))["checks"]
    return sorted(check["id"] for check in checks if check["outcome"] == "failed")


def main(out: str) -> None:
    """Run the control and the variants."""
    with tempfile.TemporaryDirectory() as folder:
        found = {kind.__name__: failed(kind, Path(folder)) for kind in (Good, *VARIANTS)}
    wanted = {kind.__name__: sorted(getattr(kind, "fails", ())) for kind in (Good, *VARIANTS)}
    Path(out).write_text(json.dumps({"found": found, "wanted": wanted}), encoding="utf-8")


if __name__ == "__main__":
    # Under the name by which --accel-class imports it, so that there is one of each class.
    import simulated

    simulated.main(sys.argv[1])
