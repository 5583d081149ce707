# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The probe for devices that no installed package serves, made from a row of the cascade's table.

It answers one question: is there a device here that DeepSpeed's own backend should get? A wheel that
can be imported is not a device.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass

from accel_core import evidence
from accel_core.known import CPU_KEY, Known
from accel_core.vendor import Confirmation, Evidence


@dataclass(frozen=True)
class GenericProbe:
    """Evidence and confirmation for one row of `accel_core.known`."""

    row: Known

    def evidence(self) -> Evidence:
        """Runtime from module or torch build, hardware from device nodes; imports nothing."""
        row = self.row
        if row.platform and sys.platform != row.platform:
            return Evidence(False, False, f"only on {row.platform}, this is {sys.platform}")
        missing = self._missing_runtime()
        if missing:
            return Evidence(False, None, missing)
        have = row.runtime or "this torch"
        if not row.device_nodes:
            return Evidence(True, None, f"{have} is installed")
        nodes = evidence.device_nodes(row.device_nodes)
        if not nodes:
            return Evidence(
                True, False, f"{have} is installed, no device file {' or '.join(row.device_nodes)}"
            )
        return Evidence(True, True, f"{have} is installed, {nodes[0]} exists")

    def _missing_runtime(self) -> str:
        row = self.row
        if row.runtime and not evidence.module_exists(row.runtime):
            return f"{row.runtime} is not installed"
        if not evidence.module_exists("torch"):
            return "torch is not installed"
        if row.torch_build and not any(evidence.torch_build(field) for field in row.torch_build):
            return f"this torch is built without {' or '.join(row.torch_build)}"
        return ""

    def confirm(self) -> Confirmation:
        """Import the runtime, then ask torch.<namespace> for availability and count."""
        if self.row.key == CPU_KEY:
            return Confirmation(1, "always there")
        import torch

        if self.row.runtime:
            importlib.import_module(self.row.runtime)
        namespace = getattr(torch, self.row.namespace)
        count = int(namespace.device_count()) if namespace.is_available() else 0
        return Confirmation(count, f"torch.{self.row.namespace} counts {count}")
