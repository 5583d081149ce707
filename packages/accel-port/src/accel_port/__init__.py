# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Turns programs that were written for CUDA into programs for every accelerator."""

from accel_port.__about__ import __version__

__all__ = ["__version__"]
