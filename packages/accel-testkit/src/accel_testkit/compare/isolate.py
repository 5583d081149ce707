# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Writes a short program that runs one operation on two devices, with the inputs on which they differed."""

from __future__ import annotations

from pathlib import Path

from accel_testkit.compare.difference import Difference

_PROGRAM = '''"""{what}
found by `accel compare`: relative difference {error:.2g}, bound {bound:.2g} ({reason})"""
import sys

import torch
from torch.utils._pytree import tree_leaves, tree_map

name, args, kwargs = torch.load("{inputs}", weights_only=True)
packet, overload = name.split(".")[1:]
operation = getattr(getattr(torch.ops.{namespace}, packet), overload)


def run(device):
    def on(value):
        return value.to(device, copy=True) if isinstance(value, torch.Tensor) else (
            torch.device(device) if isinstance(value, torch.device) else value)
    here, named = tree_map(on, args), tree_map(on, kwargs)
    results = operation(*here, **named)
    return [x.cpu() for x in tree_leaves([results, here, named]) if isinstance(x, torch.Tensor)]


device = sys.argv[1] if sys.argv[1:] else torch.accelerator.current_accelerator().type
for n, (cpu, other) in enumerate(zip(run("cpu"), run(device))):
    error = (cpu.double() - other.double()).norm() / cpu.double().norm().clamp_min(1e-300)
    print(f"{{name}} tensor {{n}} {{list(cpu.shape)}} {{cpu.dtype}}: cpu and {{device}} differ by {{error:.3g}}")
'''


def write(difference: Difference, inputs: Path) -> Path:
    """Write the program beside the file of inputs; returns its path."""
    namespace = difference.key.name.partition(".")[0]
    path = inputs.with_name("isolate.py")
    path.write_text(
        _PROGRAM.format(
            what=f"{difference.key.name}, {difference.key}", error=difference.error, bound=difference.bound,
            reason=difference.reason, inputs=inputs.name, namespace=namespace,
        ),
        encoding="utf-8",
    )  # fmt: skip
    return path
