# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Text from a trained model, one sampled byte after the other."""

from __future__ import annotations

from typing import Any

import torch


@torch.no_grad()
def generate(
    model: Any, prompt: bytes, count: int, *, context: int, device: str, seed: int, temperature: float = 0.7
) -> bytes:
    """The non-empty prompt and `count` bytes after it; every rank must call this, and gets the same bytes."""
    text = bytearray(prompt)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        tokens = torch.tensor([list(text[-context:])], device=device)
        logits = torch.tensor(model(tokens)[0, -1].tolist())  # sampled on the host, alike on every device
        text.append(int(torch.multinomial((logits / temperature).softmax(0), 1, generator=generator)))
    return bytes(text)


def printable(text: bytes) -> str:
    """The text as a terminal may show it: an untrained model writes control characters as well."""
    return "".join(
        c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for c in text.decode(errors="replace")
    )
