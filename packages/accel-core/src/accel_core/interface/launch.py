# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Launching: collectives, environment variables of ranks, torch.compile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import MutableMapping, Sequence


class LaunchInterface(ABC):
    """Settings for a launcher that starts ranks on this device."""

    _communication_backend_name: str | None
    _compile_backend: str | None

    @abstractmethod
    def communication_backend_name(self) -> str:
        """Return the backend for torch.distributed.init_process_group: `hccl`, `gloo`, …"""

    def communication_backend_version(self) -> tuple[int, ...] | None:
        """Return the version of the collective library, None if it is unknown."""
        return None

    @abstractmethod
    def export_envs(self) -> list[str]:
        """Return prefixes of the environment variables to export to other nodes."""

    @abstractmethod
    def visible_devices_envs(self) -> list[str]:
        """Return the variables that restrict a process to some devices. DeepSpeed's runner needs at least one."""

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        """Set the visible devices of a rank in the environment with which it will start."""
        for variable in self.visible_devices_envs():
            current_env[variable] = ",".join(map(str, local_accelerator_ids))

    @abstractmethod
    def get_compile_backend(self) -> str:
        """Return the name of the torch.compile backend."""

    @abstractmethod
    def set_compile_backend(self, backend: str) -> None:
        """Set the torch.compile backend; raises UnsupportedBackend (ValueError) if it is not registered."""
