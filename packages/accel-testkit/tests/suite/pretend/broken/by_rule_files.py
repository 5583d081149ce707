# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of file I/O's forms notice: strides that are not read, a file that is emptied, another offset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from broken import breaks
from broken.by_rule_extremes import Files, Served

_FORMS = "op_file_io"


class _AsItLies(Files):
    def sync_pwrite(self, buffer: torch.Tensor, file: str, offset: int = 0) -> Any:
        flat = buffer.as_strided((buffer.numel(),), (1,))
        return self.handle.sync_pwrite(flat, file, offset)


class _Emptying(Files):
    def sync_pwrite(self, buffer: torch.Tensor, file: str, offset: int = 0) -> Any:
        if not buffer.numel():
            Path(file).write_bytes(b"")
        return self.handle.sync_pwrite(buffer, file, offset)


class _ComparedAtTheStart(Files):
    def read(self, buffer: torch.Tensor, file: str, validate: bool, offset: int = 0) -> Any:
        return self.handle.read(buffer, file, validate, 0 if validate else offset)


class _GivingUp(Files):
    """The requests are made while they are waited for, up to the first error."""

    def __init__(self, handle: Any) -> None:
        super().__init__(handle)
        self.begun: list[Any] = []

    def async_pread(self, buffer: torch.Tensor, file: str, offset: int = 0) -> Any:
        self.begun.append((buffer, file, offset))
        return 0

    def wait(self) -> int:
        waiting, self.begun = self.begun, []
        count: int = self.handle.wait()
        for request in waiting:
            self.handle.sync_pread(*request)
        return count + len(waiting)


for _class, _check in (
    (_GivingUp, "error_ends_no_other_request"),
    (_AsItLies, "strides_are_transferred_or_refused"),
    (_Emptying, "nothing_is_transferred_of_empty_tensors"),
    (_ComparedAtTheStart, "transfers_may_be_compared_afterwards"),
):
    breaks(f"{_FORMS}.{_check}", name=f"Files{_class.__name__}")(
        type(f"Files{_class.__name__}", (Served,), {"handle": _class})
    )
