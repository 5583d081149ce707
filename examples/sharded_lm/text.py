# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Text and tokens: the model's own tokenizer, or bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from byte_lm.errors import BadInput
from byte_lm.model import printable
from transformers import AutoTokenizer


class Tokens(Protocol):
    """Interface of a tokenizer."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


class Bytes:
    """Each byte of the text is a token."""

    COUNT = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return printable(bytes(tokens))


class OfModel:
    """The tokenizer in the folder of a model; raises BadInput if there is none."""

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # transformers' own errors have no common base
            raise BadInput(
                "The tokenizer of the model cannot be loaded.",
                found=f"{folder}: {type(error).__name__}: {first_line(error)}",
                expected="the tokenizer's files next to the model's",
                do="download the whole model, or save its tokenizer to the folder with save_pretrained()",
            ) from error

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


def first_line(error: Exception) -> str:
    """The first line of what an error says."""
    return (str(error) or "no message").splitlines()[0]
