# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel Gaudi: differences from other torch devices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from habana_frameworks.torch import hpu
from habana_frameworks.torch.utils import experimental
from typing_extensions import override

from accel_core.device import DeviceModule, OneDeviceAccelerator
from accel_hpu import settings, traits
from accel_hpu.op_builder import TABLE
from accel_hpu.probe import MODULES

#: Without HABANA_VISIBLE_MODULES, which differs between nodes, and which no launcher sets again there.
_EXPORTED = [
    *("PT_HPU", "HABANA_LOGS", "HABANA_PLUGINS", "HABANA_PROF", "HABANA_SCAL", "HCCL", "HCL"),
    *("GC_KERNEL_PATH", "LOG_LEVEL", "LD_LIBRARY", "PATH"),
]
#: torch's key -> Habana's. Statistics that Habana does not have (num_alloc_retries, …) are left out.
_STATS = {
    "allocated_bytes.all.current": "InUse",
    "allocated_bytes.all.peak": "MaxInUse",
    "reserved_bytes.all.current": "Limit",
    "reserved_bytes.all.peak": "Limit",
    "allocation.all.current": "ActiveAllocs",
    "allocation.all.allocated": "NumAllocs",
    "allocation.all.freed": "NumFrees",
}


class HPU_Accelerator(OneDeviceAccelerator):
    """Intel Gaudi, with habana_frameworks.torch.hpu and hccl.

    The constructor applies `accel_hpu.settings`, for the whole process.
    """

    def __init__(self) -> None:
        with settings.applied():
            super().__init__(
                "hpu",
                collectives="hccl",
                ops=TABLE,
                traits=traits.of_mode(hpu.is_lazy()),
                # It lacks empty_cache and default_generators, and its synchronize takes no device.
                device_module=cast(DeviceModule, hpu),
                # If Habana's package does not register it, torch.compile says so.
                compile_backend="hpu_backend",
                visible=MODULES,
            )
            self._computes_fp16: bool | None = None
            self._capturing = False
            # If torch does not list hpu as an accelerator, it locks memory for CUDA unless it gets a device.
            self._pinned_for = self._pin_arguments()

    # The runtime orders operations on the same data, and waits if memory is short.

    @override
    def resolves_data_dependency(self) -> bool:
        return True

    @override
    def handles_memory_backpressure(self) -> bool:
        return True

    @override
    def default_generator(self, device_index: int) -> torch.Generator:
        self.checked_index(device_index)
        generator: torch.Generator = hpu.random.default_generators[0]
        return generator

    @override
    def empty_cache(self) -> None:
        pass  # there is no such function: the allocator always holds the whole device

    @override
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        stats = super().memory_stats(device_index)
        return {**stats, **{key: int(stats[habana]) for key, habana in _STATS.items()}}

    @override
    def is_fp16_supported(self) -> bool:
        if self._computes_fp16 is None:
            self._computes_fp16 = bool(experimental._is_fp16_supported())
        return self._computes_fp16

    @override
    @contextmanager
    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> Iterator[Any]:
        if graph is None:
            yield
            return
        # Habana's graphs have no pools. `graph` exists in lazy mode only, as HPUGraph does.
        with cast(Any, hpu).graph(graph, stream=stream):
            self._capturing = True
            try:
                yield
            finally:
                self._capturing = False

    @override
    def is_current_stream_capturing(self) -> bool:
        return self._capturing

    @override
    def torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory(*self._pinned_for)

    @override
    def torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.is_pinned(*self._pinned_for)

    @override
    def torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        return self.torch_pin_memory(tensor.new_empty(shape))  # new_empty() takes no device to lock for

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        """Return the variable of DeepSpeed's own class, which Habana does not read.

        Module ids are not 0 to n-1: numbers of a launcher in HABANA_VISIBLE_MODULES would be another job's modules.
        """
        return ["CUDA_VISIBLE_DEVICES"]
