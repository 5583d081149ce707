# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Errors of the launcher; each has a paragraph in docs/errors.md."""

from __future__ import annotations

from accel_core.errors import AccelError


class InvalidPlan(AccelError, ValueError, code="ACC-605"):
    """A plan file cannot be read, or contradicts itself."""


class InvalidHostfile(AccelError, ValueError, code="ACC-602"):
    """The hostfile is missing, empty, or has a line that is not a host with its slots."""


class InvalidSelection(AccelError, ValueError, code="ACC-603"):
    """Hosts, slots or numbers on the command line that do not exist, or contradict each other."""


class BindingImpossible(AccelError, ValueError, code="ACC-604"):
    """Ranks cannot be bound: too few cores, or a core list with cores that are not there or not allowed."""


class AffinityConflict(AccelError, ValueError, code="ACC-606"):
    """A variable of the OpenMP runtime would bind threads to other cores than the launcher."""


class InvalidArguments(AccelError, ValueError, code="ACC-608"):
    """An option's value, or the program, cannot be used."""


class HostUnreachable(AccelError, RuntimeError, code="ACC-609"):
    """A host of the job does not answer, or cannot describe itself."""


class PortInUse(AccelError, OSError, code="ACC-607"):
    """Another process listens on the master port."""


class EngineUnavailable(AccelError, RuntimeError, code="ACC-610"):
    """The program that the chosen engine needs is not installed."""


class UnknownEngine(AccelError, ValueError, code="ACC-611"):
    """No engine has the name, or the entry point that declares it cannot be loaded."""


class BindingRefused(AccelError, OSError, code="ACC-612"):
    """The kernel does not let a rank run on the CPUs of the plan."""


class RankMisplaced(AccelError, RuntimeError, code="ACC-613"):
    """An engine started a rank elsewhere than the plan says."""


class EngineRefused(AccelError, ValueError, code="ACC-614"):
    """The engine cannot carry out this plan or these options."""


class LogUnwritable(AccelError, OSError, code="ACC-615"):
    """A file or folder of the launcher (logs of ranks, pid) cannot be written, or is another user's."""
