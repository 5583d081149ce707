# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The device under test, and comparisons with the CPU."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch


@dataclass(frozen=True)
class Device:
    """The device under test. module: torch.<type>; count: devices that a process may use."""

    type: str
    module: Any
    count: int
    memory: int

    @property
    def first(self) -> torch.device:
        """Return device 0."""
        return torch.device(self.type, 0)


def same(found: torch.Tensor, expected: Any) -> None:
    """Raise AssertionError unless both are bitwise equal, on whatever device."""
    expected = torch.as_tensor(expected, dtype=found.dtype)
    if not torch.equal(found.cpu(), expected.cpu()):
        raise AssertionError(f"found {found.cpu().tolist()}, expected {expected.tolist()}")


def raises(
    call: Callable[[], Any], kind: type[Exception] | tuple[type[Exception], ...], words: str = ""
) -> None:
    """Raise AssertionError unless the call raises an exception of this type with these words in its text."""
    with pytest.raises(kind, match=re.escape(words) or None):
        call()
