# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs as users write them give the CPU's losses on simulated devices."""

import sys
from functools import cache

import pytest

from benchmarks.programs import run

outcomes = cache(run.outcomes)
#: Each device, and each kind on three of them: a kind's programs share a process.
PAIRS = [
    ("single", "npu"),
    ("single", "hpu"),
    ("single", "xpu"),
    ("ranks", "mlu"),
    ("ranks", "xpu"),
    ("ranks", "cuda"),
]


@pytest.mark.skipif(
    sys.version_info < (3, 11), reason="not run: no release of transformers 5.23 is for Python 3.10"
)
@pytest.mark.parametrize(("kind", "device"), PAIRS)
def test_programs_have_the_losses_of_the_cpu(kind: str, device: str) -> None:
    found, reference = outcomes(kind, device), outcomes(kind, "cpu")
    verdicts = {name: run.verdict(outcome, reference[name]) for name, outcome in found.items()}
    assert verdicts
    assert {name: text for name, text in verdicts.items() if not run.passes(text)} == {}
