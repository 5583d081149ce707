# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Native libraries with a C interface, compiled once per machine from packaged source into a private cache."""

from accel_core.native.compiler import Source

__all__ = ["Source"]
