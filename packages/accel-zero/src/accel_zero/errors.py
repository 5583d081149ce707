# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the replaced methods."""

from __future__ import annotations

from accel_core.errors import AccelError


class UnsupportedConfiguration(AccelError, RuntimeError, ValueError, code="ACC-305"):
    """DeepSpeed would fail halfway, or train to losses of NaN, with these options of its configuration."""
