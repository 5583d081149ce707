# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Launching: collectives, environment variables of other processes, torch.compile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableMapping, Sequence


class LaunchInterface(ABC):
    """What a launcher has to know to start ranks on this device."""

    _communication_backend_name: str | None
    _compile_backend: str | None

    @abstractmethod
    def communication_backend_name(self) -> str:
        """Name for torch.distributed.init_process_group: `hccl`, `gloo`, …"""

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Version of the collective library, None when it cannot be told."""
        return None

    @abstractmethod
    def export_envs(self) -> list[str]:
        """Prefixes of the environment variables that remote ranks need."""

    @abstractmethod
    def visible_devices_envs(self) -> list[str]:
        """Variables that restrict a process to some devices; never empty: DeepSpeed's runner indexes `[0]`."""

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        """Write the devices of a rank into the environment it will start with."""
        for variable in self.visible_devices_envs():
            current_env[variable] = ",".join(map(str, local_accelerator_ids))

    @abstractmethod
    def get_compile_backend(self) -> str:
        """Name of the torch.compile backend."""

    @abstractmethod
    def set_compile_backend(self, backend: str) -> None:
        """Use another registered torch.compile backend; raises UnsupportedBackend (ValueError) for any other."""
