# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of carrying out a plan; each has a paragraph in docs/errors.md."""

from __future__ import annotations

from accel_core.errors import AccelError


class PortInUse(AccelError, OSError):
    """Another process listens on the master port."""

    code = "ACC-607"


class EngineUnavailable(AccelError, RuntimeError):
    """The program that the chosen engine needs is not installed."""

    code = "ACC-610"


class UnknownEngine(AccelError, ValueError):
    """No engine has the name, or the entry point that declares it cannot be loaded."""

    code = "ACC-611"


class BindingRefused(AccelError, OSError):
    """The kernel does not let a rank run on the CPUs of the plan."""

    code = "ACC-612"


class RankMisplaced(AccelError, RuntimeError):
    """An engine started a rank elsewhere than the plan says."""

    code = "ACC-613"


class EngineRefused(AccelError, ValueError):
    """The engine cannot carry out this plan or these options."""

    code = "ACC-614"


class LogUnwritable(AccelError, OSError):
    """A file or folder of the launcher (logs of ranks, pid, temporary files) cannot be written, or is not safe."""

    code = "ACC-615"
