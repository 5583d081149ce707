# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Make checkpoints of the writer FAST loadable; docs/deepspeed-issues.md#checkpoint-writer has the faults."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, MutableMapping
from typing import Any

from accel_core.vendor import launched


def parallel_info(stock: Callable[..., Any], groups: Any, has_moe_layers: bool) -> Any:
    """Return what the writer needs of the job without the DeepSpeed launcher, with a `dp_rank`."""
    _name_host(os.environ)
    info = stock(groups, has_moe_layers)
    if not hasattr(info, "dp_rank"):
        info.dp_rank = groups._get_sequence_data_parallel_rank()
    return info


def _name_host(environ: MutableMapping[str, str]) -> None:
    """Set the number of this host and of all hosts, which torchrun, for one, does not."""
    if "CROSS_SIZE" in environ:
        return
    ranks = launched(environ)
    world = ranks.size or 1
    local = ranks.local_size or world
    environ["CROSS_SIZE"] = str(max(1, world // local))
    environ["CROSS_RANK"] = str((ranks.rank or 0) // local)


def set_up(stock: Callable[..., None], factory: Any, config: Any) -> None:
    """Give the writer a page-locked buffer of the op where the accelerator has none."""
    from deepspeed.accelerator import get_accelerator
    from deepspeed.ops.op_builder import AsyncIOBuilder
    from deepspeed.runtime.swap_tensor import constants

    if getattr(get_accelerator(), "torch_pins_host_memory", True):
        stock(factory, config)
        return
    import torch

    factory._dnvme_handle = (
        AsyncIOBuilder()
        .load()
        .aio_handle(
            block_size=config[constants.AIO_BLOCK_SIZE],
            queue_depth=config[constants.AIO_QUEUE_DEPTH],
            single_submit=config[constants.AIO_SINGLE_SUBMIT],
            overlap_events=config[constants.AIO_OVERLAP_EVENTS],
            intra_op_parallelism=config[constants.AIO_INTRA_OP_PARALLELISM],
        )
    )
    example = torch.empty(0, dtype=torch.uint8)
    factory._io_buffer = factory._dnvme_handle.new_cpu_locked_tensor(factory._io_buffer_size, example)


def create(stock: Callable[..., Any], factory: Any, file_path: Any, optimize_dp_state: bool) -> Any:
    """Write to a file of this rank's own, which gets its name when it is complete.

    Several ranks write the same file if `data_parallel` says so. torch.save gives each of them all of it, so that
    any of them may have the name. A file of a former save stays until then.
    """
    partial = f"{file_path}.{factory._data_parallel_writer.global_rank}.writing"
    with contextlib.suppress(FileNotFoundError):
        os.remove(partial)  # the job ended while it was written; or a link, which shall not be followed
    writer = stock(factory, partial, False)
    factory._accel_saved = (partial, file_path)
    return writer


def release(stock: Callable[..., None], factory: Any) -> None:
    """Give the file that the writer has closed its name."""
    stock(factory)
    partial, file_path = factory._accel_saved
    if os.path.exists(partial):  # the writer MOCK writes none
        os.replace(partial, file_path)


def load(stock: Callable[..., Any], engine: Any, path: Any, map_location: Any = None) -> Any:
    """Load what the engine has saved, with DeepSpeed's own classes, as TorchCheckpointEngine does."""
    import torch

    return torch.load(path, map_location=map_location, weights_only=False)
