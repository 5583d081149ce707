# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Data types the device computes in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class DtypeInterface(ABC):
    """Which floating point types train on this device."""

    @abstractmethod
    def is_bf16_supported(self) -> bool:
        """Whether bfloat16 trains."""

    @abstractmethod
    def is_fp16_supported(self) -> bool:
        """Whether float16 trains."""

    def is_fp64_supported(self) -> bool:
        """Whether float64 computes; nearly every device does."""
        return True

    @abstractmethod
    def supported_dtypes(self) -> list[torch.dtype]:
        """The floating point types that DeepSpeed may train in, float32 first."""

    @abstractmethod
    def is_triton_supported(self) -> bool:
        """Whether Triton kernels run. Answered without importing Triton."""

    def prefer_triton_grouped_mm(self) -> bool:
        """Whether a Triton grouped GEMM beats torch._grouped_mm here."""
        return False
