# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Intel GPUs with Intel Extension for PyTorch: differences from torch.xpu alone."""

from __future__ import annotations

from typing import Any

import intel_extension_for_pytorch  # noqa: F401 - torch.xpu becomes IPEX's
from typing_extensions import override

from accel_xpu import accelerator


class IPEX_Accelerator(accelerator.XPU_Accelerator):
    """Intel GPUs, with torch.xpu and IPEX."""

    @override
    def build_extension(self) -> Any:
        """Return IPEX's command, which compiles SYCL sources of any suffix; torch's only `.sycl`."""
        from intel_extension_for_pytorch.xpu.cpp_extension import DpcppBuildExtension

        return DpcppBuildExtension
