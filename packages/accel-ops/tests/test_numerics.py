# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Steps and passes over gradients: within a few units of float64, the same bits on every level and thread count."""

import copy
import ctypes
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
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
#: Elements enough for two threads, of which each has at least `kGrain` (csrc/optimizers.cpp).
LARGE = 40_001
STATES = {"adam": 2, "adam_rollback": 2, "adagrad": 1, "lion": 1}


@dataclass
class Case:
    """One random call: operands and hyper-parameters."""

    kernel: str
    options: dict[str, Any]
    params: list[torch.Tensor]
    grads: list[torch.Tensor]
    states: list[list[torch.Tensor]]
    copies: list[torch.Tensor] | None


def draw_case(draw: random.Random, kernel: str, large_share: float = 0.4) -> Case:
    torch.manual_seed(draw.randrange(2**31))
    large = draw.random() < large_share
    torch.set_num_threads(2 if large else draw.choice([1, 2]))
    param, grad, state = draw.choice(TYPES), draw.choice(TYPES), draw.choice(TYPES)
    shapes = [
        draw.choice([(), (0,), (1,), (17,), (64,), (3, 5), (1025,), (40, 33), (2, 3, 4, 5)]) for _ in range(3)
    ]
    if large:
        shapes.append((LARGE,))

    def tensor(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        made = torch.randn(shape, dtype=torch.float64).to(dtype)
        layout = draw.random()
        if layout < 0.1 and made.dim() == 2:
            return made.t().contiguous().t()
        if layout < 0.2 and made.dim() == 1:
            return torch.randn(2 * len(made) + 1, dtype=torch.float64).to(dtype)[1::2][: len(made)]
        return made

    states = [[tensor(shape, state) for shape in shapes] for _ in range(STATES[kernel])]
    if kernel in ("adam", "adam_rollback", "adagrad"):
        # Small denominators would magnify rounding errors of any implementation.
        states[-1] = [tensor_.abs().add_(0.5) for tensor_ in states[-1]]
    copies = None
    if draw.random() < 0.3:
        copy_type = draw.choice(TYPES)
        copies = [torch.zeros(shape, dtype=copy_type) for shape in shapes]
    return Case(
        kernel, draw_options(draw, kernel), [tensor(shape, param) for shape in shapes],
        [tensor(shape, grad) for shape in shapes], states, copies,
    )  # fmt: skip


def draw_options(draw: random.Random, kernel: str) -> dict[str, Any]:
    options: dict[str, Any] = {
        "lr": 10 ** draw.uniform(-4, -1), "weight_decay": draw.choice([0.0, 0.01, 0.1]),
        "grad_factor": draw.choice([1.0, 0.125, -1.0]),
    }  # fmt: skip
    if kernel in ("adam", "adam_rollback", "lion"):
        options |= {"beta1": draw.choice([0.5, 0.9]), "beta2": draw.choice([0.9, 0.99])}
    if kernel in ("adam", "adam_rollback", "adagrad"):
        options["eps"] = draw.choice([1e-8, 1e-3])
    if kernel in ("adam", "adam_rollback"):
        options |= {
            "step": draw.choice([1, 2, 10, 1000]), "decoupled": draw.random() < 0.5,
            "bias_correction": draw.random() < 0.5,
        }  # fmt: skip
    return options


def expected_step(kernel: str, options: dict[str, Any], param: Any, grad: Any, *states: Any) -> list[Any]:
    """The new parameter and states in float64."""
    given = {name: options[name] for name in options if name not in ("grad_factor", "beta1", "beta2")}
    if "beta1" in options:
        given["betas"] = options["beta1"], options["beta2"]
    definition = undo_adam if kernel == "adam_rollback" else getattr(reference, kernel)
    return definition(grad * options["grad_factor"], param, *states, **given)


def call(case: Case) -> None:
    rollback = {"rollback": True} if case.kernel == "adam_rollback" else {}
    kernel = getattr(cpu_steps, case.kernel.removesuffix("_rollback"))
    kernel(case.params, case.grads, *case.states, **case.options, **rollback, copies=case.copies)


def assert_close(got: torch.Tensor, want: torch.Tensor, slack: float, note: object) -> None:
    error = (got.double() - want).abs() / want.abs().clamp(min=1)
    assert error.le(TOLERANCE[got.dtype] * slack).all(), (float(error.max()), note)


def check(draw: random.Random, kernel: str, large_share: float) -> None:
    case = draw_case(draw, kernel, large_share)
    rows = list(zip(case.params, case.grads, *case.states, strict=True))
    o = case.options
    directions = (
        [o["beta1"] * row[2].double() + (1 - o["beta1"]) * o["grad_factor"] * row[1].double() for row in rows]
        if kernel == "lion"
        else []
    )
    expected = [expected_step(kernel, case.options, *(tensor.double() for tensor in row)) for row in rows]
    call(case)
    # A rollback divides differences by the betas, which magnifies errors.
    slack = 30.0 if kernel == "adam_rollback" else 1.0
    for place, want in enumerate(expected):
        if kernel == "lion":
            # Rounding determines the sign of a direction that is nearly zero.
            unsure = directions[place].abs() < 1e-6
            assert unsure.sum() <= 1 + unsure.numel() // 100
            want = (torch.where(unsure, case.params[place].double(), want[0]), *want[1:])
        for got, value in zip((case.params[place], *(s[place] for s in case.states)), want, strict=True):
            assert_close(got, value, slack, case.options)
        if case.copies is not None:
            assert torch.equal(case.copies[place], case.params[place].to(case.copies[place].dtype))


@pytest.mark.usefixtures("threads", "with_and_without_library")
@pytest.mark.parametrize(
    ("count", "large_share"), [(60, 0.4), pytest.param(2000, 0.05, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("kernel", STATES)
def test_a_step_agrees_with_float64(kernel, count, large_share):
    draw = random.Random(f"{kernel} {count}")
    for _ in range(count):
        check(draw, kernel, large_share)


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


def result(case: Case, threads: int) -> list[torch.Tensor]:
    case = copy.deepcopy(case)
    torch.set_num_threads(threads)
    call(case)
    return [*case.params, *(tensor for state in case.states for tensor in state), *(case.copies or [])]


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("kernel", STATES)
def test_a_step_has_the_same_bits_on_every_level_and_thread_count(kernel, levels, functions):
    source = (Path(__file__).parents[1] / "csrc" / "optimizers.cpp").read_text(encoding="utf-8")
    grain, in_two_threads = int(re.findall(r"kGrain = (\d+);", source)[0]), 0
    for number in range(30):
        case, seen = draw_case(random.Random(f"{kernel} {number}"), kernel), []
        in_two_threads += sum(param.numel() for param in case.params) > grain
        for level in levels:
            assert functions.accel_set_level(level) == 0
            assert functions.accel_level() == level
            seen += [result(case, threads) for threads in (1, 2)]
        for other in seen[1:]:
            for one, another in zip(seen[0], other, strict=True):
                assert torch.equal(one, another)
                assert torch.equal(one.signbit(), another.signbit())
    assert in_two_threads >= 8


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


def test_a_level_that_the_machine_lacks_is_refused(functions):
    before = functions.accel_level()
    for level in (2, 6, -1):
        assert functions.accel_set_level(level) != 0
    assert functions.accel_level() == before


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


def test_fifteen_bytes_off_alignment_changes_nothing(functions):
    torch.manual_seed(0)
    for offset in range(1, 16):
        aligned = [torch.randn(1000) for _ in range(4)]
        aligned[3].abs_()
        shifted = []
        for tensor in aligned:
            buffer = torch.zeros(4000 + 16, dtype=torch.uint8)
            ctypes.memmove(buffer.data_ptr() + offset, tensor.data_ptr(), 4000)
            shifted.append(torch.frombuffer(buffer.numpy()[offset : offset + 4000], dtype=torch.float32))
        options = {"step": 2, "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
        for p, g, m, v in (aligned, shifted):
            cpu_steps.adam([p], [g], [m], [v], **options)
        for one, other in zip(aligned, shifted, strict=True):
            assert torch.equal(one, other)


# --- one pass over a gradient, and a step with scaling and copy-out, are torch's separate passes, bit by bit


SIZES = (0, 1, 5, 4096, 4097, 100_003)


def _pair(size: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    return (
        torch.randn(size + 1, generator=generator).to(dtype)[1:],  # not aligned
        torch.randn(size, generator=generator).mul_(50).to(dtype),
    )


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("wanted", TYPES)
def test_the_copy_is_torchs_and_the_sum_that_of_the_gradient(dtype, wanted):
    for size in SIZES:
        grad, _ = _pair(size, dtype)
        destination = torch.full((size,), 7.0, dtype=wanted)
        total = copy_gradient(grad, destination)
        assert torch.equal(destination, grad.to(wanted))
        assert total == cpu_steps.sum_of_squares([grad])
        assert total == pytest.approx(grad.double().square().sum().item(), rel=1e-12)


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("dtype", TYPES)
def test_accumulation_rounds_as_torchs(dtype):
    for size in SIZES:
        grad, accumulated = _pair(size, dtype)
        before, expected = grad.clone(), grad.clone().add_(accumulated)
        destination = torch.empty(size)
        assert copy_gradient(
            grad, destination, accumulated=accumulated, add=True
        ) == cpu_steps.sum_of_squares([expected])
        assert torch.equal(accumulated, expected)
        assert torch.equal(destination, expected.float())
        assert copy_gradient(grad, accumulated=accumulated) == 0
        assert torch.equal(accumulated, before)
        assert torch.equal(grad, before)


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", TYPES)
def test_the_sum_tells_of_one_bad_element(bad, dtype):
    for place in (0, 4095, 9_999):
        grad = torch.full((10_000,), torch.finfo(dtype).max, dtype=dtype)
        assert math.isfinite(copy_gradient(grad, torch.empty(10_000)))
        grad[place] = bad
        assert not math.isfinite(copy_gradient(grad, torch.empty(10_000)))


@pytest.mark.parametrize(
    "arguments",
    [
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
        copy_gradient(torch.ones(8), **given)
    assert not kept.any()


def test_shared_memory_is_refused():
    memory = torch.zeros(12)
    with pytest.raises(InvalidOpArgument, match="shares memory"):
        copy_gradient(memory[:8], memory[4:])


def _steps(op: Any, kind: str, param: torch.Tensor, grad: torch.Tensor, states: list[torch.Tensor]) -> None:
    for step in (1, 2, 3):
        if kind == "adam":
            op.adam_update(3, step, 0.01, 0.9, 0.999, 1e-8, 0.1, True, param, grad, *states)
        elif kind == "lion":
            op.lion_update(3, step, 0.01, 0.9, 0.99, 0.1, param, grad, states[0])
        else:
            op.adagrad_update(3, step, 0.01, 1e-8, 0.1, param, grad, states[0])


@pytest.mark.usefixtures("with_and_without_library")
@pytest.mark.parametrize("kind", ["adam", "lion", "adagrad"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("pieces", [False, True])
def test_a_fused_step_is_scaling_step_and_copy(kind, dtype, pieces, monkeypatch):
    monkeypatch.setattr(optimizers, "PIECE", 1000)
    op = {"adam": CPUAdamBuilder(), "lion": CPULionBuilder(), "adagrad": CPUAdagradBuilder()}[kind].load()
    getattr(op, f"create_{kind}")(3)
    factor = torch.tensor(1 / 3).item()
    grad, param = torch.randn(2503), torch.randn(2503)
    states = [torch.zeros(2503), torch.zeros(2503)]
    ours, our_states = param.clone(), [state.clone() for state in states]
    copy, kept, bounds = torch.zeros(2503, dtype=dtype), grad.clone(), []

    _steps(op, kind, param, grad.mul(factor), states)

    def copied(begin, end):
        bounds.append((begin, end))
        assert torch.equal(copy[begin:end], ours[begin:end].to(dtype))  # it is reported once it is there

    step = op.fused(grad_factor=factor, copy=copy, copied=copied if pieces else None)
    _steps(step, kind, ours, grad, our_states)
    getattr(step, f"destroy_{kind}")(3)

    assert step.updates == 3
    assert torch.equal(ours, param)
    assert all(map(torch.equal, our_states, states))
    assert torch.equal(copy, param.to(dtype))
    assert torch.equal(grad, kept)
    assert bounds == [(0, 1000), (1000, 2000), (2000, 2503)] * 3 * pieces
