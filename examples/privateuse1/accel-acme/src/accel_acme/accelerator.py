# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The accel-acme authors
# SPDX-License-Identifier: Apache-2.0
"""Acme card: where it differs from any other device of torch."""

from __future__ import annotations

import torch_acme  # noqa: F401  (registers torch.acme)
from accel_core.device import NoPinnedMemory, NoStreams, TorchDeviceAccelerator
from accel_core.vendor import host_collectives
from typing_extensions import override

from accel_acme.op_builder import TABLE
from accel_acme.traits import TRAITS


class ACME_Accelerator(NoStreams, NoPinnedMemory, TorchDeviceAccelerator):
    """Acme card through torch.acme, gloo between ranks."""

    def __init__(self) -> None:
        host_collectives.register("acme")
        super().__init__(
            "acme",
            collectives="gloo",
            ops=TABLE,
            traits=TRAITS,
        )

    @override
    def export_envs(self) -> list[str]:
        return [
            "ACME",
            "GLOO",
            "LD_LIBRARY",
            "PATH",
        ]

    @override
    def visible_devices_envs(self) -> list[str]:
        return ["ACME_VISIBLE_DEVICES"]
