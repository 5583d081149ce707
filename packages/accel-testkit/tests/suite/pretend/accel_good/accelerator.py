# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator: TorchDeviceAccelerator on the pretended runtime, with pinning and graphs."""

import mmap
import weakref
from contextlib import nullcontext

import torch

from accel_core.device import TorchDeviceAccelerator
from accel_good.op_builder import TABLE
from accel_good.runtime import Graph, TheRuntime
from accel_good.traits import TRAITS


class GOOD_Accelerator(TorchDeviceAccelerator):
    """Two devices of torch's type cpu; device(1) is cpu:1, though torch's tensors forget the index."""

    def __init__(self) -> None:
        self.runtime = TheRuntime.now
        super().__init__("cpu", collectives="gloo", ops=TABLE, traits=TRAITS, device_module=self.runtime)
        self._pinned: dict[int, int] = {}  # first address -> the one after the last
        self._registered: set[int] = set()

    def is_synchronized_device(self):
        return True  # and DeepSpeed records no streams on tensors, which torch cannot do in host memory

    def create_graph(self):
        return Graph()

    def capture_to_graph(self, graph, pool=None, stream=None):
        return nullcontext() if graph is None else self.runtime.graph(graph, pool, stream)

    def replay_graph(self, graph):
        if graph is not None:
            graph.replay()

    def is_current_stream_capturing(self):
        return self.runtime.capturing

    def torch_pin_memory(self, tensor):
        return self._remembered(tensor.clone())

    def torch_empty_pinned(self, tensor, shape):
        return self._remembered(tensor.new_empty(shape))

    def pin_aligned(self, tensor):
        buffer = torch.empty(tensor.nbytes + mmap.PAGESIZE, dtype=torch.uint8)
        aligned = buffer[-buffer.data_ptr() % mmap.PAGESIZE :][: tensor.nbytes]
        return self._remembered(aligned.view(tensor.dtype).view(tensor.shape).copy_(tensor))

    def register_host_memory(self, address, num_bytes):
        if address in self._registered:
            return False
        self._registered.add(address)
        return True

    def unregister_host_memory(self, address):
        if address not in self._registered:
            raise RuntimeError("this memory is not registered")
        self._registered.remove(address)

    def torch_is_pinned(self, tensor):
        return any(first <= tensor.data_ptr() < end for first, end in self._pinned.items())

    def _remembered(self, tensor):
        storage = tensor.untyped_storage()
        self._pinned[storage.data_ptr()] = storage.data_ptr() + storage.nbytes()
        weakref.finalize(tensor, self._pinned.pop, storage.data_ptr(), None)
        return tensor

    def visible_devices_envs(self):
        return ["GOOD_VISIBLE_DEVICES"]

    def export_envs(self):
        return ["GLOO_", "GOOD_"]
