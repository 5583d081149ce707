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
class Outcome:
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


def needs_a_run(bridge: Bridge, deepspeed: DeepSpeed) -> bool:
    """Whether only an import of deepspeed can tell what it gives."""
    return bool(deepspeed.version) and not (bridge.on and deepspeed.tried)


def of_core(torch: Torch, selection: Selection, children: Children) -> Outcome:
    """What accel_core gives in a fresh process."""
    if torch.version and not torch.imports:
        return Outcome(error=f"`import torch`: {torch.reason}")
    if children.failure:
        return Outcome(error=children.failure)
    if selection.verdict.error is not None:
        return Outcome(error=str(selection.verdict.error).partition("\n")[0])
    return Outcome(children.accelerator)


def of_deepspeed(torch: Torch, deepspeed: DeepSpeed, core: Outcome) -> Outcome:
    """What deepspeed gives where nothing has to be tried."""
    if not torch.version:
        return Outcome(error="ModuleNotFoundError: No module named 'torch'")
    if not deepspeed.version:
        return Outcome(error="ModuleNotFoundError: No module named 'deepspeed'")
    return core


def run_program(seconds: float) -> Outcome:
    """What a child gets that imports torch and deepspeed, and nothing of this package by itself."""
    source = Path(program.__file__).read_text(encoding="utf-8")
    reply = child.ask_source(source, seconds=seconds)
    if reply.failure:
        return Outcome(error=f"its process {reply.failure}")
    return Outcome(reply.answer["accelerator"], reply.answer["error"])
