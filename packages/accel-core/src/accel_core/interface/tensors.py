# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tensors on the device: typed constructors, and a test of a tensor's device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class TensorInterface(ABC):
    """Typed constructors: `FloatTensor([1.0, 2.0])` returns a tensor on the device."""

    @property
    @abstractmethod
    def BFloat16Tensor(self) -> Any:
        """Constructor of bfloat16 tensors on the device."""

    @property
    @abstractmethod
    def ByteTensor(self) -> Any:
        """Constructor of uint8 tensors on the device."""

    @property
    @abstractmethod
    def DoubleTensor(self) -> Any:
        """Constructor of float64 tensors on the device."""

    @property
    @abstractmethod
    def FloatTensor(self) -> Any:
        """Constructor of float32 tensors on the device."""

    @property
    @abstractmethod
    def HalfTensor(self) -> Any:
        """Constructor of float16 tensors on the device."""

    @property
    @abstractmethod
    def IntTensor(self) -> Any:
        """Constructor of int32 tensors on the device."""

    @property
    @abstractmethod
    def LongTensor(self) -> Any:
        """Constructor of int64 tensors on the device."""

    @abstractmethod
    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor is on a device of this type."""
