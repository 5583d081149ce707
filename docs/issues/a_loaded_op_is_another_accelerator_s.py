# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Loaded ops are kept by name alone: after `set_accelerator` the former accelerator's op is returned."""

from deepspeed.ops.op_builder.builder import OpBuilder


class Op(OpBuilder):
    def __init__(self, accelerator):
        super().__init__(name="fused_adam")
        self.accelerator = accelerator

    def absolute_name(self):
        return self.accelerator

    def sources(self):
        return []

    def is_compatible(self, verbose=False):
        return True

    def jit_load(self, verbose=True):
        OpBuilder._loaded_ops[self.name] = op = f"the op of {self.accelerator}"
        return op


Op("npu").load()
print("cuda gets", Op("cuda").load())
