# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Every step against the published formulas in float64, for random shapes, strides, dtypes and hyper-parameters."""

import random
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from accel_ops import kernels, optim
from accel_ops.op_builder import FusedLionBuilder

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


def reference(kernel: str, o: dict[str, Any], p: Any, g: Any, *s: Any) -> tuple[Any, ...]:
    """The new parameter and states in float64."""
    g = g * o["grad_factor"]
    decay, lr = o["weight_decay"], o["lr"]
    if kernel.startswith("adam"):
        c1 = 1 - o["beta1"] ** o["step"] if o["bias_correction"] else 1
        c2 = 1 - o["beta2"] ** o["step"] if o["bias_correction"] else 1
        keep = 1 - lr * decay if o["decoupled"] else 1
        m, v = s
        if kernel == "adam_rollback":
            p = (p + lr * (m / c1) / ((v / c2).sqrt() + o["eps"])) / keep
            g = g if o["decoupled"] else g + decay * p
            m = (m - (1 - o["beta1"]) * g) / o["beta1"]
            return p, m, ((v - (1 - o["beta2"]) * g * g) / o["beta2"]).clamp(min=0)
        g = g if o["decoupled"] else g + decay * p
        m, v = o["beta1"] * m + (1 - o["beta1"]) * g, o["beta2"] * v + (1 - o["beta2"]) * g * g
        return keep * p - lr * (m / c1) / ((v / c2).sqrt() + o["eps"]), m, v
    if kernel == "lion":
        c = o["beta1"] * s[0] + (1 - o["beta1"]) * g
        return (1 - lr * decay) * p - lr * c.sign(), o["beta2"] * s[0] + (1 - o["beta2"]) * g
    g = g + decay * p
    total = s[0] + g * g
    return p - lr * g / (total.sqrt() + o["eps"]), total


def call(case: Case) -> None:
    rollback = {"rollback": True} if case.kernel == "adam_rollback" else {}
    kernel = getattr(kernels, case.kernel.removesuffix("_rollback"))
    kernel(case.params, case.grads, *case.states, **case.options, **rollback, copies=case.copies)


def assert_close(got: torch.Tensor, want: torch.Tensor, slack: float, note: object) -> None:
    error = (got.double() - want).abs() / want.abs().clamp(min=1)
    assert error.le(TOLERANCE[got.dtype] * slack).all(), (float(error.max()), note)


def check(draw: random.Random, kernel: str, large_share: float = 0.4) -> None:
    case = draw_case(draw, kernel, large_share)
    rows = list(zip(case.params, case.grads, *case.states, strict=True))
    o = case.options
    directions = (
        [o["beta1"] * row[2].double() + (1 - o["beta1"]) * o["grad_factor"] * row[1].double() for row in rows]
        if kernel == "lion"
        else []
    )
    expected = [reference(kernel, case.options, *(tensor.double() for tensor in row)) for row in rows]
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
@pytest.mark.parametrize("kernel", STATES)
def test_a_step_agrees_with_float64(kernel: str) -> None:
    draw = random.Random(kernel)
    for _ in range(60):
        check(draw, kernel)


@pytest.mark.slow
@pytest.mark.usefixtures("threads", "functions")
@pytest.mark.parametrize("kernel", STATES)
def test_ten_thousand_steps_agree_with_float64(kernel: str) -> None:
    draw = random.Random(f"{kernel} at length")
    for _ in range(2000):
        check(draw, kernel, large_share=0.05)


@pytest.mark.usefixtures("threads", "with_and_without_library")
def test_sums_of_squares_agree_with_float64_and_are_not_finite_where_an_element_is_not() -> None:
    draw = random.Random(1)
    for _ in range(40):
        dtype = draw.choice(TYPES)
        tensors = [torch.randn(draw.choice([0, 1, 15, 4096, 4097, 30_000])).to(dtype) for _ in range(4)]
        want = sum(float(tensor.double().square().sum()) for tensor in tensors)
        assert kernels.sum_of_squares(tensors) == pytest.approx(want, rel=1e-12)
        for bad in (float("inf"), float("nan")):
            spoiled = [*tensors, torch.tensor([1.0, bad], dtype=dtype)]
            assert not torch.tensor(kernels.sum_of_squares(spoiled)).isfinite()
    for number in (1e30, 1e-30):  # whose squares float32 does not hold
        assert kernels.sum_of_squares([torch.full((5,), number)]) == pytest.approx(5 * number**2, rel=1e-6)


@pytest.mark.parametrize(
    ("ours", "torchs", "options"),
    [
        (optim.AdamW, torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
        (optim.AdamW, torch.optim.AdamW, {"lr": 1e-2, "maximize": True}),
        (
            optim.Adagrad,
            torch.optim.Adagrad,
            {"lr": 1e-2, "lr_decay": 0.01, "initial_accumulator_value": 0.1},
        ),
    ],
)
def test_a_hundred_steps_track_torch_in_float64(ours: Any, torchs: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    mine = [torch.nn.Parameter(torch.randn(5, 7)), torch.nn.Parameter(torch.randn(3))]
    exact = [torch.nn.Parameter(parameter.detach().double()) for parameter in mine]
    one, other = ours(mine, **options), torchs(exact, **options)
    for _ in range(100):
        for parameter, twin in zip(mine, exact, strict=True):
            parameter.grad = torch.randn_like(parameter)
            twin.grad = parameter.grad.double()
        one.step()
        other.step()
    for parameter, twin in zip(mine, exact, strict=True):
        assert (parameter.double() - twin).abs().max() < 2e-5


@pytest.mark.usefixtures("with_and_without_library")
def test_lion_leaves_a_parameter_without_gradient_and_fused_lion_changes_it_as_deepspeeds_kernel_does() -> (
    None
):
    grads, params, momenta = torch.zeros(5), torch.ones(5), torch.zeros(5)
    kernels.lion([params], [grads], [momenta], lr=0.5, beta1=0.9, beta2=0.99)
    assert params.tolist() == [1.0] * 5
    lists = [[grads], [params], [momenta]]
    FusedLionBuilder().load().multi_tensor_lion(512, torch.zeros(1), lists, 0.5, 0.9, 0.99, 1, 0.0)
    assert params.tolist() == [1.5] * 5
