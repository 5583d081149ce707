# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Tensors on the device: typed constructors, and where a tensor is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class TensorInterface(ABC):
    """Constructors are called with data, as `FloatTensor([1.0, 2.0])`, and give a tensor on the device."""

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
        """Whether the tensor's memory is on this kind of device."""
