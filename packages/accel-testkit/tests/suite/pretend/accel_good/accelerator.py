# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator: TorchDeviceAccelerator on the pretended runtime, with pinning and graphs."""

from __future__ import annotations

import mmap
import weakref
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_good.op_builder import TABLE
from accel_good.runtime import TheRuntime
from accel_good.streams import Graph
from accel_good.traits import TRAITS


class GOOD_Accelerator(TorchDeviceAccelerator):
    """Two devices of torch's type cpu; device(1) is cpu:1, though torch's tensors forget the index."""

    def __init__(self) -> None:
        self.runtime = TheRuntime.now
        super().__init__("cpu", collectives="gloo", ops=TABLE, traits=TRAITS, device_module=self.runtime)
        self._pinned: dict[int, int] = {}  # first address -> the one after the last
        self._registered: set[int] = set()

    @override
    def is_synchronized_device(self) -> bool:
        return True  # and DeepSpeed records no streams on tensors, which torch cannot do in host memory

    @override
    def create_graph(self) -> Any:
        return Graph()

    @override
    def capture_to_graph(
        self, graph: Any, pool: Any = None, stream: Any = None
    ) -> AbstractContextManager[Any]:
        return nullcontext() if graph is None else self.runtime.graph(graph, pool, stream)

    @override
    def replay_graph(self, graph: Any) -> None:
        if graph is not None:
            graph.replay()

    @override
    def is_current_stream_capturing(self) -> bool:
        return self.runtime.capturing

    @override
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._remembered(tensor.clone())

    @override
    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        return self._remembered(tensor.new_empty(shape))

    @override
    def pin_aligned(self, tensor: torch.Tensor) -> torch.Tensor:
        buffer = torch.empty(tensor.nbytes + mmap.PAGESIZE, dtype=torch.uint8)
        aligned = buffer[-buffer.data_ptr() % mmap.PAGESIZE :][: tensor.nbytes]
        return self._remembered(aligned.view(tensor.dtype).view(tensor.shape).copy_(tensor))

    @override
    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        if address in self._registered:
            return False
        self._registered.add(address)
        return True

    @override
    def unregister_host_memory(self, address: int) -> None:
        if address not in self._registered:
            raise RuntimeError("this memory is not registered")
        self._registered.remove(address)

    @override
    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return any(first <= tensor.data_ptr() < end for first, end in self._pinned.items())

    def _remembered(self, tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        self._pinned[storage.data_ptr()] = storage.data_ptr() + storage.nbytes()
        weakref.finalize(tensor, self._pinned.pop, storage.data_ptr(), None)
        return tensor

    @override
    def visible_devices_envs(self) -> list[str]:
        return ["GOOD_VISIBLE_DEVICES"]

    @override
    def export_envs(self) -> list[str]:
        return ["GLOO_", "GOOD_"]
