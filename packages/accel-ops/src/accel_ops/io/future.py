# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The future of a transfer: for threads, and for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Generator

from accel_ops.io.device import DeviceTransfer
from accel_ops.io.transfer import Transfer


class TransferFuture:
    """A transfer that was started. Dropping it ends nothing: the transfer is completed, and its error is lost."""

    def __init__(self, transfer: Transfer | DeviceTransfer) -> None:
        self._transfer = transfer

    def result(self, timeout: float | None = None) -> int:
        """Return the bytes that were transferred; raises TransferFailed (an OSError), TimeoutError."""
        return self._transfer.wait(timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the transfer has ended, well or not, at most `timeout` seconds; return whether it has."""
        return self._transfer.ended(timeout)

    def done(self) -> bool:
        """Whether the transfer has ended, well or not."""
        return self._transfer.ended(0)

    def progress(self) -> int:
        """Return the bytes that have been transferred so far."""
        return self._transfer.progress()

    def cancel(self) -> None:
        """Transfer no further block; `result` then raises TransferFailed (ECANCELED), unless all were in flight."""
        self._transfer.cancel()

    def __await__(self) -> Generator[object, None, int]:
        """`await future` waits on a thread of the event loop's executor; a cancelled task cancels the transfer."""
        return self._awaited().__await__()

    async def _awaited(self) -> int:
        try:
            return await asyncio.get_running_loop().run_in_executor(None, self._transfer.wait)
        except asyncio.CancelledError:
            self.cancel()
            raise
