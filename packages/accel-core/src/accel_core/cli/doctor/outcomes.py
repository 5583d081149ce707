# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The accelerator that a program gets from accel_core, and the one that a program gets from deepspeed.

Both are the same object while the bridge is on. If it is off, or if this release of DeepSpeed is untested, a
child process imports deepspeed as a program does.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from accel_core.cli import child
from accel_core.cli.doctor.children import Children
from accel_core.cli.doctor.torch_check import Torch
from accel_core.cli.packages import Bridge, DeepSpeed
from accel_core.selection.current import Selection
from accel_core.upstream import program


@dataclass(frozen=True)
class Outcome:
    """The accelerator of a program (`module:Class`), or the error with which it ends, in one line."""

    accelerator: str = ""
    error: str = ""

    @property
    def class_name(self) -> str:
        """Name of the accelerator's class."""
        return self.accelerator.rpartition(":")[2]

    @property
    def upstream(self) -> bool:
        """Whether the class is one of DeepSpeed's own."""
        return self.accelerator.partition(".")[0] == "deepspeed"


def needs_a_run(bridge: Bridge, deepspeed: DeepSpeed) -> bool:
    """Whether the outcome of deepspeed is known only after importing it."""
    return bool(deepspeed.version) and not (bridge.on and deepspeed.tried)


def of_core(torch: Torch, selection: Selection, children: Children) -> Outcome:
    """Return the outcome of `accel_core.get_accelerator()` in a fresh process."""
    if torch.version and not torch.imports:
        return Outcome(error=f"`import torch`: {torch.reason}")
    if children.failure:
        return Outcome(error=children.failure)
    if selection.verdict.error is not None:
        return Outcome(error=str(selection.verdict.error).partition("\n")[0])
    return Outcome(children.accelerator)


def of_deepspeed(torch: Torch, deepspeed: DeepSpeed, core: Outcome) -> Outcome:
    """Return the outcome of deepspeed's `get_accelerator()` if no run is needed to know it."""
    if not torch.version:
        return Outcome(error="ModuleNotFoundError: No module named 'torch'")
    if not deepspeed.version:
        return Outcome(error="ModuleNotFoundError: No module named 'deepspeed'")
    return core


def run_program(seconds: float) -> Outcome:
    """Return the outcome of a child that imports torch and deepspeed, and accel_core only through torch."""
    source = Path(program.__file__).read_text(encoding="utf-8")
    reply = child.ask_source(source, seconds=seconds)
    if reply.failure:
        return Outcome(error=f"its process {reply.failure}")
    return Outcome(reply.answer["accelerator"], reply.answer["error"])
