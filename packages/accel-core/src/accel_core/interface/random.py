# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Random numbers: seeds, states, generators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class RandomInterface(ABC):
    """The random number generators of the devices."""

    @abstractmethod
    def random(self) -> ModuleType:
        """Return the module with `fork_rng`: torch.random."""

    @abstractmethod
    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        """Set the state of the device's generator: a uint8 tensor on the CPU, as returned by `get_rng_state`."""

    @abstractmethod
    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        """Return the state of the device's generator (default: the current device), a uint8 tensor on the CPU."""

    @abstractmethod
    def manual_seed(self, seed: int) -> None:
        """Seed the current device's generator."""

    @abstractmethod
    def manual_seed_all(self, seed: int) -> None:
        """Seed the generators of all devices."""

    @abstractmethod
    def initial_seed(self) -> int:
        """Return the initial seed of the current device's generator."""

    @abstractmethod
    def default_generator(self, device_index: int) -> torch.Generator:
        """Return the default generator of a device."""
