# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Binds this process, and what it will start, to CPUs and to the memory of NUMA nodes."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Sequence

from accel_core.launch.engine_errors import BindingRefused

_MODES = {"preferred": 1, "bind": 2}
_PREFERRED_MANY = 5  # since Linux 5.15
# set_mempolicy(2); libnuma, which wraps it, need not be installed.
_CALLS = {"x86_64": 238, "aarch64": 237, "riscv64": 237, "loongarch64": 237, "ppc64le": 261, "s390x": 270}


def bind_cpus(cpus: Sequence[int]) -> None:
    """Restrict this process to the CPUs; none: no restriction. Raises BindingRefused."""
    if not cpus:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise _refused(f"{sys.platform} has no CPU affinity", cpus)
    try:
        os.sched_setaffinity(0, cpus)
    except OSError as error:
        raise _refused(f"sched_setaffinity: {error.strerror}", cpus) from error
    if missing := sorted(set(cpus) - os.sched_getaffinity(0)):
        raise _refused(f"the kernel left out {', '.join(map(str, missing))}", cpus)


def _refused(found: str, cpus: Sequence[int]) -> BindingRefused:
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return BindingRefused(
        what=f"cannot bind this rank to the CPUs {', '.join(map(str, cpus))}",
        found=found,
        expected=f"CPUs that are online and in this process's cpuset; its affinity is {allowed}",
        do="make the plan on this host in its present state, or leave out the binding",
    )


def bind_memory(mode: str, nodes: Sequence[int]) -> str:
    """Set the memory policy; returns why it could not be set, empty if it was.

    A container without the capability SYS_NICE forbids it. That costs speed, not correctness.
    """
    if mode not in _MODES or not nodes:
        return ""
    call = _CALLS.get(platform.machine()) if sys.platform.startswith("linux") else None
    if call is None:
        return f"set_mempolicy is not known on {sys.platform} {platform.machine()}"
    number = _MODES[mode] if mode == "bind" or len(nodes) == 1 else _PREFERRED_MANY
    error = _set_mempolicy(call, number, nodes)
    if error == errno.EINVAL and number == _PREFERRED_MANY:
        error = _set_mempolicy(call, _MODES["preferred"], nodes[:1])
    return f"set_mempolicy: {os.strerror(error)}" if error else ""


def _set_mempolicy(call: int, mode: int, nodes: Sequence[int]) -> int:
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    words = max(nodes) // bits + 1
    mask = (ctypes.c_ulong * words)()
    for node in nodes:
        mask[node // bits] |= 1 << (node % bits)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel reads one bit less than it is given.
    size = ctypes.c_ulong(words * bits + 1)
    failed = libc.syscall(ctypes.c_long(call), ctypes.c_int(mode), mask, size)
    return ctypes.get_errno() if failed else 0
