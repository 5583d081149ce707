# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The errors of simulated devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from accel_core.errors import AccelError


class NotSimulated(AccelError, NotImplementedError, code="ACC-704"):
    """A name or device that cannot be simulated, here or at all."""


class DataRace(AccelError, RuntimeError, code="ACC-708"):
    """Race mode found two unordered accesses to the same memory, one of which writes."""


def raise_not_simulated(full: str, why: str = "", error: type[NotSimulated] = NotSimulated) -> NoReturn:
    """Raise `NotSimulated` for a name that exists on the real device.

    full: the name as users write it, `torch.npu.npurt`.
    """
    raise error(
        f"{full} is not simulated: a call of it on a simulated device{why}",
        do="run this part on the real device, or add it to accel_sim",
    )


def absent(full: str) -> Callable[..., NoReturn]:
    """Return a function for a name that exists on the real device: a call of it raises `NotSimulated`."""

    def call(*_args: object, **_kwargs: object) -> NoReturn:
        raise_not_simulated(full)

    call.__name__ = call.__qualname__ = full.rpartition(".")[2]
    return call
