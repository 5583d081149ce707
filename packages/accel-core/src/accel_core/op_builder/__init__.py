# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Op builders: the base class, the op table, and the builder for missing ops."""

from accel_core.op_builder.base import Implementation, NotImplementedBuilder, OpBuilder, OpFunctions, OpTable

__all__ = ["NotImplementedBuilder", "OpBuilder", "OpFunctions", "OpTable", "Implementation"]
