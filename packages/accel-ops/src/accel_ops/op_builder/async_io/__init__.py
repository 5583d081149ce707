# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's op `async_io`: file I/O of ZeRO-Infinity, DeepNVMe and FastFileWriter."""

from accel_ops.op_builder.async_io.builder import AsyncIOBuilder

__all__ = ["AsyncIOBuilder"]
