# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a variant may have, and the good accelerator declares missing: it is in no table."""

from accel_ops.op_builder import AsyncIOBuilder

__all__ = ["AsyncIOBuilder"]
