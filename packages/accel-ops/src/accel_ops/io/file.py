# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Files whose contents are tensors."""

from __future__ import annotations

import os
from types import TracebackType

import torch

from accel_ops.io.files import Name
from accel_ops.io.future import TransferFuture
from accel_ops.io.requests import EngineOptions
from accel_ops.io.session import Session
from accel_ops.io.transfer import Durability


class File:
    """A file by name, or by the descriptor of an open file, with an engine of its own.

    block_size: bytes of one system call, at most.
    depth:      blocks in flight of each of the `workers`, at most.
    durability: what has reached the device when a write has ended: `none`, `data` or `full`.
    The file is opened by each transfer, created by the first write, and never truncated.
    """

    def __init__(
        self,
        name: Name,
        *,
        block_size: int = 1 << 20,
        depth: int = 32,
        workers: int = 1,
        durability: str = "none",
    ) -> None:
        self.name = name if isinstance(name, int) else os.fspath(name)
        self._durability = Durability(durability)
        self._session = Session(EngineOptions(block_size, depth, workers))

    def submit_read(self, tensor: torch.Tensor, offset: int = 0) -> TransferFuture:
        """Start to read the tensor's bytes; it must not be used before. Raises OSError, InvalidTensors."""
        return TransferFuture(self._session.submit(tensor, self.name, write=False, offset=offset))

    def submit_write(self, tensor: torch.Tensor, offset: int = 0) -> TransferFuture:
        """Start to write the tensor's bytes; it must not be changed before. Raises OSError, InvalidTensors."""
        return TransferFuture(
            self._session.submit(tensor, self.name, write=True, offset=offset, durability=self._durability)
        )

    def read(self, tensor: torch.Tensor, offset: int = 0) -> int:
        """Read the tensor's bytes, and return how many. Raises OSError, InvalidTensors."""
        return self._session.run(tensor, self.name, write=False, offset=offset)

    def write(self, tensor: torch.Tensor, offset: int = 0) -> int:
        """Write the tensor's bytes, and return how many. Raises OSError, InvalidTensors."""
        return self._session.run(tensor, self.name, write=True, offset=offset, durability=self._durability)

    def engine(self) -> tuple[str, str]:
        """Return name of the engine, and the reason why it is this one."""
        engine = self._session.engine
        return engine.name, engine.reason

    def close(self) -> None:
        """Wait for all transfers, and end the engine."""
        self._session.close()

    def __enter__(self) -> File:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read(name: Name, tensor: torch.Tensor, offset: int = 0) -> int:
    """Read the tensor's bytes from a file, and return how many. Raises OSError, InvalidTensors."""
    with File(name) as file:
        return file.read(tensor, offset)


def write(name: Name, tensor: torch.Tensor, offset: int = 0, *, durability: str = "none") -> int:
    """Write the tensor's bytes to a file, and return how many. Raises OSError, InvalidTensors."""
    with File(name, durability=durability) as file:
        return file.write(tensor, offset)
