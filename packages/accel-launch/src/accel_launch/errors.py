# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the launcher; each has a paragraph in docs/errors.md."""

from __future__ import annotations

from accel_core.errors import AccelError


class InvalidPlan(AccelError, ValueError):
    """A plan file cannot be read, or contradicts itself."""

    code = "ACC-605"


class InvalidHostfile(AccelError, ValueError):
    """The hostfile is missing, empty, or has a line that is not a host with its slots."""

    code = "ACC-602"


class InvalidSelection(AccelError, ValueError):
    """Hosts, slots or numbers on the command line that do not exist, or contradict each other."""

    code = "ACC-603"


class BindingImpossible(AccelError, ValueError):
    """Ranks cannot be bound: too few cores, or a core list with cores that are not there or not allowed."""

    code = "ACC-604"


class AffinityConflict(AccelError, ValueError):
    """A variable of the OpenMP runtime would bind threads to other cores than the launcher."""

    code = "ACC-606"


class InvalidArguments(AccelError, ValueError):
    """An option's value, or the program, cannot be used."""

    code = "ACC-608"


class HostUnreachable(AccelError, RuntimeError):
    """A host of the job does not answer, or cannot describe itself."""

    code = "ACC-609"


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
    """A file or folder of the launcher (logs of ranks, pid) cannot be written, or is another user's."""

    code = "ACC-615"
