# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Asynchronous file I/O between tensors and files, on io_uring or threads. Every failure raises an OSError."""

from accel_host.io.file import File, read, write
from accel_host.io.future import TransferFuture
from accel_host.io.state import load, load_metadata, save

__all__ = ["File", "TransferFuture", "load", "load_metadata", "read", "save", "write"]
