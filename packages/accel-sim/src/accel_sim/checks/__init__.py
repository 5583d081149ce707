# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Checks of a simulated device at torch level: `python -m accel_sim.checks features npu`.

A check is a function that raises when the device does not do what the CPU does. What a device type cannot do
stands in `gaps`, with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Device:
    """The device under check. module: torch.<type>; count: devices a process may use."""

    type: str
    module: Any
    count: int
    memory: int

    @property
    def first(self) -> torch.device:
        """Return device 0."""
        return torch.device(self.type, 0)


Check = Callable[[Device], None]


@dataclass
class Checks:
    """A list of checks, by name."""

    by_name: dict[str, Check] = field(default_factory=dict)

    def __call__(self, check: Check) -> Check:
        """Add a check; used as a decorator."""
        self.by_name[check.__name__] = check
        return check

    def run(self, device: Device) -> dict[str, str]:
        """Run all checks; return each one's error, empty where it passed."""
        results: dict[str, str] = {}
        for name, check in self.by_name.items():
            torch.default_generator.manual_seed(0)  # torch begins each process with another seed
            try:
                check(device)
            except Exception as error:
                results[name] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            else:
                results[name] = ""
        return results


def same(found: torch.Tensor, expected: Any) -> None:
    """Raise AssertionError unless both are bitwise equal, on whatever device."""
    expected = torch.as_tensor(expected, dtype=found.dtype)
    if not torch.equal(found.cpu(), expected.cpu()):
        raise AssertionError(f"found {found.cpu().tolist()}, expected {expected.tolist()}")


def expect(condition: object, message: str = "condition does not hold") -> None:
    """Raise AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def raises(call: Callable[[], Any], kind: type[Exception], words: str = "") -> None:
    """Raise AssertionError unless the call raises an exception of this type with these words in its text."""
    try:
        call()
    except kind as error:
        expect(words in str(error), f"found {error!s:.200}, expected {words!r}")
        return
    raise AssertionError(f"expected {kind.__name__}, found no error")
