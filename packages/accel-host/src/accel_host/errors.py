# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the host kernels."""

from __future__ import annotations

from accel_core.errors import AccelError


class InvalidTensors(AccelError, ValueError, TypeError):
    """Tensors that a host kernel cannot work on. torch raises ValueError or TypeError in such cases."""

    code = "ACC-504"


class UnknownOptimizer(AccelError, ValueError, KeyError):
    """A step of an optimizer that was not created, or that was destroyed."""

    code = "ACC-505"


class OutOfPinnedMemory(AccelError, MemoryError):
    """The host has not enough memory for page-locked pages."""

    code = "ACC-506"


class InvalidOption(AccelError, ValueError, TypeError):
    """A step number, learning rate or other option of a step that is not a number. Upstream raises TypeError here."""

    code = "ACC-507"


class OverlappedStepFailed(AccelError, RuntimeError):
    """The process that takes ZenFlow's overlapped steps has ended with an error."""

    code = "ACC-508"
