# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Ops: the builders from which DeepSpeed loads its kernels for this device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class OpInterface(ABC):
    """Op builders, by upstream's class names, such as `FusedAdamBuilder`."""

    @abstractmethod
    def op_builder_dir(self) -> str:
        """Return the package that defines the builders; DeepSpeed imports every module in it."""

    @abstractmethod
    def create_op_builder(self, class_name: str) -> Any:
        """Return a new builder; a NotImplementedBuilder, whose `load` raises the reason, if the device lacks the op."""

    @abstractmethod
    def get_op_builder(self, class_name: str) -> Any:
        """Return the class of a builder; `create_op_builder` calls it without arguments."""

    @abstractmethod
    def build_extension(self) -> Any:
        """Return the setuptools command class that builds extensions for this device."""
