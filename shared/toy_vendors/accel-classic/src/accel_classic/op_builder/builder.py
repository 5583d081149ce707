# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The base of the classic builders."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from deepspeed.ops.op_builder.builder import OpBuilder


class SYCLOpBuilder(OpBuilder):
    """Finds sources next to itself; where others would compile, it imports a Python module."""

    def sycl_kernel_path(self, code_path: str) -> str:
        """Path of a source file of this package."""
        return str(Path(__file__).parent / code_path)

    def jit_load(self, verbose: bool = True) -> ModuleType:
        """Import the op and keep it where DeepSpeed's own builders keep theirs."""
        module = importlib.import_module(self.absolute_name())
        OpBuilder._loaded_ops[self.name] = module
        return module
