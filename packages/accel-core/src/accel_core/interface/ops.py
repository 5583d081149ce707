# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops: the builders that give DeepSpeed its kernels on this device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class OpInterface(ABC):
    """Builders by the class names that upstream uses, such as `FusedAdamBuilder`."""

    @abstractmethod
    def op_builder_dir(self) -> str:
        """Importable package whose files define the builders; DeepSpeed imports every file in it."""

    @abstractmethod
    def create_op_builder(self, class_name: str) -> Any:
        """A new builder; a NotImplementedBuilder, whose `load` says why, where the device has no such op."""

    @abstractmethod
    def get_op_builder(self, class_name: str) -> Any:
        """The builder's class; calling it without arguments is `create_op_builder`."""

    @abstractmethod
    def build_extension(self) -> Any:
        """The setuptools command class that builds this device's extensions."""
