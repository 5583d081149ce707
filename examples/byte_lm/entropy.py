# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the best guess without any context costs: the bar that a language model must clear."""

from __future__ import annotations

import math
from collections import Counter


def unigram_entropy(text: bytes) -> float:
    """Entropy of the byte frequencies of `text` in bits per byte; raises ValueError for empty text."""
    if not text:
        raise ValueError("the entropy of no bytes is not defined")
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())
