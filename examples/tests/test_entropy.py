# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The unigram entropy, against what it means: the mean surprise of a byte that only its frequency predicts."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from byte_lm.entropy import unigram_entropy


@pytest.mark.parametrize(
    ("text", "bits"), [(b"aaaa", 0), (b"abab", 1), (bytes(range(256)), 8), (b"aaab", 0.811278)]
)
def test_known_values(text: bytes, bits: float) -> None:
    assert unigram_entropy(text) == pytest.approx(bits, abs=1e-6)


def test_it_is_the_mean_surprise_of_real_text() -> None:
    text = Path(__file__).read_bytes()
    surprise = [-math.log2(text.count(byte) / len(text)) for byte in text]
    assert unigram_entropy(text) == pytest.approx(sum(surprise) / len(surprise), rel=1e-12)


def test_no_text_has_no_entropy() -> None:
    with pytest.raises(ValueError, match="not defined"):
        unigram_entropy(b"")
