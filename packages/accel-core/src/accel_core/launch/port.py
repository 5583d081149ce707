# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The port on which rank 0 listens: checked, or chosen if the user gave none and all ranks are on this host."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from accel_core.launch.engine_errors import PortInUse
from accel_core.launch.options import Options
from accel_core.launch.plan import Plan
from accel_core.launch.supervise.lines import write_all
from accel_core.launch.supervise.view import STDERR

#: PyTorch's default.
DEFAULT = 29500
#: Ports that are tried one after the other; after them any free one.
_TRIED = range(DEFAULT, DEFAULT + 100)


def is_free_to_choose(plan: Plan, options: Options) -> bool:
    """Whether nobody has named a port. Hosts that join an elastic job need one that they know."""
    given = options.master_port is not None or options.plan is not None or options.elastic_training
    return not given and plan.master_port == DEFAULT


@contextlib.contextmanager
def chosen(plan: Plan, options: Options) -> Iterator[Plan]:
    """Yield the plan with a port that no other job of this host has, as long as the block runs."""
    with socket.socket() as held:
        number = _taken(held)
        # Rank 0 listens seconds from now. Until then this socket keeps other launchers away: they bind without
        # SO_REUSEADDR. torch's store binds with it, which the kernel permits as long as nobody listens.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if number != DEFAULT and options.log_level in ("debug", "info", "warning"):
            with contextlib.suppress(OSError):
                said = f"port {DEFAULT} is in use, so rank 0 listens on port {number}"
                write_all(STDERR, f"accel launch: {said}\n".encode())
        yield plan if number == DEFAULT else plan.with_master(plan.master_addr, number)


def _taken(held: socket.socket) -> int:
    for number in (*_TRIED, 0):
        with contextlib.suppress(OSError):
            held.bind(("", number))
            return int(held.getsockname()[1])
    check(DEFAULT)  # raises: there is no port at all
    return DEFAULT


def check(port: int) -> None:
    """Raise PortInUse if rank 0 could not listen on the port; 0 stands for any."""
    with socket.socket() as trial:
        # As torch's store does: a port that a former job has left is free.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
            return
        except OSError as error:
            reason = error.strerror
    with socket.socket() as other:
        other.bind(("", 0))
        free = other.getsockname()[1]
    raise PortInUse(
        what=f"rank 0 cannot listen on the master port {port}",
        found=f"{reason}; another job on this host, or what is left of one",
        expected="a port that no process listens on",
        do=f"give a free one, such as --master_port {free}, or end the other process",
    )
