# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel GPUs with Intel Extension for PyTorch: differences from torch.xpu alone."""

from __future__ import annotations

from typing import Any

import intel_extension_for_pytorch as ipex
import torch
from typing_extensions import override

from accel_core.vendor import in_range
from accel_xpu import accelerator


class XPU_Accelerator(accelerator.XPU_Accelerator):
    """Intel GPUs, with torch.xpu and IPEX."""

    def __init__(self) -> None:
        super().__init__()
        self._events_have_no_time = in_range(ipex.__version__, "<2.6")

    @override
    def use_host_timers(self) -> bool:
        """Return True before IPEX 2.6, whose events have no elapsed_time()."""
        return self._events_have_no_time

    @override
    def available_memory(self, device_index: int | None = None) -> int:
        if hasattr(torch.xpu, "mem_get_info"):
            return super().available_memory(device_index)
        return self.total_memory(device_index) - self.memory_allocated(device_index)

    @override
    def build_extension(self) -> Any:
        """Return IPEX's command, which compiles SYCL sources of any suffix; torch's only `.sycl`."""
        from intel_extension_for_pytorch.xpu.cpp_extension import DpcppBuildExtension

        return DpcppBuildExtension
