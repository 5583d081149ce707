# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the launcher; each has a paragraph in docs/errors.md."""

from __future__ import annotations

from accel_core.errors import AccelError


class InvalidArguments(AccelError, ValueError, OSError, code="ACC-602"):
    """An option of `accel launch`, or a file or folder that it names, cannot be used."""


class BindingImpossible(AccelError, ValueError, OSError, RuntimeError, code="ACC-604"):
    """Ranks cannot be bound to cores as the options or the plan say, or were started elsewhere."""


class HostUnreachable(AccelError, RuntimeError, code="ACC-609"):
    """A host of the job does not answer, or cannot describe itself."""


class PortInUse(AccelError, OSError, code="ACC-607"):
    """Another process listens on the master port."""


class EngineUnavailable(AccelError, RuntimeError, ValueError, code="ACC-610"):
    """The program that the chosen engine needs is not installed, or the engine cannot carry out this plan."""
