# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with a simulated device, in four parts."""

from __future__ import annotations

from typing import NoReturn

from accel_core.errors import AccelError


class UnknownDevice(AccelError, ValueError):
    """No simulated device has this name."""

    code = "ACC-701"


class AlreadySimulating(AccelError, RuntimeError):
    """A process can simulate one kind of device."""

    code = "ACC-702"


class CanNotBuild(AccelError, RuntimeError):
    """The simulated device's C++ can not be compiled here."""

    code = "ACC-703"


class NotSimulated(AccelError, NotImplementedError):
    """A name that the vendor's real module offers and the simulation does not carry out."""

    code = "ACC-704"


class InvalidSetting(AccelError, ValueError):
    """An environment variable of the simulation has a value without a meaning."""

    code = "ACC-705"


class DataRace(AccelError, RuntimeError):
    """In race mode: two accesses to the same memory that nothing orders, one of which writes."""

    code = "ACC-708"


def refuse(full: str) -> NoReturn:
    """Raise for a name that exists on the real device and is not simulated."""
    raise NotSimulated(
        what=f"{full} is not simulated",
        found="a call of it on a simulated device",
        expected="names that the simulation carries out: docs/simulated-devices.md lists them",
        do="run this part on the real device, or add it to accel_testkit.sim",
    )
