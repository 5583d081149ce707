# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Let torch's store of rank 0 listen where the launcher's plan says, not on all interfaces of the host.

The store has no passwords: whoever connects can read and change what the ranks exchange there. torch has no
option for the address; its store takes a socket that is bound already.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from accel_core import env

_CREATE = "_create_c10d_store"


def apply() -> None:
    """Make torch's `env://` and `tcp://` follow ACCEL_STORE_ADDRESS. Idempotent."""
    rendezvous = importlib.import_module("torch.distributed.rendezvous")  # house: its attribute is a function
    create = getattr(rendezvous, _CREATE, None)
    if create is not None and not hasattr(create, "__wrapped__"):
        setattr(rendezvous, _CREATE, functools.wraps(create)(functools.partial(_create, create)))


def _create(
    stock: Callable[..., Any],
    hostname: str,
    port: int,
    rank: int,
    world_size: int,
    timeout: timedelta,
    use_libuv: bool = True,
) -> Any:
    agents = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == str(True)
    if rank == 0 and not agents and hostname == env.STORE_ADDRESS.get():
        listening = _bound(hostname, port)
        if listening is not None:
            from torch._C._distributed_c10d import TCPStore  # not exported by torch.distributed

            return TCPStore(
                hostname,
                port,
                world_size,
                is_master=True,
                timeout=timeout,
                multi_tenant=True,
                master_listen_fd=listening.detach(),
                use_libuv=use_libuv,
            )
    return stock(hostname, port, rank, world_size, timeout, use_libuv)


def _bound(hostname: str, port: int) -> socket.socket | None:
    """Return a socket; None where torch has to find out: a port in use, or an address that is not this host's."""
    with contextlib.ExitStack() as failed, contextlib.suppress(OSError):
        family, kind, _, _, address = socket.getaddrinfo(hostname, port, type=socket.SOCK_STREAM)[0]
        made = failed.enter_context(socket.socket(family, kind))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()  # two processes may bind, one may listen
        failed.pop_all()
        return made
    return None
