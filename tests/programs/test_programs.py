# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs as users write them give the CPU's losses on simulated devices."""

import sys
from functools import cache

import pytest

from benchmarks.programs import ranks, run, single

PROGRAMS = {"single": single.PROGRAMS, "ranks": ranks.PROGRAMS}
needs_transformers = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="not run: no release of transformers 5.23 is for Python 3.10"
)


@cache
def outcomes(kind: str, device: str, names: tuple[str, ...] = ()) -> run.Outcomes:
    return run.outcomes(kind, device, names)


@pytest.mark.slow
@needs_transformers
@pytest.mark.parametrize("device", run.DEVICES)
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in run.KINDS for name in PROGRAMS[kind]])
def test_program_has_the_losses_of_the_cpu(kind, name, device):
    found = run.verdict(outcomes(kind, device)[name], outcomes(kind, "cpu")[name])
    assert run.passes(found), found
