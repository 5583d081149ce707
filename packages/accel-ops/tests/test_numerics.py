# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps and passes over gradients: within a few units of float64. test_driver.py has the bits of each level."""

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from accel_core.errors import InvalidOpArgument
from accel_ops import reference
from accel_ops.optimizers import cpu_steps
from accel_ops.optimizers import host as optimizers
from accel_ops.optimizers.cpu_steps import copy_gradient
from accel_ops.optimizers.host import CPUAdagradBuilder, CPUAdamBuilder, CPULionBuilder

from .optimizers.step_cases import undo_adam

#: Largest error relative to the larger of 1 and the value: a few units of each type's precision.
TOLERANCE = {torch.float32: 4e-6, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
TYPES = list(TOLERANCE)
Values = dict[str, Any]
_RATES: Values = {"lr": 0.05, "weight_decay": 0.1, "grad_factor": 0.125}
_BETAS: Values = {"beta1": 0.5, "beta2": 0.9}
_ADAM: Values = {**_RATES, **_BETAS, "step": 10, "eps": 1e-3}
_UNCORRECTED: Values = {**_ADAM, "decoupled": True, "bias_correction": False}
#: By name: kernel, definition, number of states, options.
STEPS: dict[str, tuple[Any, Any, int, Values]] = {
    "Adam": (cpu_steps.adam, reference.adam, 2, {**_ADAM, "decoupled": False}),
    "AdamW, uncorrected": (cpu_steps.adam, reference.adam, 2, _UNCORRECTED),
    "Adam, back": (cpu_steps.adam, undo_adam, 2, {**_ADAM, "decoupled": False, "rollback": True}),
    "AdamW, uncorrected, back": (cpu_steps.adam, undo_adam, 2, {**_UNCORRECTED, "rollback": True}),
    "Adagrad": (cpu_steps.adagrad, reference.adagrad, 1, {**_RATES, "eps": 1e-3}),
    "Lion": (cpu_steps.lion, reference.lion, 1, {**_RATES, **_BETAS}),
}


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("types", list(itertools.product(TYPES, repeat=3)), ids=str)
def test_a_step_agrees_with_float64(name, types, copied):
    kernel, definition, states, options = STEPS[name]
    # States of about one: small denominators would magnify rounding errors of any implementation.
    lists = [[torch.randn(size).to(kind) for size in (1, 0, 17, 1027)] for kind in types[:2]]
    lists += [[0.5 + torch.rand_like(each, dtype=types[2]) for each in lists[0]] for _ in range(states)]
    for column in lists:
        column.append(column[-1].repeat_interleave(2)[::2])
    rows = [[tensor.double() for tensor in row] for row in zip(*lists, strict=True)]
    copies = [torch.zeros(len(tensor), dtype=types[1]) for tensor in lists[0]]
    kernel(*lists, **options, copies=copies if copied else None)
    given = {key: value for key, value in options.items() if key not in (*_BETAS, "grad_factor", "rollback")}
    given |= {"betas": tuple(_BETAS.values())} if "beta1" in options else {}
    # Steps back divide differences by the betas, which magnifies errors.
    slack = 30 if "rollback" in options else 1
    for (param, grad, *before), (found, _, *after), copy in zip(
        rows, zip(*lists, strict=True), copies, strict=True
    ):
        wanted = definition(grad * options["grad_factor"], param, *before, **given)
        for got, want in zip((found, *after), wanted, strict=True):
            error = (got.double() - want).abs() / want.abs().clamp(min=1)
            assert error.le(TOLERANCE[got.dtype] * slack).all(), error.max()
        assert not copied or torch.equal(copy, found.to(copy.dtype))


@pytest.mark.usefixtures("threads", "with_and_without_library")
def test_sums_of_squares_agree_with_float64_and_are_not_finite_where_an_element_is_not():
    draw = random.Random(1)
    for _ in range(40):
        dtype = draw.choice(TYPES)
        tensors = [torch.randn(draw.choice([0, 1, 15, 4096, 4097, 30_000])).to(dtype) for _ in range(4)]
        want = sum(float(tensor.double().square().sum()) for tensor in tensors)
        assert cpu_steps.sum_of_squares(tensors) == pytest.approx(want, rel=1e-12)
        for bad in (float("inf"), float("nan")):
            spoiled = [*tensors, torch.tensor([1.0, bad], dtype=dtype)]
            assert not torch.tensor(cpu_steps.sum_of_squares(spoiled)).isfinite()
    for number in (1e30, 1e-30):  # whose squares float32 does not hold
        assert cpu_steps.sum_of_squares([torch.full((5,), number)]) == pytest.approx(5 * number**2, rel=1e-6)


# --- the same bits for any number of threads and any instruction set, and conversions that round as torch does


@pytest.fixture
def levels(functions: Any) -> Iterator[list[int]]:
    """The instruction sets of this machine; the test ends with the best one selected."""
    best = functions.accel_best_level()
    yield [level for level in (0, 1, 3, 4, 5) if functions.accel_set_level(level) == 0]
    functions.accel_set_level(best)


@pytest.mark.usefixtures("threads")
def test_a_norm_has_the_same_bits_on_every_level_and_thread_count(levels, functions):
    torch.manual_seed(0)
    tensors = [torch.randn(size) for size in (0, 5, 4095, 123_457, 999_999)]
    seen = set()
    for level in levels:
        functions.accel_set_level(level)
        for threads in (1, 2):
            torch.set_num_threads(threads)
            seen.add(cpu_steps.sum_of_squares(tensors))
    assert len(seen) == 1
    assert [functions.accel_set_level(level) == 0 for level in (2, 6, -1)] == [False] * 3
    assert functions.accel_level() == levels[-1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_halves_are_read_and_rounded_as_torch_does(dtype, levels, functions):
    """All 65536 halves are read; floats around every rounding boundary are written, on every level."""
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    halves = halves[~halves.isinf()]
    exact = halves.float()[halves.isfinite()]
    bits = exact.view(torch.int32)
    shift = 16 if dtype == torch.bfloat16 else 13
    floats = torch.cat(
        [(bits + delta).view(torch.float32) for delta in (-1, 0, 1, 1 << (shift - 1), (1 << (shift - 1)) - 1)]
    )
    floats = torch.cat([floats, torch.tensor([65519.9, 65520.0, 3e38, 1e-45, -0.0])])
    floats = floats[floats.isfinite()]
    for level in levels:
        functions.accel_set_level(level)
        for source, target in (
            (halves, torch.zeros(len(halves))),
            (floats, torch.zeros(len(floats), dtype=dtype)),
        ):
            # A step with a learning rate of 0 converts the parameter to the copy.
            zeros = [torch.zeros(len(source))]
            cpu_steps.adagrad(
                [source.clone()], zeros, [torch.zeros(len(source))], lr=0.0, eps=1.0, copies=[target]
            )
            want = source.to(target.dtype)
            same = (target == want) | (target.isnan() & want.isnan())
            assert same.all(), (level, source[~same][:4], target[~same][:4])


# --- one pass over a gradient, and a step with scaling and copy-out, are torch's separate passes, bit by bit


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("wanted", TYPES)
def test_gradient_is_copied_and_accumulated_as_by_torch(dtype, wanted):
    for size in (0, 1, 5, 4096, 4097, 100_003):
        grad = torch.randn(size + 1).to(dtype)[1:]  # not aligned
        accumulated = torch.randn(size).mul_(50).to(dtype)
        before, total = grad.clone(), grad.clone().add_(accumulated)
        copy = torch.full((size,), 7.0, dtype=wanted)
        assert copy_gradient(grad, copy) == cpu_steps.sum_of_squares([grad])
        assert torch.equal(copy, grad.to(wanted))
        found = copy_gradient(grad, copy, accumulated=accumulated, add=True)
        assert found == cpu_steps.sum_of_squares([total])
        assert torch.equal(accumulated, total)
        assert torch.equal(copy, total.to(wanted))
        assert copy_gradient(grad, accumulated=accumulated) == 0
        assert torch.equal(accumulated, before)
        assert torch.equal(grad, before)


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("place", [0, 4095, 9_999])
@pytest.mark.parametrize("dtype", TYPES)
def test_sum_of_copy_shows_one_bad_element(place, dtype):
    grad, copy = torch.full((10_000,), torch.finfo(dtype).max, dtype=dtype), torch.empty(10_000)
    assert math.isfinite(copy_gradient(grad, copy))
    for bad in (math.inf, -math.inf, math.nan):
        grad[place] = bad
        assert not math.isfinite(copy_gradient(grad, copy))


GRADIENT = torch.ones(8)


@pytest.mark.parametrize(
    "arguments",
    [
        {"destination": GRADIENT},
        {"destination": torch.empty(7)},
        {"destination": torch.empty(8, dtype=torch.double)},
        {"destination": torch.empty(8, device="meta")},
        {"destination": torch.empty(16)[::2]},
        {"accumulated": torch.empty(8, dtype=torch.bfloat16)},
        {"accumulated": torch.empty(8)._neg_view()},
    ],
)
def test_other_tensors_are_refused_before_anything_is_written(arguments):
    kept = torch.zeros(8)
    given: dict[str, Any] = {"accumulated": kept, **arguments}
    with pytest.raises(InvalidOpArgument):
        copy_gradient(GRADIENT, **given)
    assert not kept.any()


#: By name: builder, and the arguments of a step that precede the tensors.
FUSED: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "adam": (CPUAdamBuilder, (0.01, 0.9, 0.999, 1e-8, 0.1, True)),
    "lion": (CPULionBuilder, (0.01, 0.9, 0.99, 0.1)),
    "adagrad": (CPUAdagradBuilder, (0.01, 1e-8, 0.1)),
}


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("pieces", [False, True])
def test_a_fused_step_is_scaling_step_and_copy(kind, dtype, pieces, monkeypatch):
    monkeypatch.setattr(optimizers, "PIECE", 1000)
    builder, options = FUSED[kind]
    op, factor = builder().load(), torch.tensor(1 / 3).item()
    getattr(op, f"create_{kind}")(3)
    grad, param, *states = torch.randn(2503), torch.randn(2503), *torch.zeros(1 + (kind == "adam"), 2503)
    ours, our_states = param.clone(), [state.clone() for state in states]
    copy, kept, bounds = torch.zeros(2503, dtype=dtype), grad.clone(), []

    def copied(begin, end):
        bounds.append((begin, end))
        assert torch.equal(copy[begin:end], ours[begin:end].to(dtype))  # it is reported once it is there

    step = op.fused(grad_factor=factor, copy=copy, copied=copied if pieces else None)
    for number in (1, 2, 3):
        getattr(op, f"{kind}_update")(3, number, *options, param, grad * factor, *states)
        getattr(step, f"{kind}_update")(3, number, *options, ours, grad, *our_states)
    getattr(step, f"destroy_{kind}")(3)

    assert step.updates == 3
    assert torch.equal(ours, param)
    assert all(map(torch.equal, our_states, states))
    assert torch.equal(copy, param.to(dtype))
    assert torch.equal(grad, kept)
    assert bounds == [(0, 1000), (1000, 2000), (2000, 2503)] * 3 * pieces
