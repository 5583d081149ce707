# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The modes that check the order of work: races raise, and what nobody waits for is late."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from accel_testkit.sim.settings import Settings

#: Ways of a host tensor's numbers out of torch that pass no operator.
READERS = ("numpy", "tolist")


def start(native: Any, settings: Settings) -> None:
    """Switch on the modes that the settings ask for."""
    native.watch(settings.race, settings.deferred)
    if settings.race:
        here = Path(__file__)
        native.hide_frames([f"{Path(torch.__file__).parent}/", f"{here.parent / 'runtime'}/", str(here)])
        for name in READERS:
            setattr(torch.Tensor, name, _watched(native, name))


def _watched(native: Any, name: str) -> Any:
    original = getattr(torch.Tensor, name)

    def read(self: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if type(self) in (torch.Tensor, torch.nn.Parameter):
            native.host_reads(f"Tensor.{name}", self)
        return original(self, *arguments, **options)

    read.__name__, read.__qualname__, read.__doc__ = name, f"Tensor.{name}", original.__doc__
    return read
