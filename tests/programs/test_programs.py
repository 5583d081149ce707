# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs as users write them give the CPU's losses on simulated devices."""

import sys
from functools import cache

import pytest

from benchmarks.programs import ranks, run, single

#: What runs in `make test`: on one device each, the programs that no other test covers.
QUICK = {
    "single": ("Hugging Face Mixtral", "torch.compile, aot_eager", "safetensors"),
    "ranks": ("tensor parallel",),
}
PROGRAMS = {"single": single.PROGRAMS, "ranks": ranks.PROGRAMS}
needs_transformers = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="not run: no release of transformers 5.23 is for Python 3.10"
)


@cache
def outcomes(kind: str, device: str, names: tuple[str, ...] = ()) -> run.Outcomes:
    return run.outcomes(kind, device, names)


@needs_transformers
@pytest.mark.parametrize(("kind", "device"), [("single", "npu"), ("ranks", "xpu")])
@pytest.mark.sample("ranks-xpu")
def test_some_programs_have_the_losses_of_the_cpu(kind, device):
    names = QUICK[kind]
    found, reference = outcomes(kind, device, names), outcomes(kind, "cpu", names)
    verdicts = {name: run.verdict(found[name], reference[name]) for name in names}
    assert all(map(run.passes, verdicts.values())), verdicts


@pytest.mark.slow
@needs_transformers
@pytest.mark.parametrize("device", run.DEVICES)
@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in run.KINDS for name in PROGRAMS[kind]])
def test_program_has_the_losses_of_the_cpu(kind, name, device):
    found = run.verdict(outcomes(kind, device)[name], outcomes(kind, "cpu")[name])
    assert run.passes(found), found


def test_other_losses_are_seen():
    reference = {"losses": [2.0, 1.0]}
    assert run.verdict({"losses": [2.0, 1.0]}, reference) == "equal"
    assert run.passes(run.verdict({"losses": [2.0, 1.0001]}, reference))
    for wrong in ({"losses": [2.0, 1.1]}, {"losses": [2.0]}, {"error": "RuntimeError: no"}):
        assert not run.passes(run.verdict(wrong, reference))
