# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""An accelerator that derives from DeepSpeed's own classes: its CPU, under another name and with other builders."""

from __future__ import annotations

import importlib
from typing import Any

from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator


class Classic_Accelerator(CPU_Accelerator):
    """One device in host memory."""

    def __init__(self) -> None:
        super().__init__()
        self._name = "classic"

    def device_count(self) -> int:
        return 1

    def op_builder_dir(self) -> str:
        return "accel_classic.op_builder"

    def get_op_builder(self, class_name: str) -> Any:
        return getattr(importlib.import_module(self.op_builder_dir()), class_name, None)

    def visible_devices_envs(self) -> list[str]:
        return ["CLASSIC_VISIBLE_DEVICES"]
