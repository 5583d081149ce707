# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Greedy generation of one text, shown while it is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from byte_lm.errors import BadInput
from transformers.generation.streamers import BaseStreamer

from sharded_lm.clock import Clock
from sharded_lm.text import Tokens


class Stream(BaseStreamer):
    """Takes tokens from transformers and passes on the text that they add.

    A token may end within a character; its text is passed on together with the next token's.
    """

    def __init__(self, text: Tokens, clock: Clock, write: Callable[[str], None]) -> None:
        self._text, self._clock, self._write = text, clock, write
        self._begun, self._shown = False, ""
        self.tokens: list[int] = []

    def put(self, value: torch.Tensor) -> None:
        if not self._begun:  # the first call has the prompt
            self._begun = True
            return
        self.tokens += value.flatten().tolist()
        self._clock.tick()
        found = self._text.decode(self.tokens)
        if not found.endswith("\N{REPLACEMENT CHARACTER}"):
            self._show(found)

    def end(self) -> None:
        self._show(self._text.decode(self.tokens))

    def _show(self, found: str) -> None:
        self._write(found[len(self._shown) :])
        self._shown = found


def check_length(model: Any, prompt: Sequence[int], count: int) -> None:
    """Raise BadInput unless prompt and text fit into the model's positions."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if not prompt:
        raise BadInput(
            "The prompt is empty.",
            found="a prompt without tokens",
            expected="a text of at least one character",
            do="give a prompt",
        )
    if positions is not None and len(prompt) + count > positions:
        raise BadInput(
            "The prompt is too long for the model.",
            found=f"{len(prompt)} tokens of prompt and {count} to generate",
            expected=f"at most {positions} together, the positions that the model has",
            do="shorten the prompt or lower --tokens",
        )


@torch.no_grad()
def generate(
    model: Any, text: Tokens, prompt: Sequence[int], count: int, device: str, write: Callable[[str], None]
) -> tuple[list[int], Clock]:
    """The tokens after the prompt, and their times; every rank must call this, and gets the same tokens."""
    given = torch.tensor([prompt], device=device)
    with Clock() as clock:
        stream = Stream(text, clock, write)
        model.generate(
            input_ids=given, attention_mask=torch.ones_like(given), streamer=stream, max_new_tokens=count,
            do_sample=False, num_beams=1, pad_token_id=0,
        )  # fmt: skip
    return stream.tokens, clock
