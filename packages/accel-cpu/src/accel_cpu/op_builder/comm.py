# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Collectives of DeepSpeed's own."""

from accel_cpu.ccl.builder import CCLCommBuilder
from accel_cpu.shm.inference import ShareMemCommBuilder

__all__ = ["CCLCommBuilder", "ShareMemCommBuilder"]
