# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The builder of `async_io`, and its functions that need no handle."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from accel_ops.errors import InvalidTensors
from accel_ops.io.files import Name
from accel_ops.op_builder.async_io.handle import aio_handle
from accel_ops.op_builder.base import HostBuilder


def aio_read(
    buffer: torch.Tensor,
    filename: Name,
    block_size: int,
    queue_depth: int,
    single_submit: bool,
    overlap_events: bool,
    validate: bool,
) -> int:
    """Read the tensor's bytes from the begin of the file; returns 0. Raises what `aio_handle.read` raises."""
    return aio_handle(block_size, queue_depth, single_submit, overlap_events).read(buffer, filename, validate)


def aio_write(
    buffer: torch.Tensor,
    filename: Name,
    block_size: int,
    queue_depth: int,
    single_submit: bool,
    overlap_events: bool,
    validate: bool,
) -> int:
    """Write the tensor's bytes to the begin of the file; returns 0. Raises what `aio_handle.write` raises."""
    return aio_handle(block_size, queue_depth, single_submit, overlap_events).write(
        buffer, filename, validate
    )


def deepspeed_memcpy(dest: torch.Tensor, src: torch.Tensor) -> int:
    """Copy all elements of `src`, in order, to `dest`, whatever their shapes; returns 0. Raises InvalidTensors."""
    if dest.numel() != src.numel():
        raise InvalidTensors(
            what="one tensor cannot be copied to another",
            found=f"{src.numel()} elements for {dest.numel()}",
            expected="equal numbers of elements",
            do="pass tensors of the same size",
        )
    with torch.no_grad():
        dest.copy_(src.reshape(dest.shape))
    return 0


class AsyncIOBuilder(HostBuilder):
    """Builds `async_io`: reads and writes of files, on io_uring or threads. Nothing but the library is needed."""

    NAME = "async_io"
    BUILD_VAR = "DS_BUILD_AIO"

    def functions(self) -> Any:
        """Return upstream's class and functions."""
        return SimpleNamespace(
            aio_handle=aio_handle, aio_read=aio_read, aio_write=aio_write, deepspeed_memcpy=deepspeed_memcpy
        )
