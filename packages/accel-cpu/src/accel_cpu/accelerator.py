# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The CPU as an accelerator: differences from other torch devices."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import override

from accel_core.device import NoPinnedMemory, NoStreams, TorchDeviceAccelerator
from accel_core.vendor import launched
from accel_cpu import backends, launch, probe
from accel_cpu.memory import ProcessMemory
from accel_cpu.op_builder import TABLE
from accel_cpu.traits import TRAITS

_CPU = torch.device("cpu")
#: torch has one generator for the CPU, whatever the index.
_GENERATOR = {
    "get_rng_state": lambda device=None: torch.get_rng_state(),
    "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
    "manual_seed": torch.manual_seed,
    "manual_seed_all": torch.manual_seed,
    "initial_seed": torch.initial_seed,
}


class CPU_Accelerator(ProcessMemory, NoStreams, NoPinnedMemory, TorchDeviceAccelerator):
    """One device per NUMA node, or per rank of a launcher; torch has one device `cpu` for all of them.

    The launcher binds a process to CPUs; an index only distinguishes ranks. Memory is that of the process.
    Streams and events are None: DeepSpeed then does not wait, and measures time with the host's clock.
    """

    def __init__(self) -> None:
        super().__init__(
            "cpu",
            collectives=backends.SHM,
            ops=TABLE,
            traits=TRAITS,
            fallbacks=_GENERATOR,
        )
        self._index: int | None = None
        backends.register_backend()

    @override
    def device(self, device_index: int | None = None) -> torch.device:
        return _CPU

    @override
    def device_name(self, device_index: int | None = None) -> str:
        return "cpu"

    @override
    def current_device_name(self) -> str:
        return "cpu"

    @override
    def set_device(self, device_index: int) -> None:
        # torch's set_device also takes devices and their names; "cpu" names no index.
        if isinstance(device_index, int):
            self._index = device_index

    @override
    def current_device(self) -> int:
        return (launched().local_rank or 0) if self._index is None else self._index

    @override
    def device_count(self) -> int:
        return probe.confirm().devices

    @override
    def default_generator(self, device_index: int) -> torch.Generator:
        return torch.default_generator

    @property
    @override
    def Event(self) -> None:
        return None

    @override
    def is_bf16_supported(self) -> bool:
        return True

    @override
    def is_fp16_supported(self) -> bool:
        try:
            return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
        except (AttributeError, RuntimeError):
            return False  # a torch built without oneDNN

    @override
    def tensor_constructor(self, dtype: torch.dtype) -> Any:
        return getattr(torch, torch.empty(0, dtype=dtype, device=_CPU).type().removeprefix("torch."))

    @override
    def communication_backend_name(self) -> str:
        return backends.choose().backend

    @override
    def export_envs(self) -> list[str]:
        return list(launch.EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return [launch.VISIBLE_DEVICES.name]
