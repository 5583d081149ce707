# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Cambricon MLU: differences from other torch devices."""

from __future__ import annotations

from typing import Any

import torch_mlu
from typing_extensions import override

from accel_core.device import TorchDeviceAccelerator
from accel_mlu import visible
from accel_mlu.op_builder import TABLE
from accel_mlu.traits import TRAITS

_EXPORTED = ["CNCL", "TORCH_CNCL", "NEUWARE_HOME", "PYTORCH_MLU", "TORCH_MLU", "LD_LIBRARY", "PATH"]


class MLU_Accelerator(TorchDeviceAccelerator):
    """Cambricon MLU, with torch.mlu and cncl."""

    def __init__(self) -> None:
        super().__init__(
            "mlu",
            collectives="cncl",
            ops=TABLE,
            traits=TRAITS,
            device_module=torch_mlu.mlu,
            visible=visible.VISIBLE,
        )
        #: Module of profiler ranges; None if torch_mlu is built without CNPX.
        self._ranges: Any = getattr(torch_mlu.mlu, "cnpx", None)

    @override
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> None:
        if self._ranges is not None:
            try:
                self._ranges.range_push(msg)
            except (RuntimeError, AttributeError):
                # A build without CNPX may have the module, but its functions fail.
                self._ranges = None

    @override
    def range_pop(self, domain: str | None = None) -> None:
        if self._ranges is not None:
            self._ranges.range_pop()

    @override
    def is_triton_supported(self) -> bool:
        return True

    @override
    def export_envs(self) -> list[str]:
        return list(_EXPORTED)

    @override
    def visible_devices_envs(self) -> list[str]:
        return visible.variables()
