# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Where prompts come from: the command line, or a person at rank 0."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch.distributed as dist
from byte_lm import ranks


def prompts(options: argparse.Namespace) -> Iterator[str]:
    """The prompts of a run, the same on every rank."""
    if not options.interactive:
        yield from [options.prompt] * options.repeat
        return
    while (prompt := _everywhere(_asked() if ranks.speaks() else None)) is not None:
        yield prompt


def _asked() -> str | None:
    """The next line that is not empty; None at the end of the input."""
    while True:
        try:
            line = input("prompt> ")
        except EOFError:
            return None
        if line.strip():
            return line
        print("an empty prompt: type a text, or Ctrl-D to leave", flush=True)


def _everywhere(prompt: str | None) -> str | None:
    if ranks.count() == 1:
        return prompt
    box = [prompt]
    dist.broadcast_object_list(box, 0)
    return box[0]
