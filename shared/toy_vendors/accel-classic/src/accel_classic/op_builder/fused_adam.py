# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Adam over many tensors."""

from __future__ import annotations

import importlib
from types import ModuleType

from deepspeed.ops.op_builder.builder import OpBuilder
from deepspeed.ops.op_builder.cpu import fused_adam


class FusedAdamBuilder(fused_adam.FusedAdamBuilder):
    """Imports a Python module where others compile; its function only says which package it is from."""

    def absolute_name(self) -> str:
        return "accel_classic.fused_adam"

    def jit_load(self, verbose: bool = True) -> ModuleType:
        """Import the op and keep it where DeepSpeed's own builders keep theirs."""
        module = importlib.import_module(self.absolute_name())
        OpBuilder._loaded_ops[self.name] = module
        return module
