# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the replaced methods and of `accel zero profile`."""

from __future__ import annotations

from accel_core.errors import AccelError


class UnloadableCheckpoint(AccelError, RuntimeError, code="ACC-305"):
    """DeepSpeed cannot load a checkpoint into this engine, and would fail after it has changed a part."""


class InvalidZenFlow(AccelError, ValueError, code="ACC-409"):
    """DeepSpeed's configuration asks for ZenFlow with options of fp16 that give losses of NaN."""
