# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Device arguments, as the vendors' modules read them: `_get_device_index`, and the errors of an index out of range.

The four kinds of function fail differently, and all vendors' modules but one follow torch.cuda in it: those that
describe a device raise AssertionError, the allocator's and the streams' RuntimeError, the generators' IndexError.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from accel_sim.simulation import Simulation

#: `set_device` and some others do without an index there: torch_npu, torch_mlu and Habana's read None as the current.
_OPTIONAL = ("npu", "mlu", "hpu")


class Indices:
    """How one vendor's module reads device arguments: ints, strings, torch.device, its own `device`, None."""

    def __init__(self, simulation: Simulation) -> None:
        self.type = simulation.type
        self.module: Any = simulation.module
        self.devices = simulation.devices
        self.optional = self.type in _OPTIONAL

    def index(self, device: Any, optional: bool = True, allow_cpu: bool = False) -> int:
        """Return the index; that of the current device for None, or a device without one, if `optional`.

        Raises ValueError for another type's device, and for none if not `optional`.
        """
        if isinstance(device, int):
            return device
        if isinstance(device, str):
            device = torch.device(device)
        if isinstance(device, torch.device):
            self._check_type(device, allow_cpu)
            if device.type == "cpu":
                return -1
            index: int | None = device.index
        else:
            index = getattr(device, "idx", None)  # of the module's own `device`
        if index is not None:
            return index
        if not optional:
            raise ValueError(
                f"Expected a torch.device with a specified index or an integer, but got:{device}"
            )
        return torch.accelerator.current_device_index()

    def to_set(self, device: Any) -> int:
        """Return the index that `set_device` gets; a negative one has no effect."""
        return self.index(device, self.optional)

    def described(self, device: Any, word: str = "device") -> int:
        """Return the index of a device that is described: its name, properties, peers. Raises AssertionError."""
        index = self.index(device)
        if self._has(index):
            return index
        if self.type == "xpu":
            self._raise_range(index)
        raise AssertionError(f"Invalid {word} id")

    def counted(self, device: Any) -> int:
        """Return the index of a device whose memory is counted. Raises RuntimeError."""
        index = self.index(device)
        if not self._has(index):
            raise RuntimeError(f"Invalid device argument {index}: did you call init?")
        return index

    def queued(self, device: Any) -> int:
        """Return the index of a device whose stream is used; a negative one is the current. Raises RuntimeError."""
        index = self.index(device)
        if index < 0:
            return torch.accelerator.current_device_index()
        if not self._has(index):
            self._raise_range(index)
        return index

    def drawn(self, device: Any) -> int:
        """Return the index of a device whose generator is asked for. Raises IndexError.

        torch_npu refuses other types; in the others the type does not matter, and mps has one generator.
        """
        if self.type == "mps":
            return 0
        if isinstance(device, int):
            device = torch.device(self.type, device)
        elif isinstance(device, str):
            device = torch.device(device)
        if self.type == "npu" and device is not None and device.type != "npu":
            raise ValueError(f"{device.type} doesn't match the current accelerator npu.")
        index = self.index(None) if device is None or device.index is None else int(device.index)
        if not self._has(index):
            raise IndexError("tuple index out of range")
        return index

    def monitored(self, device: Any) -> int:
        """Return the index of a device whose load is asked for. Raises the error of the vendor's management library."""
        index = self.index(device)
        if self._has(index):
            return index
        if self.type == "cuda":
            raise RuntimeError(
                f"device {index} is not visible (CUDA_VISIBLE_DEVICES={list(range(self.devices))})"
            )
        if self.type == "xpu":
            raise RuntimeError(f"The device {index} is out of range for Level Zero Sysman.")
        raise AssertionError("Invalid device id")

    def _has(self, index: int) -> bool:
        return 0 <= index < self.devices

    def _check_type(self, device: torch.device, allow_cpu: bool) -> None:
        if device.type == self.type or (allow_cpu and device.type == "cpu"):
            return
        wanted = f"{self.type} or cpu" if allow_cpu else self.type
        raise ValueError(f"Expected a {wanted} device, but got: {device}")

    def _raise_range(self, index: int) -> NoReturn:
        if self.type == "xpu":
            raise RuntimeError(
                f"The device index is out of range. It must be in [0, {self.devices}), but got {index}."
            )
        raise RuntimeError(f"Device index value {index} is out of index range [0, {self.devices})")
