# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Asynchronous file I/O between tensors and files, on io_uring or threads. Every failure raises an OSError."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accel_core.vendor import lazy_exports

if TYPE_CHECKING:
    from accel_ops.io.session import File, TransferFuture, read, write
    from accel_ops.io.state import load, load_metadata, save

__all__ = ["File", "TransferFuture", "load", "load_metadata", "read", "save", "write"]

# Loaded at first use: these import torch, which `accel io bench --help` need not wait for.
__getattr__ = lazy_exports(
    __name__,
    {
        **dict.fromkeys(("File", "TransferFuture", "read", "write"), "session"),
        **dict.fromkeys(("load", "load_metadata", "save"), "state"),
    },
)
