# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with the host kernels, in four parts."""

from __future__ import annotations

from accel_core.errors import AccelError


class InvalidTensors(AccelError, ValueError, TypeError):
    """Tensors that a host kernel can not work on. ValueError and TypeError are what torch raises in such cases."""

    code = "ACC-504"


class UnknownOptimizer(AccelError, ValueError, KeyError):
    """A step of an optimizer that was not created, or is destroyed."""

    code = "ACC-505"


class OutOfPinnedMemory(AccelError, MemoryError):
    """The host has no pages left to lock."""

    code = "ACC-506"
