# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Data types that the device supports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class DtypeInterface(ABC):
    """The floating point types that can be used for training."""

    @abstractmethod
    def is_bf16_supported(self) -> bool:
        """Return whether models can be trained in bfloat16."""

    @abstractmethod
    def is_fp16_supported(self) -> bool:
        """Return whether models can be trained in float16."""

    def is_fp64_supported(self) -> bool:
        """Return whether float64 is supported, as it is on nearly every device."""
        return True

    @abstractmethod
    def supported_dtypes(self) -> list[torch.dtype]:
        """Return the floating point types that DeepSpeed may train in, float32 first."""

    @abstractmethod
    def is_triton_supported(self) -> bool:
        """Return whether Triton kernels run. Does not import Triton."""

    def prefer_triton_grouped_mm(self) -> bool:
        """Return whether a Triton grouped GEMM is faster than torch._grouped_mm here."""
        return False
