# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The all-reduce of tensor-parallel inference."""

from accel_cpu.shm.inference import ShareMemCommBuilder

__all__ = ["ShareMemCommBuilder"]
