# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What two programs would get: one that asks accel_core first, and one that imports deepspeed and asks that.

They get one object, unless DeepSpeed is not joined. Then, and where this release of DeepSpeed was never
tried, a child imports it as such a program does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accel_core.cli import child
from accel_core.cli.doctor.children import Children
from accel_core.cli.doctor.torch_check import Torch
from accel_core.cli.packages import Bridge, DeepSpeed
from accel_core.selection.select import Selection
from accel_core.upstream import program


@dataclass(frozen=True)
class Door:
    """What a program gets: an accelerator (`module:Class`), or the error, in one line, with which it ends."""

    accelerator: str = ""
    error: str = ""

    @property
    def class_name(self) -> str:
        """The class of the accelerator."""
        return self.accelerator.rpartition(":")[2]

    @property
    def upstream(self) -> bool:
        """Whether it is one of DeepSpeed's own."""
        return self.accelerator.partition(".")[0] == "deepspeed"


def has_to_be_tried(bridge: Bridge, deepspeed: DeepSpeed) -> bool:
    """Whether only an import of deepspeed can tell what it gives."""
    return bool(deepspeed.version) and not (bridge.on and deepspeed.tried)


def through_core(torch: Torch, selection: Selection, children: Children) -> Door:
    """What accel_core gives in a fresh process."""
    if torch.version and not torch.imports:
        return Door(error=f"`import torch`: {torch.reason}")
    if children.death:
        return Door(error=children.death)
    if selection.verdict.error is not None:
        return Door(error=str(selection.verdict.error).partition("\n")[0])
    return Door(children.accelerator)


def through_deepspeed(torch: Torch, deepspeed: DeepSpeed, core: Door) -> Door:
    """What deepspeed gives where nothing has to be tried."""
    if not torch.version:
        return Door(error="ModuleNotFoundError: No module named 'torch'")
    if not deepspeed.version:
        return Door(error="ModuleNotFoundError: No module named 'deepspeed'")
    return core


def tried(seconds: float) -> Door:
    """What a child gets that imports torch and deepspeed, and nothing of this package by itself."""
    source = Path(program.__file__).read_text(encoding="utf-8")
    reply = child.ask_source(source, seconds=seconds)
    if reply.failure:
        return Door(error=f"its process {reply.failure}")
    return Door(reply.answer["accelerator"], reply.answer["error"])
