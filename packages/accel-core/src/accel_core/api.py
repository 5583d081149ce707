# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The public functions, with selection connected to DeepSpeed."""

from __future__ import annotations

from accel_core.current import get_accelerator, is_current_accelerator_supported, set_accelerator, using
from accel_core.explanation import explain
from accel_core.upstream import answers

answers.connect()

__all__ = ["explain", "get_accelerator", "is_current_accelerator_supported", "set_accelerator", "using"]
